//! The cursor of a list of records: opaque to callers, and valid for the same filter only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};
use ulid::Ulid;

use super::AuditFilter;
use crate::ids::{AuditRecordId, OrganizationId};

/// The error of a token that is malformed or belongs to another filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a token of this list, or one of other filters")]
pub struct BadCursor;

/// A record's position in the order, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The time of the record.
    pub at: OffsetDateTime,
    /// The id of the record, which orders records of the same time.
    pub id: AuditRecordId,
}

/// A range of the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditRange {
    /// The record before the range; `None`: the range begins with the newest record.
    pub after: Option<Position>,
    /// The last record of the range, inclusive; `None`: the range ends with the oldest record.
    pub through: Option<Position>,
}

/// The size of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeMeasurement {
    /// The number of matching records, up to the limit.
    pub count: u32,
    /// The first and the last of these records.
    pub ends: Option<(Position, Position)>,
    /// True if more records follow.
    pub more: bool,
}

/// The length of a position in bytes: microseconds and identifier.
const PLACE: usize = 8 + 16;
/// The length of a decoded token in bytes: a position, and the first half of the digest of the position and the filter.
const LENGTH: usize = PLACE + 16;

impl Position {
    /// Returns the position directly before this one, so that a range after it begins with this record.
    #[must_use]
    pub fn ahead(self) -> Self {
        match self.id.ulid().0.checked_add(1) {
            Some(next) => Self { id: AuditRecordId::from_ulid(Ulid(next)), ..self },
            None => Self { at: self.at + Duration::MICROSECOND, id: AuditRecordId::from_ulid(Ulid(0)) },
        }
    }

    /// Returns the token of this position.
    #[must_use]
    pub fn token(&self, organization: OrganizationId, filter: &AuditFilter) -> String {
        let micros = i64::try_from(self.at.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX);
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend(micros.to_be_bytes());
        bytes.extend(self.id.ulid().0.to_be_bytes());
        let digest = digest(&bytes, organization, filter);
        bytes.extend(&digest[..16]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Parses a token.
    ///
    /// # Errors
    /// [`BadCursor`].
    pub fn parse(text: &str, organization: OrganizationId, filter: &AuditFilter) -> Result<Self, BadCursor> {
        // Longer texts are not decoded.
        let bytes = (text.len() <= 2 * LENGTH).then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten().ok_or(BadCursor)?;
        let bytes: [u8; LENGTH] = bytes.try_into().map_err(|_| BadCursor)?;
        let (place, expected) = bytes.split_at(PLACE);
        if *expected != digest(place, organization, filter)[..16] {
            return Err(BadCursor);
        }
        let (micros, id) = place.split_first_chunk::<8>().ok_or(BadCursor)?;
        let id: [u8; 16] = id.try_into().map_err(|_| BadCursor)?;
        let nanos = i128::from(i64::from_be_bytes(*micros)) * 1000;
        let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).map_err(|_| BadCursor)?;
        Ok(Self { at, id: AuditRecordId::from_ulid(Ulid(u128::from_be_bytes(id))) })
    }
}

/// Returns the digest of a position, an organization and a filter, each part with its length. It does not protect
/// against forged tokens; it detects tokens that were cut or altered by accident.
fn digest(place: &[u8], organization: OrganizationId, filter: &AuditFilter) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    part(place);
    part(&organization.ulid().0.to_be_bytes());
    for moment in [filter.start, filter.end] {
        part(&moment.unix_timestamp_nanos().to_be_bytes());
    }
    for text in [&filter.auth_strategy, &filter.service, &filter.method, &filter.search] {
        part(&[u8::from(text.is_some())]);
        part(text.as_deref().unwrap_or_default().as_bytes());
    }
    part(&filter.exclude_methods.len().to_be_bytes());
    for method in &filter.exclude_methods {
        part(method.as_bytes());
    }
    for user in &filter.search_users {
        part(user.as_bytes());
    }
    digest.finalize().into()
}
