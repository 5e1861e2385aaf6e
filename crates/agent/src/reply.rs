//! Reads the requests of the agent's operations and makes their responses.

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

/// The body of a response. An error closes the connection, by which the caller notices it.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The response of an operation.
pub(crate) type Answer = Result<Response<Body>, Refusal>;

/// The error response of an operation.
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

    /// Creates the refusal of a path that is no operation.
    pub(crate) fn no_operation(path: &str) -> Self {
        Self::new(ErrorCode::NotFound, format_args!("no such operation: {path}"))
    }

    /// Creates the refusal for a failed request to another server.
    pub(crate) fn upstream(fault: Upstream, message: impl ToString) -> Self {
        Self { upstream: Some(fault), ..Self::new(ErrorCode::Upstream, message) }
    }

    /// Sets the invalid field of the request.
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

/// Creates a JSON response.
fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // All types of the protocol serialize.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    with_type("application/json", status, Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync())
}

/// Creates the response with a value.
pub(crate) fn ok(value: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

/// Creates the response without a value.
pub(crate) fn empty() -> Response<Body> {
    json(StatusCode::OK, &serde_json::json!({}))
}

/// Creates a response of bytes.
pub(crate) fn bytes(media_type: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    with_type(media_type, StatusCode::OK, Full::new(content.into()).map_err(|never| match never {}).boxed_unsync())
}

/// Creates a streamed response.
pub(crate) fn stream(
    media_type: &'static str,
    content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response<Body> {
    with_type(media_type, StatusCode::OK, StreamBody::new(content.map(|part| part.map(Frame::data))).boxed_unsync())
}

/// Serializes a value as one line of JSON.
pub(crate) fn line(value: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

fn with_type(media_type: &'static str, status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Reads the JSON of a request. An empty body is an empty object.
pub(crate) async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, Refusal> {
    read_within(body, MAX_JSON_BYTES).await
}

/// Like [`read`], with another limit.
pub(crate) async fn read_within<T: DeserializeOwned>(body: Incoming, max_bytes: usize) -> Result<T, Refusal> {
    let bytes = Limited::new(body, max_bytes).collect().await.map_err(|error| {
        let too_large = error.downcast_ref::<LengthLimitError>().is_some();
        Refusal::new(if too_large { ErrorCode::TooLarge } else { ErrorCode::BadRequest }, error)
    })?;
    parse(&bytes.to_bytes())
}

/// Reads the arguments of a request whose body is a stream of bytes.
pub(crate) fn arguments<T: DeserializeOwned>(head: &Parts) -> Result<T, Refusal> {
    let encoded = head.headers.get(ARGUMENTS_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
    parse(&STANDARD.decode(encoded).map_err(|error| Refusal::new(ErrorCode::BadRequest, error))?)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|error| Refusal::new(ErrorCode::BadRequest, error))
}
