//! Audit destinations, and the names of their objects.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Duration, OffsetDateTime, UtcOffset};

use crate::audit::Position;
use crate::ids::{AuditDestinationId, OrganizationId};
use crate::text_enum::text_enum;

/// The folders of an object: each holds the records of one hour, so that the layout can be read as a partitioned table.
const FOLDER: &[BorrowedFormatItem<'_>] = format_description!("date=[year]-[month]-[day]/hour=[hour]");
/// The time in the name of an object.
const NAME: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second][subsecond digits:6]Z");
/// The first and the longest pause after a failure.
const FIRST_BACKOFF: Duration = Duration::SECOND;
const MAX_BACKOFF: Duration = Duration::minutes(5);

text_enum! {
    /// Whether a destination receives records.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AuditExportStatus {
        /// Records are exported.
        Active => "active",
        /// No export begins. Records wait in the store.
        Paused => "paused",
    }
}

/// Where objects are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketTarget {
    /// The name of the bucket, which the operator offers.
    pub bucket: String,
    /// The beginning of the names of all objects, without a slash at either end; may be empty.
    pub prefix: String,
    /// The region of the bucket.
    pub region: String,
    /// The key with which the store encrypts the objects; `None`: as the bucket is configured.
    pub kms_key_id: Option<String>,
}

/// The outcomes of the exports to a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportHealth {
    /// The number of failed attempts since the last successful one.
    pub consecutive_failures: u32,
    /// The kind of the last failure, without addresses, secrets and texts of the store.
    pub last_error: Option<String>,
    /// The time of the last failure.
    pub last_error_at: Option<OffsetDateTime>,
    /// The time of the last written object.
    pub last_success_at: Option<OffsetDateTime>,
    /// The time before which no attempt is made, after a failure.
    pub next_attempt_at: Option<OffsetDateTime>,
}

/// A stored destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditDestination {
    /// The identifier.
    pub id: AuditDestinationId,
    /// The organization.
    pub organization: OrganizationId,
    /// Where objects are written.
    pub target: BucketTarget,
    /// Whether it receives records.
    pub status: AuditExportStatus,
    /// The time of the creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change by a caller.
    pub updated_at: OffsetDateTime,
    /// The last exported record, or the beginning of the export; `None` until the first activation.
    pub exported: Option<Position>,
    /// The last record of the object that is being written. A repetition writes the same records to the same name.
    pub planned: Option<Position>,
    /// The outcomes of its exports.
    pub health: ExportHealth,
}

impl AuditDestination {
    /// The maximum number of destinations of an organization.
    pub const MAX: u32 = 10;

    /// Returns the name of the object whose last record is `last`. All records of an object are of one hour.
    #[must_use]
    pub fn object_name(&self, last: Position) -> String {
        let at = last.at.to_offset(UtcOffset::UTC);
        let part = |form| at.format(form).unwrap_or_else(|error| unreachable!("{error}"));
        let folder = format!("org_id={}/{}", self.organization, part(FOLDER));
        self.under(&format!("{folder}/{}-{}.jsonl.gz", part(NAME), last.id))
    }

    /// Returns the time before which all records of an object are whose first record is at `first`: the end of its hour.
    #[must_use]
    pub fn object_end(first: OffsetDateTime) -> OffsetDateTime {
        let seconds = first.unix_timestamp().div_euclid(3600).saturating_add(1).saturating_mul(3600);
        OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(first)
    }

    /// Returns the name of the object that a test writes and removes. Readers of partitioned tables skip it.
    #[must_use]
    pub fn test_name(&self) -> String {
        self.under("_test")
    }

    fn under(&self, name: &str) -> String {
        let slash = if self.target.prefix.is_empty() { "" } else { "/" };
        format!("{}{slash}destination_id={}/{name}", self.target.prefix, self.id)
    }

    /// Returns the last exported record in a form that callers cannot use elsewhere.
    #[must_use]
    pub fn cursor(&self) -> Option<String> {
        let Position { at, id } = self.exported?;
        let micros = i64::try_from(at.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX);
        let place = [micros.to_be_bytes().as_slice(), id.ulid().0.to_be_bytes().as_slice()].concat();
        Some(format!("v1.{}", URL_SAFE_NO_PAD.encode(place)))
    }
}

impl ExportHealth {
    /// Returns the health after one more failure at `now`. `random` spreads the attempts of several destinations.
    #[must_use]
    pub fn failed(self, error: String, now: OffsetDateTime, random: u8) -> Self {
        let doublings = self.consecutive_failures.min(16);
        let pause = (FIRST_BACKOFF * 2_i32.pow(doublings)).min(MAX_BACKOFF);
        let pause = pause * (0.75 + f64::from(random) / 510.0);
        Self {
            consecutive_failures: self.consecutive_failures.saturating_add(1),
            last_error: Some(error),
            last_error_at: Some(now),
            next_attempt_at: Some(now + pause),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;
    use crate::ids::AuditRecordId;
    use crate::testing::{NOON, audit_destination};

    #[test]
    fn an_object_is_named_after_its_last_record_in_the_folder_of_its_hour() {
        let last = Position { at: NOON + Duration::microseconds(1_234_567), id: AuditRecordId::from_ulid(Ulid(7)) };
        let destination = audit_destination();
        let (id, organization) = (destination.id, destination.organization);
        let (day, name) = (NOON.date(), destination.object_name(last));
        let compact = day.to_string().replace('-', "");
        let folder = format!("destination_id={id}/org_id={organization}/date={day}/hour=12");
        assert_eq!(name, format!("trail/{folder}/{compact}T120001234567Z-{}.jsonl.gz", last.id));
        let bare = BucketTarget { prefix: String::new(), ..destination.target.clone() };
        let bare = AuditDestination { target: bare, ..destination };
        assert_eq!(bare.test_name(), format!("destination_id={id}/_test"));
    }

    #[test]
    fn pauses_double_up_to_five_minutes_and_are_spread() {
        let mut health = ExportHealth::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            health = health.failed("no answer".to_owned(), NOON, 0);
            pauses.push((health.next_attempt_at.expect("a time") - NOON).whole_milliseconds());
        }
        assert_eq!(&pauses[..4], [750, 1500, 3000, 6000]);
        assert_eq!(pauses[11], 225_000);
        assert_eq!(health.consecutive_failures, 12);
        let latest = health.failed("no answer".to_owned(), NOON, 255).next_attempt_at.expect("a time");
        assert_eq!(latest - NOON, Duration::seconds(375));
    }

    #[test]
    fn the_hour_of_a_record_ends_at_the_next_full_hour() {
        assert_eq!(AuditDestination::object_end(NOON), NOON + Duration::HOUR);
        assert_eq!(AuditDestination::object_end(NOON + Duration::microseconds(3_599_999_999)), NOON + Duration::HOUR);
    }
}
