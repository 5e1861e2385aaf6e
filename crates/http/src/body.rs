//! Reads request bodies, bounded in size and time.

use std::time::Duration;

use actix_web::{
    HttpRequest,
    http::header::{self, HeaderValue},
    web::{Bytes, BytesMut, Payload},
};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    error::{ApiError, Code},
    json, not_supported,
    restricting::Restrictions,
};

/// The maximum size of a JSON body, in bytes: room for the largest policy and its envelope.
pub(crate) const MAX_JSON_BYTES: usize = 8 * 1024 * 1024;
/// The message for another content type, which curl's `-d` sends by default.
pub(crate) const NOT_JSON: &str = "the body must be JSON in UTF-8, sent with the header 'Content-Type: application/json' (curl: --json, or -H beside -d)";
/// The maximum pause between two chunks of a body.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of chunks of a streamed body that wait for their reader.
const MAX_QUEUED_CHUNKS: usize = 4;

/// Reads the bytes of a JSON body as `T`. The names of its unknown fields are stored with the request.
///
/// # Errors
/// As [`json::read`].
pub(crate) fn object<T: DeserializeOwned>(request: &HttpRequest, body: &[u8]) -> Result<T, ApiError> {
    let check = |fields: &_| not_supported::check_fields(request, fields);
    let (object, ignored) = json::read_with_ignored(body, &check, Restrictions::of(request))?;
    ignored.note(request);
    Ok(object)
}

/// Reads the bytes of a JSON body; empty if there is no body.
///
/// # Errors
/// `payload_too_large`, `unsupported_media_type`, and as [`read`].
pub(crate) async fn json(request: &HttpRequest, payload: &mut Payload) -> Result<Bytes, ApiError> {
    json_within(MAX_JSON_BYTES, request, payload).await
}

/// Reads a JSON body as [`json()`] does, of at most `max_bytes` bytes.
///
/// # Errors
/// As [`json()`].
pub(crate) async fn json_within(
    max_bytes: usize,
    request: &HttpRequest,
    payload: &mut Payload,
) -> Result<Bytes, ApiError> {
    let headers = request.headers();
    let content_length = content_length(request);
    if content_length.is_some_and(|length| length > max_bytes as u64) {
        return Err(too_large(max_bytes));
    }
    // The headers of a body that is not sent are ignored.
    let has_body = content_length.map_or(headers.contains_key(header::TRANSFER_ENCODING), |length| length > 0);
    if has_body && headers.get_all(header::CONTENT_TYPE).any(|value| !is_json(value)) {
        return Err(ApiError::new(Code::UnsupportedMediaType, NOT_JSON));
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::new(Code::UnsupportedMediaType, "the body must not be encoded"));
    }
    read(payload, max_bytes).await
}

/// Reads the whole body.
///
/// # Errors
/// `payload_too_large`; `request_timeout` after 60 s without data; `bad_request` if the body ends early.
pub(crate) async fn read(payload: &mut Payload, max_bytes: usize) -> Result<Bytes, ApiError> {
    read_with_timeout(payload, max_bytes, READ_TIMEOUT).await
}

