//! Events as they happen.

use serde::Deserialize;
use std::{future::Future, pin::Pin, time::Duration};
use utoipa::IntoParams;

use actix_web::web::Bytes;
use casement_domain::telemetry::{Followed, FollowedEvents, NumberedEvent, Start};
use futures_util::{Stream, StreamExt as _, stream};

use super::events;
use crate::{
    answer::Answer,
    query::Verbatim,
    relay::CloseReason,
    request::{ActiveSession, Request},
    sse,
};

/// How long the last events of a session may take after its end.
const LAST_EVENTS: Duration = Duration::from_secs(10);
/// What a client is told that read too slowly.
const TOO_SLOW: Bytes = Bytes::from_static(b": slow_reader\n\n");

/// Where the stream begins.
#[derive(Deserialize, IntoParams)]
pub(super) struct StreamParams {
    /// `all`: with the oldest stored event. Default: with the next event.
    #[param(value_type = Option<String>)]
    replay: Option<Verbatim>,
}

/// The header with which a client resumes a stream.
#[derive(IntoParams)]
#[expect(dead_code, reason = "it is in the OpenAPI document only")]
pub(super) struct LastEventHeader {
    /// The number of the last event that the caller has.
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
    Ok(sse::head().streaming(frames(request, events).map(Ok::<_, actix_web::Error>)))
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

fn frames(request: Request<ActiveSession>, events: FollowedEvents) -> impl Stream<Item = Bytes> {
    let (registry, session) = (request.services().connections.clone(), request.session().id);
    let (mut end, mut open) = request.into_open();
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
