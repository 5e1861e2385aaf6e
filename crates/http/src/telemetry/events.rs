//! The handler that lists telemetry events.

use std::fmt::Write as _;
use time::OffsetDateTime;

use actix_web::HttpResponse;
use casement_domain::{
    page::Listed,
    telemetry::{EventsQuery, NumberedEvent},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    answer::{self, Answer},
    error::ApiError,
    query::date_time_or_age,
    request::{ProjectKey, Request},
    schema::{IntoParams, ToSchema},
};

/// An event with its number.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TelemetryEvent {
    /// The number of the event in its session, from 1 on. A gap means that events were lost, which a
    /// `telemetry_dropped` event reports.
    seq: u64,
    event: TelemetryEventBody,
}

/// A telemetry event.
#[derive(Debug, Serialize, ToSchema)]
struct TelemetryEventBody {
    /// The type, such as `console_log`.
    r#type: String,
    category: String,
    /// The time in microseconds since 1970-01-01 00:00 UTC.
    ts: i64,
    /// The source: its `kind` (`cdp`, `kernel_api`, `extension` or `local_process`), and its own name of the event.
    source: Map<String, Value>,
    /// Further fields, which depend on the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Map<String, Value>>,
    /// True if a value in `data` was truncated.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
}

/// Writes a [`TelemetryEvent`]. The event's body is JSON already.
pub(super) fn write(output: &mut String, event: &NumberedEvent) {
    // Writing to a string cannot fail.
    let _ = write!(output, r#"{{"seq":{},"event":{}}}"#, event.seq, event.event.body);
}

/// The filter and the page of a list of events.
#[derive(Deserialize, IntoParams)]
pub(super) struct EventParams {
    /// The maximum number of events, 1 to 100. Default: 20.
    #[param(value_type = Option<u32>)]
    limit: Option<i64>,
    /// The `X-Next-Offset` of the previous page. With it, `since` is ignored.
    #[param(value_type = Option<u64>)]
    offset: Option<i64>,
    /// The inclusive start: a date-time, or an age such as `5m`. Default: `5m`.
    since: Option<String>,
    /// The exclusive end: a date-time, or an age.
    until: Option<String>,
    /// `asc` (default), or `desc`: newest first.
    order: Option<String>,
    /// The categories to list. Default: all.
    #[param(required = false)]
    category: Vec<String>,
    /// The types to list, such as `page_crashed`. Default: all. With `category`, an event must match both.
    #[param(required = false)]
    r#type: Vec<String>,
}

impl EventParams {
    fn query(self, now: OffsetDateTime) -> Result<EventsQuery, ApiError> {
        Ok(EventsQuery {
            limit: self.limit,
            offset: self.offset,
            since: date_time_or_age("since", self.since, now)?,
            until: date_time_or_age("until", self.until, now)?,
            order: self.order,
            categories: self.category,
            types: self.r#type,
        })
    }
}

pub(crate) async fn list_telemetry_events(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let query = request.query::<EventParams>()?.query(request.services().clock.now())?;
    let session = request.services().sessions.find_inside(request.scope(), &which, true).await?;
    session.admits(request.scope().organization_wide)?;
    Ok(page(&request.services().telemetry.page(&session, query).await?))
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
