//! Forms that answers share.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};
use casement_domain::page::Listed;
use serde::{Serialize, Serializer};
use time::{OffsetDateTime, UtcOffset, format_description::BorrowedFormatItem, macros::format_description};

use crate::error::ApiError;

/// UTC with microseconds, which is what the database keeps.
const MOMENT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// A date-time of an answer: `2026-11-20T09:15:00.000000Z`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(pub(crate) OffsetDateTime);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.to_offset(UtcOffset::UTC).format(MOMENT).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

/// A record with its status.
pub(crate) fn record(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    HttpResponse::build(status).json(body)
}

/// A record that was just made, and where it can be read.
pub(crate) fn created(location: &str, body: &impl Serialize) -> HttpResponse {
    let mut response = record(StatusCode::CREATED, body);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// One page of a list.
pub(crate) fn list<T: Serialize>(page: &Listed<T>) -> HttpResponse {
    let more = if page.next_offset.is_some() { "true" } else { "false" };
    HttpResponse::Ok()
        .insert_header((HeaderName::from_static("x-has-more"), more))
        .insert_header((HeaderName::from_static("x-next-offset"), page.next_offset.unwrap_or(0).to_string()))
        .json(&page.items)
}

/// Done, and nothing to say.
pub(crate) fn nothing() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// What every handler answers.
pub(crate) type Answer = Result<HttpResponse, ApiError>;

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn moments_are_in_utc_with_six_digits() {
        let text = |moment| serde_json::to_string(&Moment(moment)).expect("a string");
        assert_eq!(text(datetime!(2026-11-20 09:15 UTC)), r#""2026-11-20T09:15:00.000000Z""#);
        assert_eq!(text(datetime!(2026-11-20 09:15:01.123456789 +02:00)), r#""2026-11-20T07:15:01.123456Z""#);
    }
}
