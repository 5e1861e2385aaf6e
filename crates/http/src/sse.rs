//! Server-sent events: one `data:` line of JSON each, a comment when nothing happened for a while.

use std::time::Duration;

use actix_web::{HttpResponse, HttpResponseBuilder, http::header, web::Bytes};
use casement_domain::session_operation::OperationError;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Serialize;

use crate::request::{Request, SessionCredential};

/// After this much silence a comment tells both sides that the other is there.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(crate) const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// The events as the body of an answer. It ends with them, with the first failure, which a comment tells, or with the session.
pub(crate) fn answer<C: SessionCredential, T: Serialize>(
    request: Request<C>,
    events: impl Stream<Item = Result<T, OperationError>> + 'static,
) -> HttpResponse {
    let (end, open) = request.into_open();
    let ended = Box::pin(async move { end.ended().await });
    let frames = stream::unfold(Some((Box::pin(events), open)), |state| async move {
        let (mut events, open) = state?;
        match tokio::time::timeout(KEEP_ALIVE, events.next()).await {
            Err(_) => Some((COMMENT, Some((events, open)))),
            Ok(Some(Ok(event))) => Some((frame(&event), Some((events, open)))),
            Ok(Some(Err(error))) => {
                tracing::debug!(%error, "a stream of events ended");
                Some((comment(&error), None))
            }
            Ok(None) => None,
        }
    });
    head().streaming(frames.take_until(ended).map(Ok::<_, actix_web::Error>))
}

/// How the answer begins.
pub(crate) fn head() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        // A proxy in between would else collect events before it passes them on.
        .insert_header(("x-accel-buffering", "no"));
    response
}

/// Clients pass comments over; a person who looks finds why the stream ends.
fn comment(error: &OperationError) -> Bytes {
    format!(": {}\n\n", error.to_string().replace(['\r', '\n'], " ")).into()
}

pub(crate) fn frame(event: &impl Serialize) -> Bytes {
    let mut text = b"data: ".to_vec();
    // Our own types always have a JSON form, on one line.
    text.extend(serde_json::to_vec(event).unwrap_or_default());
    text.extend(b"\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use casement_domain::session_operation::OperationError;

    use super::{comment, frame};

    #[test]
    fn the_last_word_is_one_comment() {
        let said = comment(&OperationError::State("it ended:\ndata: x".to_owned()));
        assert_eq!(said, ": it ended: data: x\n\n");
    }

    #[test]
    fn an_event_is_one_line_whatever_it_holds() {
        let text = String::from_utf8(frame(&"a\nb\r\u{2028}").to_vec()).expect("text");
        assert_eq!(text, "data: \"a\\nb\\r\u{2028}\"\n\n");
    }
}
