//! Classic WebDriver: a reverse proxy to chromedriver that forwards commands for sessions of the running browser and
//! blocks chromedriver's own endpoints.

use actix_web::{
    HttpResponse,
    http::{Method, StatusCode, header},
};
use bytes::Bytes;
use casement_domain::{engine::EngineName, untrusted_json};
use futures_util::TryStreamExt as _;
use http_body_util::{BodyDataStream, BodyExt as _, Full, Limited};
use hyper::{Request, Response, body::Incoming};
use serde_json::Value;
use url::Url;

use super::{
    capabilities::{self, BadCapabilities, Bidi},
    public_url::{self, WebDriverSessionId},
};
use crate::relay::{BrowserConnection, ConnectorError, Upstream, WEBDRIVER_HOST, exchange};

/// The maximum size of a request body, in bytes; it may contain a file to upload.
pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// The maximum size of the body of a request for a new session, and of its response, in bytes.
pub(crate) const MAX_NEW_SESSION_BYTES: usize = 1024 * 1024;

pub(super) const CONTENT_TYPE: &str = "application/json; charset=utf-8";

/// A checked command of a client, which is forwarded to chromedriver.
#[derive(Debug)]
pub struct ClassicRequest {
    method: Method,
    path: String,
    kind: CommandKind,
    body: Bytes,
}

/// The target of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// The status of chromedriver.
    Status,
    /// Creates a session.
    NewSession,
    /// A command within this session.
    Within(WebDriverSessionId),
    /// Ends this session.
    End(WebDriverSessionId),
}

impl CommandKind {
    /// Returns the target of a command. `tail` is the path after `…/wd/`, percent-encoded.
    ///
    /// # Errors
    /// [`ClassicError`] if callers may not use the command.
    pub fn of(method: &Method, tail: &str) -> Result<Self, ClassicError> {
        if ![Method::GET, Method::POST, Method::DELETE].contains(method) {
            return Err(ClassicError::Method);
        }
        let segments: Vec<&str> = tail.split('/').collect();
        Ok(match segments.as_slice() {
            ["status"] if method == Method::GET => CommandKind::Status,
            ["session"] if method == Method::POST => CommandKind::NewSession,
            ["session", id, command @ ..] if command.iter().all(|segment| is_unambiguous(segment)) => {
                let id = WebDriverSessionId::parse(id).map_err(|_| ClassicError::UnknownCommand)?;
                let ends = command.is_empty() && method == Method::DELETE;
                if ends { CommandKind::End(id) } else { CommandKind::Within(id) }
            }
            // All other commands control chromedriver itself, such as `shutdown`, or concern other clients, such as
            // `sessions`.
            _ => return Err(ClassicError::UnknownCommand),
        })
    }
}

/// chromedriver's response.
#[derive(Debug)]
pub struct ClassicResponse {
    /// The response for the client.
    pub response: HttpResponse,
    /// The id of the created session, if any.
    pub created: Option<WebDriverSessionId>,
}

