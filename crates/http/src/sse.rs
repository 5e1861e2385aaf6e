//! Server-sent events: one `data:` line of JSON per event, and a comment as keep-alive.

use std::time::Duration;

use actix_web::{HttpResponse, HttpResponseBuilder, http::header, web::Bytes};
use casement_domain::session_operation::OperationError;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Serialize;

use crate::request::{Request, SessionCredential};

/// The time without an event after which a keep-alive comment is sent.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
pub(crate) const KEEP_ALIVE_COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Streams the events as the body of a response. The stream ends with the events, with the session, or with the first
/// error, which is sent as a comment.
pub(crate) fn answer<C: SessionCredential, T: Serialize + 'static>(
    request: Request<C>,
    events: impl Stream<Item = Result<T, OperationError>> + 'static,
) -> HttpResponse {
    let (end, open) = request.into_open();
    let ended = Box::pin(async move { end.ended().await });
    let frames = until_error(events).map(move |event| {
        // The connection counts as open while the stream exists.
        let _open = &open;
        event.map_or_else(
            |error| {
                tracing::debug!(%error, "an event stream ended with an error");
                error_comment(&error)
            },
            |event| frame(&event),
        )
    });
    response(keep_alive(frames, || KEEP_ALIVE_COMMENT).take_until(ended))
}

/// Responds with a stream of frames.
pub(crate) fn response(frames: impl Stream<Item = Bytes> + 'static) -> HttpResponse {
    head().streaming(frames.map(Ok::<_, actix_web::Error>))
}

/// Adds a keep-alive frame after each silent interval.
pub(crate) fn keep_alive(
    frames: impl Stream<Item = Bytes>,
    keep_alive_frame: impl Fn() -> Bytes,
) -> impl Stream<Item = Bytes> {
    stream::unfold((Box::pin(frames), keep_alive_frame), |(mut frames, keep_alive_frame)| async move {
        let frame = match tokio::time::timeout(KEEP_ALIVE_INTERVAL, frames.next()).await {
            Ok(frame) => frame?,
            Err(_) => keep_alive_frame(),
        };
        Some((frame, (frames, keep_alive_frame)))
    })
}

/// Ends a stream after its first error.
pub(crate) fn until_error<T, E>(items: impl Stream<Item = Result<T, E>>) -> impl Stream<Item = Result<T, E>> {
    stream::unfold(Some(Box::pin(items)), |items| async move {
        let mut items = items?;
        let item = items.next().await?;
        let rest = item.is_ok().then_some(items);
        Some((item, rest))
    })
}

/// Starts a response with the headers of an event stream.
fn head() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        // Disables response buffering in reverse proxies.
        .insert_header(("x-accel-buffering", "no"));
    response
}

/// Formats an error as a comment. Clients ignore comments; a person can read there why the stream ended.
fn error_comment(error: &OperationError) -> Bytes {
    format!(": {}\n\n", error.to_string().replace(['\r', '\n'], " ")).into()
}

/// Formats one event.
pub(crate) fn frame(event: &impl Serialize) -> Bytes {
    let mut text = b"data: ".to_vec();
    // Serialization of the event types cannot fail, and yields one line.
    text.extend(serde_json::to_vec(event).unwrap_or_default());
    text.extend(b"\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use casement_domain::session_operation::OperationError;

    use super::{error_comment, frame};

    #[test]
    fn an_error_is_sent_as_one_comment_line() {
        let comment = error_comment(&OperationError::State("it ended:\ndata: x".to_owned()));
        assert_eq!(comment, ": it ended: data: x\n\n");
    }

    #[test]
    fn an_event_is_one_line_whatever_its_content() {
        let text = String::from_utf8(frame(&"a\nb\r\u{2028}").to_vec()).expect("text");
        assert_eq!(text, "data: \"a\\nb\\r\u{2028}\"\n\n");
    }
}
