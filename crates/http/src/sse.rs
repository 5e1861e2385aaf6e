//! Server-sent events: one `data:` line of JSON per event, and a comment as keep-alive.

use std::time::Duration;

use actix_web::{HttpResponse, HttpResponseBuilder, http::header, web::Bytes};
use casement_domain::session_operation::OperationError;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Serialize;

use crate::caller::SessionAccess;

/// The time without an event after which a keep-alive comment is sent.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
pub(crate) const KEEP_ALIVE_COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Streams the events as the body of a response. The stream ends with the events, with the first error, which a
/// comment states, or with the session.
pub(crate) fn answer<T: Serialize>(
    inside: SessionAccess,
    events: impl Stream<Item = Result<T, OperationError>> + 'static,
) -> HttpResponse {
    let (end, open) = inside.into_open();
    let ended = Box::pin(async move { end.ended().await });
    let frames = stream::unfold(Some((Box::pin(events), open)), |state| async move {
        let (mut events, open) = state?;
        match tokio::time::timeout(KEEP_ALIVE_INTERVAL, events.next()).await {
            Err(_) => Some((KEEP_ALIVE_COMMENT, Some((events, open)))),
            Ok(Some(Ok(event))) => Some((frame(&event), Some((events, open)))),
            Ok(Some(Err(error))) => {
                tracing::debug!(%error, "a stream of events ended");
                Some((error_comment(&error), None))
            }
            Ok(None) => None,
        }
    });
    head().streaming(frames.take_until(ended).map(Ok::<_, actix_web::Error>))
}

/// Starts a response with the headers of an event stream.
pub(crate) fn head() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        // Disables response buffering in reverse proxies.
        .insert_header(("x-accel-buffering", "no"));
    response
}

/// Formats the error as a comment. Clients ignore comments; a person who debugs can read why the stream ended.
fn error_comment(error: &OperationError) -> Bytes {
    format!(": {}\n\n", error.to_string().replace(['\r', '\n'], " ")).into()
}

/// Formats one event.
pub(crate) fn frame(event: &impl Serialize) -> Bytes {
    let mut text = b"data: ".to_vec();
    // Serialization of our own types cannot fail, and yields one line.
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
