//! Telemetry events, page by page.

use std::fmt::Write as _;
use time::OffsetDateTime;

use actix_web::HttpResponse;
use casement_domain::{
    page::Listed,
    telemetry::{EventsQuery, NumberedEvent},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::{
    answer::{self, Answer},
    error::ApiError,
    query::date_time_or_age,
    request::{ProjectKey, Request, session_id},
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

/// Which events are listed.
#[derive(Deserialize, IntoParams)]
pub(super) struct EventParams {
    /// 1 to 100. Default: 20.
    #[param(value_type = Option<u32>)]
    limit: Option<i64>,
    /// `X-Next-Offset` of the page before; then `since` is ignored.
    #[param(value_type = Option<u64>)]
    offset: Option<i64>,
    /// The inclusive begin: a date-time, or an age such as `5m`. Default: `5m`.
    since: Option<String>,
    /// The exclusive end, in the same forms.
    until: Option<String>,
    /// `asc` (default), or `desc`: newest first.
    order: Option<String>,
    /// Only these categories.
    #[param(required = false)]
    category: Vec<String>,
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
        })
    }
}

pub(crate) async fn list_telemetry_events(request: Request<ProjectKey>) -> Answer {
    let id = session_id(&request.path("id")?)?;
    let query = request.query::<EventParams>()?.query(request.services().clock.now())?;
    let session = request.services().sessions.get(request.scope(), &id.to_string(), true).await?;
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
