//! Classic WebDriver: a reverse proxy to chromedriver that lets sessions of the running browser through and nothing
//! else of chromedriver's own.

use actix_web::{
    HttpResponse,
    http::{Method, StatusCode, header},
};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http_body_util::{BodyDataStream, BodyExt as _, Full, Limited};
use hyper::{Request, Response, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use url::Url;

use super::{
    capabilities::{self, BadCapabilities, Bidi},
    public_url::{self, WebDriverSessionId},
};
use crate::relay::{Upstream, WEBDRIVER_HOST};

/// The longest request body, in bytes: a file to upload may be in it.
pub const MAX_BODY: usize = 8 * 1024 * 1024;
/// The longest body of a request for a new session, and of its answer, in bytes.
const MAX_NEW_SESSION: usize = 1024 * 1024;

/// One command of a client that is allowed to reach chromedriver.
#[derive(Debug)]
pub struct ClassicRequest {
    method: Method,
    path: String,
    kind: CommandKind,
    body: Bytes,
}

/// What a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// chromedriver itself.
    Status,
    /// A session that is to be made.
    NewSession,
    /// Something in this session.
    Within(WebDriverSessionId),
    /// The end of this session.
    End(WebDriverSessionId),
}

/// chromedriver's answer.
#[derive(Debug)]
pub struct ClassicAnswer {
    /// As the client gets it.
    pub response: HttpResponse,
    /// The session that was made.
    pub made: Option<WebDriverSessionId>,
}

/// A command that did not come through.
#[derive(Debug, thiserror::Error)]
pub enum ClassicError {
    /// chromedriver knows no such command, or it is not for callers (404 `unknown command`).
    #[error("there is no such WebDriver command")]
    UnknownCommand,
    /// WebDriver has no such method (405 `unknown method`).
    #[error("WebDriver knows GET, POST and DELETE")]
    Method,
    /// The body of a new session is too long or no JSON (400 `invalid argument`).
    #[error("the body of a new session is not JSON of at most 1 MiB")]
    Body,
    /// The capabilities have not the shape of capabilities (400 `invalid argument`).
    #[error(transparent)]
    Capabilities(#[from] BadCapabilities),
    /// The connection to chromedriver failed (503).
    #[error("chromedriver's connection failed")]
    Io(#[from] std::io::Error),
    /// chromedriver's answer broke off or is no HTTP (502).
    #[error("chromedriver's answer makes no sense")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ClassicRequest {
    /// Checks a command. `tail` is the path after `…/wd/`, still percent-encoded; `body` at most [`MAX_BODY`] long.
    ///
    /// # Errors
    /// [`ClassicError`] when it is no command for callers, or a new session that cannot be bound.
    pub fn check(method: &Method, tail: &str, body: Bytes) -> Result<Self, ClassicError> {
        if ![Method::GET, Method::POST, Method::DELETE].contains(method) {
            return Err(ClassicError::Method);
        }
        let segments: Vec<&str> = tail.split('/').collect();
        let kind = match segments.as_slice() {
            ["status"] if method == Method::GET => CommandKind::Status,
            ["session"] if method == Method::POST => CommandKind::NewSession,
            ["session", id, command @ ..] if command.iter().all(|segment| harmless(segment)) => {
                let id = WebDriverSessionId::parse(id).map_err(|_| ClassicError::UnknownCommand)?;
                let ends = command.is_empty() && method == Method::DELETE;
                if ends { CommandKind::End(id) } else { CommandKind::Within(id) }
            }
            // Everything else is chromedriver's own: `shutdown`, other clients' `sessions`.
            _ => return Err(ClassicError::UnknownCommand),
        };
        let body = if kind == CommandKind::NewSession { bound(&body)? } else { body };
        Ok(Self { method: method.clone(), path: format!("/{tail}"), kind, body })
    }

    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> &CommandKind {
        &self.kind
    }
}

/// A path segment that means the same to everybody who may take the path apart.
fn harmless(segment: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%".contains(&byte);
    let lower = segment.to_ascii_lowercase();
    !segment.is_empty()
        && segment.bytes().all(plain)
        && !lower.replace("%2e", ".").bytes().all(|byte| byte == b'.')
        && !["%2f", "%5c", "%00", "%25"].iter().any(|hidden| lower.contains(hidden))
}

fn bound(body: &[u8]) -> Result<Bytes, ClassicError> {
    if body.len() > MAX_NEW_SESSION {
        return Err(ClassicError::Body);
    }
    let parameters: Value = serde_json::from_slice(body).map_err(|_| ClassicError::Body)?;
    Ok(capabilities::bind(&parameters, Bidi::AsAsked)?.to_string().into())
}

/// Sends `request` over `upstream`, a fresh connection to chromedriver, and answers as it does. `webdriver_url` is the
/// public `…/webdriver?jwt=…` address; it takes the place of chromedriver's own in the answer to a new session.
///
/// # Errors
/// [`ClassicError`] when chromedriver cannot be reached or its answer breaks off before the body.
pub async fn forward(
    request: ClassicRequest,
    upstream: std::net::TcpStream,
    webdriver_url: &Url,
) -> Result<ClassicAnswer, ClassicError> {
    let new_session = request.kind == CommandKind::NewSession;
    let answer = send(request, Upstream::adopt(upstream)?).await?;
    let status = StatusCode::from_u16(answer.status().as_u16()).map_err(broken)?;
    if status.is_informational() {
        // It would not end our own answer: what follows it would be taken for another one.
        return Err(ClassicError::Answer(format!("status {status} is no final answer").into()));
    }
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CONTENT_TYPE, "application/json; charset=utf-8"));
    response.insert_header((header::CACHE_CONTROL, "no-cache"));
    if !new_session {
        let stream = BodyDataStream::new(answer.into_body());
        let response = response.streaming(stream.map_err(|error| std::io::Error::other(error.to_string())));
        return Ok(ClassicAnswer { response, made: None });
    }
    let body = Limited::new(answer.into_body(), MAX_NEW_SESSION).collect().await.map_err(ClassicError::Answer)?;
    let mut value: Value = serde_json::from_slice(&body.to_bytes()).map_err(broken)?;
    let mut made = None;
    if let Some(result) = value.get_mut("value") {
        public_url::rewrite(result, webdriver_url);
        made = result.get("sessionId").and_then(Value::as_str).and_then(|id| WebDriverSessionId::parse(id).ok());
    }
    let made = made.filter(|_| status.is_success());
    Ok(ClassicAnswer { response: response.body(value.to_string()), made })
}

async fn send(request: ClassicRequest, upstream: Upstream) -> Result<Response<Incoming>, ClassicError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(upstream)).await.map_err(broken)?;
    // Ends with the sender and the answer's body, so also when the caller hangs up.
    actix_web::rt::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to chromedriver broke");
        }
    });
    // Nothing of the client's head is passed on: no token, no origin, no host of the outside.
    let request = Request::builder()
        .method(request.method.as_str())
        .uri(request.path)
        .header("host", WEBDRIVER_HOST)
        .header("content-type", "application/json; charset=utf-8")
        .header("connection", "close")
        .body(Full::new(request.body))
        .map_err(broken)?;
    sender.send_request(request).await.map_err(broken)
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> ClassicError {
    ClassicError::Answer(Box::new(error))
}