async fn read_with_timeout(payload: &mut Payload, max_bytes: usize, timeout: Duration) -> Result<Bytes, ApiError> {
    let mut body = BytesMut::new();
    let timed_out = |_| ApiError::new(Code::RequestTimeout, "the body stopped coming");
    while let Some(chunk) = tokio::time::timeout(timeout, payload.next()).await.map_err(timed_out)? {
        let chunk = chunk.map_err(|error| {
            ApiError::new(Code::BadRequest, "the body ended early or cannot be read").caused_by(error.to_string())
        })?;
        if body.len() + chunk.len() > max_bytes {
            return Err(too_large(max_bytes));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Signals that a streamed body was received to its end.
pub(crate) struct BodyEnd(oneshot::Receiver<()>);

impl BodyEnd {
    /// Waits for the end of the body. Most clients lose a response that is sent earlier: they continue to send, and
    /// find the connection closed.
    pub(crate) async fn wait(self) {
        drop(tokio::time::timeout(READ_TIMEOUT, self.0).await);
    }
}

/// Streams a body of at most `max_bytes` bytes into a session. When the stream is dropped, the rest of the body is read
/// and discarded.
pub(crate) fn stream(
    request: &HttpRequest,
    mut payload: Payload,
    max_bytes: u64,
) -> Result<(ByteStream, BodyEnd), ApiError> {
    if content_length(request).is_some_and(|length| length > max_bytes) {
        return Err(stream_too_large(max_bytes).into());
    }
    // The payload is bound to this thread; the stream may be read on another.
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let (end_sender, end) = oneshot::channel();
    actix_web::rt::spawn(async move {
        let _end_sender = end_sender;
        if let Some(remaining_bytes) = forward(&mut payload, &sender, max_bytes).await {
            discard(payload, remaining_bytes).await;
        }
    });
    Ok((ReceiverStream::new(receiver).boxed(), BodyEnd(end)))
}

/// Forwards the body to `sender`. Returns the bytes that may still follow if the receiver was dropped before the end.
async fn forward(
    payload: &mut Payload,
    sender: &mpsc::Sender<Result<Bytes, OperationError>>,
    max_bytes: u64,
) -> Option<u64> {
    let mut remaining_bytes = max_bytes;
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(READ_TIMEOUT, payload.next()) => next,
            () = sender.closed() => return Some(remaining_bytes),
        };
        let chunk = match next {
            Err(_) => Err(OperationError::Stalled { seconds: READ_TIMEOUT.as_secs() as u32 }),
            Ok(None) => return None,
            Ok(Some(Err(error))) => {
                Err(OperationError::Broken(format!("the body ended early or cannot be read: {error}")))
            }
            Ok(Some(Ok(chunk))) => match remaining_bytes.checked_sub(chunk.len() as u64) {
                Some(remaining) => {
                    remaining_bytes = remaining;
                    Ok(chunk)
                }
                None => Err(stream_too_large(max_bytes)),
            },
        };
        let failed = chunk.is_err();
        let is_closed = sender.send(chunk).await.is_err();
        if failed {
            return None;
        }
        if is_closed {
            return Some(remaining_bytes);
        }
    }
}

/// Reads and discards at most `remaining_bytes` for at most the time that a response waits for the end of the body.
async fn discard(mut payload: Payload, mut remaining_bytes: u64) {
    let discarded = async {
        while let Some(Ok(chunk)) = payload.next().await {
            match remaining_bytes.checked_sub(chunk.len() as u64) {
                Some(remaining) => remaining_bytes = remaining,
                None => return,
            }
        }
    };
    drop(tokio::time::timeout(READ_TIMEOUT, discarded).await);
}

fn content_length(request: &HttpRequest) -> Option<u64> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn stream_too_large(max_bytes: u64) -> OperationError {
    OperationError::TooLarge(format!("the body must be at most {max_bytes} bytes"))
}

fn too_large(max_bytes: usize) -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("the body must be at most {max_bytes} bytes"))
}

/// Returns whether a content type is `application/json` or `application/…+json`, in UTF-8 if it names a charset.
fn is_json(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let text = text.to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().and_then(|kind| kind.strip_prefix("application/")).unwrap_or_default();
    let is_json = kind == "json" || kind.strip_suffix("+json").is_some_and(|kind| !kind.is_empty());
    is_json
        && parts.all(|part| match part.split_once('=') {
            Some(("charset", charset)) => matches!(charset.trim_matches('"'), "utf-8" | "utf8"),
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use actix_web::{FromRequest as _, dev, test::TestRequest};

    use super::*;

    #[test]
    fn json_content_types_must_be_utf_8() {
        for good in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/merge-patch+json",
            "application/json; charset=\"utf-8\"; x=y",
        ] {
            assert!(is_json(&HeaderValue::from_static(good)), "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "text/json",
            "application/json; charset=latin1",
            "application/+json",
            "application/jsonx",
        ] {
            assert!(!is_json(&HeaderValue::from_static(bad)), "{bad}");
        }
    }

    #[actix_web::test]
    async fn a_body_that_stops_coming_is_a_request_timeout() {
        let mut silent = dev::Payload::Stream { payload: futures_util::stream::pending().boxed_local() };
        let request = TestRequest::default().to_http_request();
        let mut payload = Payload::from_request(&request, &mut silent).await.expect("a body");
        let refused = read_with_timeout(&mut payload, 10, Duration::from_millis(10)).await.expect_err("nothing comes");
        assert_eq!((refused.code(), refused.code().status()), (Code::RequestTimeout, 408));
    }
}
