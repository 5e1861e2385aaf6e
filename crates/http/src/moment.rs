//! Date-times of requests.

use casement_domain::field::{Bad, FieldCode};
use time::{
    Date, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset,
    format_description::{BorrowedFormatItem, well_known::Rfc3339},
    macros::format_description,
};

const DATE: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");
/// Without an offset, which is how some clients send what they hold in UTC.
const NAIVE: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second][optional [.[subsecond]]]");
/// More is none of any form.
const LONGEST: usize = 64;

/// Reads a date-time: RFC 3339 with any offset; without one it is UTC; a date alone is its midnight. In UTC, with the microseconds
/// that the database keeps.
///
/// # Errors
/// `invalid_format`.
pub(crate) fn parse(text: &str) -> Result<OffsetDateTime, Bad> {
    let bad = || Bad::new(FieldCode::InvalidFormat, "must be a date-time as 2026-11-20T09:15:00Z");
    if text.len() > LONGEST {
        return Err(bad());
    }
    // A plus that was not encoded has become a blank; one between date and time stands for the T.
    let mut text = text.to_owned();
    if text.as_bytes().get(10) == Some(&b' ') {
        text.replace_range(10..11, "T");
    }
    let text = text.replace(' ', "+");
    let moment = OffsetDateTime::parse(&text, &Rfc3339)
        .or_else(|_| PrimitiveDateTime::parse(&text, NAIVE).map(PrimitiveDateTime::assume_utc))
        .or_else(|_| Date::parse(&text, DATE).map(|date| date.with_time(Time::MIDNIGHT).assume_utc()))
        .map_err(|_| bad())?;
    let moment = moment.checked_to_offset(UtcOffset::UTC).ok_or_else(bad)?;
    Ok(moment.replace_nanosecond(moment.microsecond() * 1000).unwrap_or(moment))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::parse;

    #[test]
    fn every_form_of_a_moment_is_read_as_utc() {
        let same = datetime!(2026-11-20 09:15:00.25 UTC);
        for text in [
            "2026-11-20T09:15:00.25Z",
            "2026-11-20T09:15:00.25",
            "2026-11-20 09:15:00.25",
            "2026-11-20t10:15:00.250000+01:00",
            "2026-11-20T10:15:00.25 01:00",
        ] {
            assert_eq!(parse(text), Ok(same), "{text}");
        }
        assert_eq!(parse("2026-11-20"), Ok(datetime!(2026-11-20 0:00 UTC)));
        assert_eq!(parse("9999-12-31T23:59:59.1234567Z"), Ok(datetime!(9999-12-31 23:59:59.123456 UTC)));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        let long = "2".repeat(100);
        for text in
            ["", "now", "2026-13-01", "2026-11-20T25:00:00Z", "1763942400", "9999-12-31T23:59:59-01:00", "ä", &long]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