/// A command was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum ClassicError {
    /// The command does not exist, or callers may not use it (404 `unknown command`).
    #[error("there is no such WebDriver command")]
    UnknownCommand,
    /// The method does not exist in WebDriver (405 `unknown method`).
    #[error("WebDriver knows GET, POST and DELETE")]
    Method,
    /// The body of a new session is too long, has too many values or is not JSON (400 `invalid argument`).
    #[error("the body of a new session is not JSON of at most 1 MiB and 50000 values")]
    Body,
    /// The capabilities are malformed (400 `invalid argument`).
    #[error(transparent)]
    Capabilities(#[from] BadCapabilities),
    /// The session of the command does not exist (404 `invalid session id`).
    #[error("there is no such WebDriver session")]
    UnknownSession,
    /// The capabilities are not those of the remote browser (400 `session not created`).
    #[error("the engine {engine} does not support new capabilities of a running browser: {why}")]
    NotSupported {
        /// The engine of the browser.
        engine: EngineName,
        /// The capability, and what the browser has instead.
        why: String,
    },
    /// The browser cannot be reached (404 or 503).
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    /// The connection to chromedriver, or to the server of a remote browser, failed (503).
    #[error("the connection to the WebDriver server failed")]
    Io(#[from] std::io::Error),
    /// The server of a remote browser did not begin to answer in time (504).
    #[error("the WebDriver server did not answer in time")]
    Timeout,
    /// The server of a remote browser answered with a redirect, refused the credentials of this program, or sent something
    /// that is not JSON (502).
    #[error("the WebDriver server answered with status {status}, which is not one of the protocol")]
    Refused {
        /// The status of the answer.
        status: u16,
    },
    /// The response of chromedriver, or of the server of a remote browser, is truncated or malformed (502).
    #[error("the answer of the WebDriver server makes no sense")]
    Response(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ClassicRequest {
    /// Checks a command. `tail` is the path after `…/wd/`, percent-encoded; `body` has at most [`MAX_BODY_BYTES`].
    ///
    /// # Errors
    /// [`ClassicError`] if callers may not use the command, or a new session cannot be bound.
    pub fn check(method: &Method, tail: &str, body: Bytes) -> Result<Self, ClassicError> {
        let kind = CommandKind::of(method, tail)?;
        let body = if kind == CommandKind::NewSession { bind_body(&body)? } else { body };
        Ok(Self { method: method.clone(), path: format!("/{tail}"), kind, body })
    }

    /// Returns the target of the command.
    #[must_use]
    pub fn kind(&self) -> &CommandKind {
        &self.kind
    }
}

/// Returns whether every parser reads a path segment the same way.
fn is_unambiguous(segment: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%".contains(&byte);
    let lower = segment.to_ascii_lowercase();
    !segment.is_empty()
        && segment.bytes().all(plain)
        && !lower.replace("%2e", ".").bytes().all(|byte| byte == b'.')
        && !["%2f", "%5c", "%00", "%25"].iter().any(|hidden| lower.contains(hidden))
}

fn bind_body(body: &[u8]) -> Result<Bytes, ClassicError> {
    if body.len() > MAX_NEW_SESSION_BYTES {
        return Err(ClassicError::Body);
    }
    let parameters: Value = untrusted_json::parse(body).map_err(|_| ClassicError::Body)?;
    Ok(capabilities::bind(&parameters, Bidi::AsRequested)?.to_string().into())
}

/// Forwards `request` over `upstream`, a new connection to chromedriver. `webdriver_url` is the public
/// `…/webdriver?jwt=…` URL, which replaces chromedriver's own in the response to a new session.
///
/// # Errors
/// [`ClassicError`] if chromedriver cannot be reached or its response fails before the body.
pub async fn forward(
    request: ClassicRequest,
    upstream: BrowserConnection,
    webdriver_url: &Url,
) -> Result<ClassicResponse, ClassicError> {
    let new_session = request.kind == CommandKind::NewSession;
    let upstream_response = send(request, Upstream::adopt(upstream.stream)?).await?;
    let status = StatusCode::from_u16(upstream_response.status().as_u16()).map_err(response_error)?;
    if status.is_informational() {
        // An informational status does not end a response: the client would read the body as the next one.
        return Err(ClassicError::Response(format!("status {status} is no final answer").into()));
    }
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CONTENT_TYPE, CONTENT_TYPE));
    response.insert_header((header::CACHE_CONTROL, "no-cache"));
    if !new_session {
        let stream = BodyDataStream::new(upstream_response.into_body());
        let response = response.streaming(stream.map_err(|error| std::io::Error::other(error.to_string())));
        return Ok(ClassicResponse { response, created: None });
    }
    let body = Limited::new(upstream_response.into_body(), MAX_NEW_SESSION_BYTES)
        .collect()
        .await
        .map_err(ClassicError::Response)?;
    let mut value: Value = untrusted_json::parse(&body.to_bytes()).map_err(response_error)?;
    let mut created = None;
    if let Some(result) = value.get_mut("value") {
        public_url::rewrite(result, webdriver_url);
        created = result.get("sessionId").and_then(Value::as_str).and_then(|id| WebDriverSessionId::parse(id).ok());
    }
    let created = created.filter(|_| status.is_success());
    Ok(ClassicResponse { response: response.body(value.to_string()), created })
}

async fn send(request: ClassicRequest, upstream: Upstream) -> Result<Response<Incoming>, ClassicError> {
    // No header of the client is forwarded: no token, no origin and no public host.
    let request = Request::builder()
        .method(request.method.as_str())
        .uri(request.path)
        .header("host", WEBDRIVER_HOST)
        .header("content-type", CONTENT_TYPE)
        .header("connection", "close")
        .body(Full::new(request.body))
        .map_err(response_error)?;
    exchange(upstream, request).await.map_err(response_error)
}

fn response_error(error: impl std::error::Error + Send + Sync + 'static) -> ClassicError {
    ClassicError::Response(Box::new(error))
}
