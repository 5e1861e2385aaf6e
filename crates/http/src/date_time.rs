//! Parses date-times of requests.

use casement_domain::field::{FieldCode, InvalidValue};
use time::{
    Date, Duration, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset,
    format_description::{BorrowedFormatItem, well_known::Rfc3339},
    macros::format_description,
};

const DATE: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");
/// Without an offset; some clients send UTC in this form.
const NAIVE: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second][optional [.[subsecond]]]");
/// The maximum size of a date-time, in bytes.
const MAX_BYTES: usize = 64;

/// Parses a date-time: RFC 3339 with any offset; without an offset it is UTC; a date alone is its midnight. Returns
/// UTC with microseconds, the precision of the database.
///
/// # Errors
/// `invalid_format`.
pub(crate) fn parse(text: &str) -> Result<OffsetDateTime, InvalidValue> {
    let bad = || InvalidValue::new(FieldCode::InvalidFormat, "must be a date-time as 2026-11-20T09:15:00Z");
    if text.len() > MAX_BYTES {
        return Err(bad());
    }
    // An unencoded plus arrives as a space. A space between date and time replaces the T.
    let mut text = text.to_owned();
    if text.as_bytes().get(10) == Some(&b' ') {
        text.replace_range(10..11, "T");
    }
    let text = text.replace(' ', "+");
    let moment = OffsetDateTime::parse(&text, &Rfc3339)
        .or_else(|_| PrimitiveDateTime::parse(&text, NAIVE).map(PrimitiveDateTime::assume_utc))
        .or_else(|_| Date::parse(&text, DATE).map(|date| date.with_time(Time::MIDNIGHT).assume_utc()))
        .map_err(|_| bad())?;
    // Years below 0 have no four-digit form, and earlier ones exceed the database's range.
    let moment = moment.checked_to_offset(UtcOffset::UTC).filter(|moment| moment.year() >= 0).ok_or_else(bad)?;
    Ok(moment.replace_nanosecond(moment.microsecond() * 1000).unwrap_or(moment))
}

/// The pattern of date-times and ages. It also accepts days that their month does not have, and ages of more than 30 days.
#[cfg(any(test, feature = "openapi"))]
pub(crate) const PATTERN_OR_AGE: &str = concat!(
    "^([0-9]+[smhd])+$|^[+ -]?[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:",
    r"([0-5][0-9]|60)(\.[0-9]+)?([Zz]|[+ -]([01][0-9]|2[0-3]):[0-5][0-9])?)?$"
);

/// The maximum age.
const MAX_AGE: Duration = Duration::days(30);

/// Parses a date-time as [`parse`] does, or an age before `now`: one or more numbers, each with a unit `s`, `m`, `h`
/// or `d`, as `5m` or `1h30m`; at most 30 days.
///
/// # Errors
/// `invalid_format`; `out_of_range` for a longer age.
pub(crate) fn parse_or_age(text: &str, now: OffsetDateTime) -> Result<OffsetDateTime, InvalidValue> {
    let Some(age) = age(text) else {
        let bad = || {
            InvalidValue::new(FieldCode::InvalidFormat, "must be a date-time as 2026-11-20T09:15:00Z or an age as 5m")
        };
        return parse(text).map_err(|_| bad());
    };
    match Duration::try_from(age) {
        Ok(age) if age <= MAX_AGE => Ok(now - age),
        _ => Err(InvalidValue::new(FieldCode::OutOfRange, "must be at most 30d ago")),
    }
}

/// Parses an age; `None` for another format. Overflow saturates.
fn age(text: &str) -> Option<std::time::Duration> {
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
        let unit = match rest.as_bytes()[end] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            _ => return None,
        };
        let number = rest[..end].parse().unwrap_or(u64::MAX);
        seconds = seconds.saturating_add(number.saturating_mul(unit));
        rest = &rest[end + 1..];
    }
    (!text.is_empty()).then(|| std::time::Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn an_age_is_counted_back_from_now() {
        let now = datetime!(2026-11-20 12:00 UTC);
        for (text, moment) in [
            ("5m", datetime!(2026-11-20 11:55 UTC)),
            ("1h30m", datetime!(2026-11-20 10:30 UTC)),
            ("0s", now),
            ("30d", datetime!(2026-10-21 12:00 UTC)),
            ("2026-11-20T09:15:00Z", datetime!(2026-11-20 09:15 UTC)),
        ] {
            assert_eq!(parse_or_age(text, now), Ok(moment), "{text}");
        }
        for (text, code) in [
            ("", FieldCode::InvalidFormat),
            ("5", FieldCode::InvalidFormat),
            ("m", FieldCode::InvalidFormat),
            ("5x", FieldCode::InvalidFormat),
            ("-5m", FieldCode::InvalidFormat),
            ("5mä", FieldCode::InvalidFormat),
            ("30d1s", FieldCode::OutOfRange),
            ("99999999999999999999d", FieldCode::OutOfRange),
        ] {
            assert_eq!(parse_or_age(text, now).map_err(|bad| bad.code), Err(code), "{text}");
        }
    }

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
    fn text_that_is_no_moment_is_refused() {
        let long = "2".repeat(100);
        for text in [
            "",
            "now",
            "2026-13-01",
            "-4000-01-01",
            "2026-11-20T25:00:00Z",
            "1763942400",
            "9999-12-31T23:59:59-01:00",
            "ä",
            &long,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
