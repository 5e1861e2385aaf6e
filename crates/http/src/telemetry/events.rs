//! Telemetry events, page by page.

use std::fmt::Write as _;

use actix_web::HttpResponse;
use casement_domain::{
    page::Listed,
    telemetry::{EventsQuery, NumberedEvent},
};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    caller::{Authorized, session_id},
    error::{ApiError, ErrorBody},
    query::Query,
};

/// An event with its number.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TelemetryEvent {
    /// Counts the events of the session from 1 on. A gap means events that were lost, and a `telemetry_dropped` event says so.
    seq: u64,
    event: TelemetryEventBody,
}

/// What happened.
#[derive(Debug, Serialize, ToSchema)]
struct TelemetryEventBody {
    /// Such as `console_log`.
    r#type: String,
    category: String,
    /// When, in microseconds since 1970.
    ts: i64,
    /// Who says so: `kind` (`cdp`, `kernel_api`, `extension`, `local_process`), and its own word for it.
    source: Map<String, Value>,
    /// What else there is to say, by the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Map<String, Value>>,
    /// Something in `data` was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
}

/// Writes a [`TelemetryEvent`]. The event's body is JSON already.
pub(super) fn write(output: &mut String, event: &NumberedEvent) {
    // Writing to a string cannot fail.
    let _ = write!(output, r#"{{"seq":{},"event":{}}}"#, event.seq, event.event.body);
}

/// Reads what happened in a session, which may have ended.
#[utoipa::path(
    get, path = "/browsers/{id}/telemetry/events", tag = "Telemetry",
    params(
        ("id" = String, Path),
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "X-Next-Offset of the page before; then since is ignored"),
        ("since" = Option<String>, Query, description = "From when on, inclusive: a date-time, or how long ago as 5m; default: 5m"),
        ("until" = Option<String>, Query, description = "Until when, exclusive, in the same forms"),
        ("order" = Option<String>, Query, description = "asc (default), or desc: newest first"),
        ("category" = Option<Vec<String>>, Query, description = "Only these categories"),
    ),
    responses(
        (status = 200, body = [TelemetryEvent], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Leads to it; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule, or the offset is of another question", body = ErrorBody),
        (status = 404, description = "There never was such a session", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_telemetry_events(caller: Authorized) -> Answer {
    let id = session_id(&caller.path("id")?)?;
    let query = events_query(&caller.query()?, &caller)?;
    let session = caller.services().sessions.get(caller.scope(), &id.to_string(), true).await?;
    session.admits(caller.scope().organization_wide)?;
    Ok(page(&caller.services().telemetry.page(&session, query).await?))
}

fn events_query(query: &Query, caller: &Authorized) -> Result<EventsQuery, ApiError> {
    let now = caller.services().clock.now();
    Ok(EventsQuery {
        limit: query.integer("limit")?,
        offset: query.integer("offset")?,
        since: query.moment_or_age("since", now)?,
        until: query.moment_or_age("until", now)?,
        order: query.text("order")?.map(str::to_owned),
        categories: query.list("category")?,
    })
}

fn page(page: &Listed<NumberedEvent>) -> HttpResponse {
    let bytes: usize = page.items.iter().map(|event| event.event.body.len() + 40).sum();
    let mut body = String::with_capacity(bytes + 2);
    body.push('[');
    for (index, event) in page.items.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        write(&mut body, event);
    }
    body.push(']');
    answer::list_head(page.next_offset).content_type("application/json").body(body)
}
