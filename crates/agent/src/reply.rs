//! What the agent's operations share: how a request is read and an answer is made.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use serde::Serialize;
use serde::de::DeserializeOwned;

use casement_agent_protocol::curl::Upstream;
use casement_agent_protocol::{ARGUMENTS_HEADER, ErrorBody, ErrorCode, MAX_JSON_BYTES};

/// A body; an error breaks the connection off, which is how the caller learns of it.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What every operation answers.
pub(crate) type Answer = Result<Response<Body>, Refusal>;

/// An operation was not done.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: ErrorCode,
    message: String,
    field: Option<String>,
    upstream: Option<Upstream>,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), field: None, upstream: None }
    }

    /// What the session asked of the web failed.
    pub(crate) fn upstream(fault: Upstream, message: impl ToString) -> Self {
        Self { upstream: Some(fault), ..Self::new(ErrorCode::Upstream, message) }
    }

    /// The request's field that is at fault.
    #[must_use]
    pub(crate) fn of_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let Self { code, message, field, upstream } = self;
        json(code.status(), &ErrorBody { code, message, field, upstream })
    }
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // Our own types always have a JSON form.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    with_type("application/json", status, Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync())
}

/// Done, and a value.
pub(crate) fn ok(value: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

/// Done, and nothing to say.
pub(crate) fn empty() -> Response<Body> {
    json(StatusCode::OK, &serde_json::json!({}))
}

/// Bytes at once.
pub(crate) fn bytes(media_type: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    with_type(media_type, StatusCode::OK, Full::new(content.into()).map_err(|never| match never {}).boxed_unsync())
}

/// Bytes as they come.
pub(crate) fn stream(
    media_type: &'static str,
    content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response<Body> {
    with_type(media_type, StatusCode::OK, StreamBody::new(content.map(|part| part.map(Frame::data))).boxed_unsync())
}

fn with_type(media_type: &'static str, status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The JSON of a request. An empty body stands for an empty object.
pub(crate) async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, Refusal> {
    read_within(body, MAX_JSON_BYTES).await
}

/// As [`read`], for operations that take more.
pub(crate) async fn read_within<T: DeserializeOwned>(body: Incoming, longest: usize) -> Result<T, Refusal> {
    let bytes = Limited::new(body, longest).collect().await.map_err(|error| {
        let too_large = error.downcast_ref::<LengthLimitError>().is_some();
        Refusal::new(if too_large { ErrorCode::TooLarge } else { ErrorCode::BadRequest }, error)
    })?;
    parse(&bytes.to_bytes())
}

/// The arguments of a request whose body is a stream of bytes.
pub(crate) fn arguments<T: DeserializeOwned>(head: &Parts) -> Result<T, Refusal> {
    let encoded = head.headers.get(ARGUMENTS_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
    parse(&STANDARD.decode(encoded).map_err(|error| Refusal::new(ErrorCode::BadRequest, error))?)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|error| Refusal::new(ErrorCode::BadRequest, error))
}
