//! The live stream of telemetry events.

use std::time::Duration;

use actix_web::web::Bytes;
use casement_domain::telemetry::{Followed, FollowedEvents, NumberedEvent, Start};
use futures_util::{Stream, StreamExt as _};

use super::events::{self, TelemetryEvent};
use crate::{answer::Answer, caller::SessionAccess, error::ErrorBody, relay::CloseReason, sse};

/// The time that the last events of a session may take after its end.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(10);
/// The comment for a client that reads too slowly.
const SLOW_READER_COMMENT: Bytes = Bytes::from_static(b": slow_reader\n\n");

/// Follows what happens in a session. The stream ends with the session.
#[utoipa::path(
    get, path = "/browsers/{id}/telemetry/stream", tag = "Telemetry",
    params(
        ("id" = String, Path),
        ("replay" = Option<String>, Query, description = "all: from the oldest event that is kept on; default: from now on"),
        ("Last-Event-ID" = Option<String>, Header, description = "The number of the last event that the caller has"),
    ),
    responses(
        (status = 200, body = TelemetryEvent, content_type = "text/event-stream"),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn stream_telemetry(inside: SessionAccess) -> Answer {
    let last = inside.headers().get("last-event-id").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let start = match (last, inside.query()?.raw("replay")?) {
        (Some(seq), _) => Start::After(seq),
        (None, Some("all")) => Start::Oldest,
        (None, _) => Start::Now,
    };
    let events = inside.services().telemetry.follow(&inside.session, start).await?;
    Ok(sse::response(frames(inside, events)))
}

fn frames(inside: SessionAccess, events: FollowedEvents) -> impl Stream<Item = Bytes> {
    let (registry, session) = (inside.services().connections.clone(), inside.session.id);
    let (mut end, mut open) = inside.into_open();
    let ended = Box::pin(async move {
        let mut reason = end.ended().await;
        // A restarted browser still belongs to the same session.
        while reason == CloseReason::BrowserRestarted {
            (end, open) = registry.register(session);
            reason = end.ended().await;
        }
        // The session waits for its connections before its last event, so this one is released first.
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
