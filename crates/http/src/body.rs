//! Bodies of requests, bounded in size and time.

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
    json,
};

/// The longest body, in bytes: room for the longest policy and what stands beside it.
pub(crate) const LONGEST: usize = 8 * 1024 * 1024;
/// What is said of a body of another type, which is mostly what curl says of `-d` by itself.
pub(crate) const NOT_JSON: &str = "the body must be JSON in UTF-8, sent with the header 'Content-Type: application/json' (curl: --json, or -H beside -d)";
/// How long a body may stop coming.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How many parts of a streamed body, each as it came from the network, wait for their reader.
const UNDER_WAY: usize = 4;

/// The type `T` that a JSON body holds; what of it `T` does not know is noted with the request.
///
/// # Errors
/// As [`json()`] and [`json::read`].
pub(crate) async fn object<T: DeserializeOwned>(request: &HttpRequest, payload: &mut Payload) -> Result<T, ApiError> {
    let (object, ignored) = json::read_noting(&json(request, payload).await?)?;
    ignored.note(request);
    Ok(object)
}

/// The bytes of a JSON body; none for no body.
///
/// # Errors
/// `payload_too_large`, `unsupported_media_type`, and as [`read`].
pub(crate) async fn json(request: &HttpRequest, payload: &mut Payload) -> Result<Bytes, ApiError> {
    json_within(LONGEST, request, payload).await
}

/// As [`json`], of at most `longest` bytes.
///
/// # Errors
/// As [`json`].
pub(crate) async fn json_within(
    longest: usize,
    request: &HttpRequest,
    payload: &mut Payload,
) -> Result<Bytes, ApiError> {
    let headers = request.headers();
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > longest as u64) {
        return Err(too_large(longest));
    }
    // What a client says of a body that it does not send means nothing.
    let is_sent = announced.map_or(headers.contains_key(header::TRANSFER_ENCODING), |length| length > 0);
    if is_sent && headers.get_all(header::CONTENT_TYPE).any(|value| !is_json(value)) {
        return Err(ApiError::new(Code::UnsupportedMediaType, NOT_JSON));
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::new(Code::UnsupportedMediaType, "the body must not be encoded"));
    }
    read(payload, longest).await
}

/// The whole body.
///
/// # Errors
/// `payload_too_large`; `request_timeout` after 60 s of silence; `bad_request` if it broke off.
pub(crate) async fn read(payload: &mut Payload, longest: usize) -> Result<Bytes, ApiError> {
    read_patiently(payload, longest, TIMEOUT).await
}

async fn read_patiently(payload: &mut Payload, longest: usize, client_timeout: Duration) -> Result<Bytes, ApiError> {
    let mut body = BytesMut::new();
    loop {
        let silence = |_| ApiError::new(Code::RequestTimeout, "the body stopped coming");
        let Some(chunk) = tokio::time::timeout(client_timeout, payload.next()).await.map_err(silence)? else { break };
        let chunk = chunk.map_err(|error| {
            ApiError::new(Code::BadRequest, "the body broke off or cannot be read").caused_by(error.to_string())
        })?;
        if body.len() + chunk.len() > longest {
            return Err(too_large(longest));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The end of a body, whoever reads it: its stream, or nobody once that is dropped.
pub(crate) struct Rest(oneshot::Receiver<()>);

impl Rest {
    /// Waits until the body is at its end. An answer that comes before is lost to most clients: they still send, and find the
    /// connection closed.
    pub(crate) async fn passed(self) {
        drop(tokio::time::timeout(TIMEOUT, self.0).await);
    }
}

/// The body as it comes, at most `longest` bytes, for what is done inside a session. What is left of it when the stream is dropped is
/// read and forgotten.
pub(crate) fn stream(
    request: &HttpRequest,
    mut payload: Payload,
    longest: u64,
) -> Result<(ByteStream, Rest), ApiError> {
    let too_large = move || OperationError::TooLarge(format!("the body must be at most {longest} bytes"));
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > longest) {
        return Err(too_large().into());
    }
    // The connection belongs to this thread, the stream to whoever reads it.
    let (sender, receiver) = mpsc::channel(UNDER_WAY);
    let (passed, rest) = oneshot::channel();
    actix_web::rt::spawn(async move {
        let _passed = passed;
        let mut came = 0;
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(TIMEOUT, payload.next()) => next,
                () = sender.closed() => return forget(payload, longest.saturating_sub(came)).await,
            };
            let part = match next {
                Err(_) => Err(OperationError::Stalled { seconds: TIMEOUT.as_secs() as u32 }),
                Ok(None) => return,
                Ok(Some(Err(error))) => {
                    Err(OperationError::Broken(format!("the body broke off or cannot be read: {error}")))
                }
                Ok(Some(Ok(part))) => {
                    came += part.len() as u64;
                    if came > longest { Err(too_large()) } else { Ok(part) }
                }
            };
            let over = part.is_err();
            if sender.send(part).await.is_err() || over {
                if !over {
                    forget(payload, longest.saturating_sub(came)).await;
                }
                return;
            }
        }
    });
    Ok((ReceiverStream::new(receiver).boxed(), Rest(rest)))
}

/// Reads what nobody wants, as long as it comes and for at most the time that an answer waits for it.
async fn forget(mut payload: Payload, mut left: u64) {
    let forgotten = async {
        while let Some(Ok(part)) = payload.next().await {
            match left.checked_sub(part.len() as u64) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    drop(tokio::time::timeout(TIMEOUT, forgotten).await);
}

fn too_large(longest: usize) -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("the body must be at most {longest} bytes"))
}

/// `application/json` or `application/…+json`, in UTF-8 if it says which.
fn is_json(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let text = text.to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().and_then(|kind| kind.strip_prefix("application/")).unwrap_or_default();
    let json = kind == "json" || kind.strip_suffix("+json").is_some_and(|kind| !kind.is_empty());
    json && parts.all(|part| match part.split_once('=') {
        Some(("charset", charset)) => matches!(charset.trim_matches('"'), "utf-8" | "utf8"),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use actix_web::{FromRequest as _, dev, test::TestRequest};

    use super::*;

    #[test]
    fn json_is_json_in_utf_8() {
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
        let refused = read_patiently(&mut payload, 10, Duration::from_millis(10)).await.expect_err("nothing comes");
        assert_eq!((refused.code(), refused.code().status()), (Code::RequestTimeout, 408));
    }
}
