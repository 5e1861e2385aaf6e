//! Response builders that handlers share.

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};
use casement_domain::page::Listed;
use serde::{Serialize, Serializer};
use time::{OffsetDateTime, UtcOffset, format_description::BorrowedFormatItem, macros::format_description};

use crate::error::ApiError;

/// UTC with microseconds, the precision of the database.
const MOMENT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// A date-time in a response: `2026-11-20T09:15:00.000000Z`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(pub(crate) OffsetDateTime);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.to_offset(UtcOffset::UTC).format(MOMENT).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

/// Returns a JSON body with a status.
pub(crate) fn record(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    HttpResponse::build(status).json(body)
}

/// Returns 201 with the created record and its `Location`.
pub(crate) fn created(location: &str, body: &impl Serialize) -> HttpResponse {
    let mut response = record(StatusCode::CREATED, body);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Returns one page of a list with its pagination headers.
pub(crate) fn list<T: Serialize>(page: &Listed<T>) -> HttpResponse {
    list_head(page.next_offset).json(&page.items)
}

/// Starts the response of one page of a list.
pub(crate) fn list_head<N: Default + ToString>(next_offset: Option<N>) -> HttpResponseBuilder {
    let has_more = if next_offset.is_some() { "true" } else { "false" };
    let mut response = HttpResponse::Ok();
    response
        .insert_header((HeaderName::from_static("x-has-more"), has_more))
        .insert_header((HeaderName::from_static("x-next-offset"), next_offset.unwrap_or_default().to_string()));
    response
}

/// Returns 204 without a body.
pub(crate) fn nothing() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// The result of every handler.
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
