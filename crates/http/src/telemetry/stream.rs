//! The handler that streams telemetry events.

use std::{
    cell::Cell,
    future::ready,
    rc::Rc,
    time::{Duration, Instant},
};

use actix_web::web::Bytes;
use casement_domain::{
    field::InvalidInput,
    telemetry::{Followed, FollowedEvents, NumberedEvent, Start, TypeFilter},
};
use futures_util::{Stream, StreamExt as _, stream};

use super::events;
use crate::{
    answer::Answer,
    error::ApiError,
    query::Verbatim,
    relay::CloseReason,
    request::{ActiveSession, Request},
    schema::IntoParams,
    sse,
};
use serde::Deserialize;

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
    /// The types to send, repeated or separated by commas, such as `page_crashed`. Default: all. A frame with an `id:`
    /// alone names the last event that was left out, so that a client resumes after it.
    #[param(required = false)]
    r#type: Vec<String>,
}

impl StreamParams {
    fn types(&self) -> Result<TypeFilter, ApiError> {
        let types = self.r#type.iter().flat_map(|types| types.split(',')).map(|kind| kind.trim().to_owned());
        TypeFilter::parse(types.collect()).map_err(|invalid| InvalidInput::of("type", invalid).into())
    }
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
    let params = request.query::<StreamParams>()?;
    let types = params.types()?;
    let start = match (last, params.replay) {
        (Some(seq), _) => Start::After(seq),
        (None, Some(Verbatim(text))) if text == "all" => Start::Oldest,
        (None, _) => Start::Now,
    };
    let events = request.services().telemetry.follow(request.session(), start).await?;
    Ok(sse::response(frames(request, events, types)))
}

fn frames(request: Request<ActiveSession>, events: FollowedEvents, types: TypeFilter) -> impl Stream<Item = Bytes> {
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
    let skipped = Skipped::default();
    let noted = skipped.clone();
    let frames = sse::until_error(events.filter_map(move |event| ready(selected(event, &types, &noted))));
    let frames = frames.map(|frame| frame.unwrap_or_else(|comment| comment));
    let (while_open, at_end) = (skipped.clone(), skipped);
    let frames = sse::keep_alive(frames, move || while_open.take_frame().unwrap_or(sse::KEEP_ALIVE_COMMENT));
    let frames = frames.take_until(ended);
    frames.chain(stream::once(async move { at_end.take_frame() }).filter_map(ready))
}

/// Returns the frame of an event, or the comment that ends the stream; `None` if the event is left out.
fn selected(event: Followed, types: &TypeFilter, skipped: &Skipped) -> Option<Result<Bytes, Bytes>> {
    match event {
        Followed::Event(event) if types.selects(&event.event) => {
            skipped.0.set(Leap::default());
            Some(Ok(frame(&event)))
        }
        Followed::Event(event) => skipped.leave_out(event.seq, Instant::now()).map(Ok),
        Followed::TooSlow => {
            tracing::info!(reason = CloseReason::SlowReader.as_str(), "a telemetry stream ended");
            Some(Err(SLOW_READER_COMMENT))
        }
    }
}

/// The number of the last event that a stream left out and has not named, shared by its parts.
#[derive(Clone, Default)]
struct Skipped(Rc<Cell<Leap>>);

#[derive(Clone, Copy, Default)]
struct Leap {
    /// The number of the last event that was left out.
    last: Option<u64>,
    /// The time since which events are left out without a frame.
    since: Option<Instant>,
}

impl Skipped {
    /// Notes that an event is left out. Returns the frame that names it once events were left out for an interval.
    fn leave_out(&self, seq: u64, now: Instant) -> Option<Bytes> {
        let since = self.0.get().since.unwrap_or(now);
        self.0.set(Leap { last: Some(seq), since: Some(since) });
        if now - since < sse::KEEP_ALIVE_INTERVAL { None } else { self.take_frame() }
    }

    /// Returns the frame that names the last event that was left out, unless it was named before.
    fn take_frame(&self) -> Option<Bytes> {
        let last = self.0.take().last?;
        Some(format!("id: {last}\n\n").into())
    }
}

fn frame(event: &NumberedEvent) -> Bytes {
    let mut text = format!("id: {}\ndata: ", event.seq);
    events::write(&mut text, event);
    text.push_str("\n\n");
    text.into()
}
