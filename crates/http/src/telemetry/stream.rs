//! Events as they happen.

use std::{future::Future, pin::Pin, time::Duration};

use actix_web::web::Bytes;
use casement_domain::telemetry::{Followed, FollowedEvents, NumberedEvent, Start};
use futures_util::{Stream, StreamExt as _, stream};

use super::events::{self, TelemetryEvent};
use crate::{answer::Answer, caller::SessionAccess, error::ErrorBody, relay::CloseReason, sse};

/// How long the last events of a session may take after its end.
const LAST_EVENTS: Duration = Duration::from_secs(10);
/// What a client is told that read too slowly.
const TOO_SLOW: Bytes = Bytes::from_static(b": slow_reader\n\n");

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
    Ok(sse::head().streaming(frames(inside, events).map(Ok::<_, actix_web::Error>)))
}

/// What ends the frames, when the session does.
type Ended = Pin<Box<dyn Future<Output = ()>>>;

struct Frames {
    events: FollowedEvents,
    ended: Ended,
}

/// What comes next.
enum Next {
    Event(Option<Followed>),
    Silence,
    Ended,
}

fn frames(inside: SessionAccess, events: FollowedEvents) -> impl Stream<Item = Bytes> {
    let (registry, session) = (inside.services().connections.clone(), inside.session.id);
    let (mut end, mut open) = inside.into_open();
    let ended: Ended = Box::pin(async move {
        let mut reason = end.ended().await;
        // Another browser is still the same session.
        while reason == CloseReason::BrowserRestarted {
            (end, open) = registry.register(session);
            reason = end.ended().await;
        }
        // The session waits for its connections before it says its last word, and that word is for us.
        drop(open);
        if reason != CloseReason::Drain {
            tokio::time::sleep(LAST_EVENTS).await;
        }
    });
    stream::unfold(Some(Frames { events, ended }), |frames| async move {
        let mut frames = frames?;
        let next = tokio::select! {
            event = frames.events.next() => Next::Event(event),
            () = &mut frames.ended => Next::Ended,
            () = tokio::time::sleep(sse::KEEP_ALIVE) => Next::Silence,
        };
        match next {
            Next::Event(Some(Followed::Event(one))) => Some((frame(&one), Some(frames))),
            Next::Event(Some(Followed::TooSlow)) => {
                tracing::info!(reason = CloseReason::SlowReader.as_str(), "a stream of telemetry ended");
                Some((TOO_SLOW, None))
            }
            Next::Silence => Some((sse::COMMENT, Some(frames))),
            Next::Event(None) | Next::Ended => None,
        }
    })
}

fn frame(one: &NumberedEvent) -> Bytes {
    let mut text = format!("id: {}\ndata: ", one.seq);
    events::write(&mut text, one);
    text.push_str("\n\n");
    text.into()
}
