//! The handler that streams telemetry events.

use std::time::Duration;

use actix_web::web::Bytes;
use casement_domain::telemetry::{Followed, FollowedEvents, NumberedEvent, Start};
use futures_util::{Stream, StreamExt as _};

use super::events;
use crate::{
    answer::Answer,
    query::Verbatim,
    relay::CloseReason,
    request::{ActiveSession, Request},
    sse,
};
use serde::Deserialize;
use utoipa::IntoParams;

/// The maximum time for which a stream waits for the last events after the end of its session.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(10);
/// The last frame for a client that reads too slowly.
const SLOW_READER_COMMENT: Bytes = Bytes::from_static(b": slow_reader\n\n");

/// The start of a stream.
#[derive(Deserialize, IntoParams)]
pub(super) struct StreamParams {
    /// `all`: the stream begins with the oldest stored event. Default: with the next event.
    #[param(value_type = Option<String>)]
    replay: Option<Verbatim>,
}

/// The header with which a client resumes a stream.
#[derive(IntoParams)]
#[expect(dead_code, reason = "it is in the OpenAPI document only")]
pub(super) struct LastEventHeader {
    /// The number of the last event that the client has received.
    #[param(rename = "Last-Event-ID")]
    last_event_id: Option<String>,
}

pub(crate) async fn stream_telemetry(request: Request<ActiveSession>) -> Answer {
    let last = request.headers().get("last-event-id").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let start = match (last, request.query::<StreamParams>()?.replay) {
        (Some(seq), _) => Start::After(seq),
        (None, Some(Verbatim(text))) if text == "all" => Start::Oldest,
        (None, _) => Start::Now,
    };
    let events = request.services().telemetry.follow(request.session(), start).await?;
    Ok(sse::response(frames(request, events)))
}

fn frames(request: Request<ActiveSession>, events: FollowedEvents) -> impl Stream<Item = Bytes> {
    let (registry, session) = (request.services().connections.clone(), request.session().id);
    let (mut end, mut open) = request.into_open();
    let ended = Box::pin(async move {
        let mut reason = end.ended().await;
        // A restarted browser still belongs to the same session.
        while reason == CloseReason::BrowserRestarted {
            (end, open) = registry.register(session);
            reason = end.ended().await;
        }
        // The session waits for the end of its connections before its last event, so this registration is dropped
        // first.
        drop(open);
        if reason != CloseReason::Drain {
            tokio::time::sleep(LAST_EVENTS_TIMEOUT).await;
        }
    });
    let frames = sse::until_error(events.map(|event| match event {
        Followed::Event(event) => Ok(frame(&event)),
        Followed::TooSlow => {
            tracing::info!(reason = CloseReason::SlowReader.as_str(), "a telemetry stream ended");
            Err(SLOW_READER_COMMENT)
        }
    }));
    let frames = frames.map(|frame| frame.unwrap_or_else(|comment| comment));
    sse::keep_alive(frames, || sse::KEEP_ALIVE_COMMENT).take_until(ended)
}

fn frame(event: &NumberedEvent) -> Bytes {
    let mut text = format!("id: {}\ndata: ", event.seq);
    events::write(&mut text, event);
    text.push_str("\n\n");
    text.into()
}
