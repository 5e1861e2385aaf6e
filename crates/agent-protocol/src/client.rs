//! The client of the agent: every operation as a call with a timeout and a size limit.

mod body;
mod dial;
mod stream;
mod upload;

use std::io::{self};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{Instrument as _, Span};

pub use self::body::{Download, Events};
pub use self::dial::dial;
use self::stream::{AgentStream, connect};
use self::upload::{STALL_TIMEOUT, TrackedContent, upload_timed_out};
use crate::extension::{RESTART, RestartRequest};
use crate::{
    ARGUMENTS_HEADER, Channel, DEFAULT_HANDOUT_MS, ErrorBody, Handout, MAX_IMAGE_BYTES, MAX_JSON_BYTES,
    PROTOCOL_VERSION, READY_WAIT_SECONDS, Region, ScreenshotRequest, Status, VERSION_HEADER, Viewport,
};

/// The timeout of requests that the agent answers from memory.
const QUICK_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of requests that need the browser.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of restarting Chromium, with its display.
const RESTART_TIMEOUT: Duration = Duration::from_secs(90);
/// Added to the agent's own timeout for the transport of its response.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);
/// The maximum number of idle connections to one agent.
const MAX_IDLE_CONNECTIONS: usize = 2;

/// Returns the span of a call, for traces.
fn call_span(path: &str) -> Span {
    tracing::debug_span!("agent", otel.name = format!("agent {path}"), otel.kind = "client")
}

/// The body of a request: JSON, or a stream of bytes.
type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// A call to the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens, because the sandbox has ended.
    #[error("connecting to the agent: {0}")]
    Connect(#[source] io::Error),
    /// The connection broke.
    #[error("the connection to the agent was lost: {0}")]
    Broken(#[from] hyper::Error),
    /// The agent did not answer in time.
    #[error("the agent did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The answer exceeds its size limit.
    #[error("the agent's answer is too long")]
    TooLong,
    /// The answer does not parse.
    #[error("the agent's answer cannot be read: {0}")]
    Malformed(String),
    /// The agent refused the request.
    #[error("the agent refused: {}", .0.message)]
    Refused(ErrorBody),
    /// The agent could not connect to the dialled channel; the message says why.
    #[error("the agent could not connect: {0}")]
    NotConnected(String),
    /// The agent passed something other than a TCP socket.
    #[error("the agent handed over something that is not a TCP socket")]
    NotASocket,
}

/// The client of one session's agent. Reuses open connections between calls and replaces broken ones.
///
/// Calls do not wait for each other: if no connection is idle, a call opens another one.
#[derive(Debug)]
pub struct AgentClient {
    path: PathBuf,
    idle: Mutex<Vec<SendRequest<RequestBody>>>,
}

impl AgentClient {
    /// Connects to the `agent` socket at `path`, which may be of any length.
    ///
    /// # Errors
    /// [`ClientError::Connect`] if no process listens there, [`ClientError::Timeout`].
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        let path = path.as_ref().to_owned();
        let connection = open(&path).await?;
        Ok(Self { path, idle: Mutex::new(vec![connection]) })
    }

    /// Returns the current status of the agent and its browser without waiting.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.request_timeout(Method::GET, "/v1/status", &(), QUICK_TIMEOUT).await
    }

    /// Waits at most a minute until the browser is ready or has failed, and returns the status.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ready(&self) -> Result<Status, ClientError> {
        let within = Duration::from_secs(READY_WAIT_SECONDS) + RESPONSE_GRACE;
        let mut connection = open(&self.path).await?;
        let request = request(Method::GET, "/v1/ready", &())?;
        let answered = timeout(within, async { json(send(&mut connection, request).await?).await });
        answered.await.map_err(|_| ClientError::Timeout(within))?
    }

    /// Checks that the open page answers, and starts loading `start_url`.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `browser_hung` if the page did not answer within `within` (a second when absent).
    pub async fn handout(
        &self,
        start_url: Option<String>,
        idle_end_seconds: Option<u64>,
        within: Option<Duration>,
    ) -> Result<(), ClientError> {
        let timeout_ms = within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let timeout = within.unwrap_or(Duration::from_millis(DEFAULT_HANDOUT_MS)) + RESPONSE_GRACE;
        let body = Handout { start_url, idle_end_seconds, timeout_ms };
        self.request_timeout::<Nothing>(Method::POST, "/v1/handout", &body, timeout).await.map(drop)
    }

    /// Returns a PNG of `region`, or of everything. `size` is its width and height in pixels; it bounds the response.
    ///
    /// # Errors
    /// [`ClientError::TooLong`] if the response is longer than a PNG of that size can be; [`ClientError::Refused`] with
    /// `out_of_range` if the region does not lie within the viewport.
    pub async fn screenshot(&self, region: Option<Region>, size: (u32, u32)) -> Result<Bytes, ClientError> {
        let request = request(Method::POST, "/v1/screenshot", &ScreenshotRequest { region })?;
        let max = png_bytes(size).min(MAX_IMAGE_BYTES);
        self.exchange(request, BROWSER_TIMEOUT, |response| async move { checked(response, max).await }).await
    }

    /// Resizes the running browser.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `out_of_range` if the display cannot grow to the size.
    pub async fn viewport(&self, viewport: Viewport) -> Result<(), ClientError> {
        self.request_timeout::<Nothing>(Method::POST, "/v1/viewport", &viewport, BROWSER_TIMEOUT).await.map(drop)
    }

    /// Restarts Chromium, or starts it if it was held back, and waits until its page answers. See [`RESTART`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn restart(&self, request: &RestartRequest) -> Result<Status, ClientError> {
        self.request_timeout(Method::POST, RESTART, request, RESTART_TIMEOUT).await
    }

    /// Requests the end of the browser and the agent. Returns before they have ended; the event stream reports the end.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn shutdown(&self) -> Result<(), ClientError> {
        self.request_timeout::<Nothing>(Method::POST, "/v1/shutdown", &(), QUICK_TIMEOUT).await.map(drop)
    }

    /// Subscribes to events over a connection of its own. While it is open, the agent's idle timeout does not run.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self) -> Result<Events, ClientError> {
        let mut connection = open(&self.path).await?;
        let request = request(Method::GET, "/v1/events", &())?;
        let response = timeout(QUICK_TIMEOUT, send(&mut connection, request))
            .await
            .map_err(|_| ClientError::Timeout(QUICK_TIMEOUT))??;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        Ok(Events::new(response.into_body(), connection))
    }

    /// Calls an operation, `/v1/<area>/<operation>`, with a JSON request and response.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn call<T: DeserializeOwned>(
        &self,
        path: &'static str,
        arguments: &impl Serialize,
        within: Duration,
    ) -> Result<T, ClientError> {
        self.request_timeout(Method::POST, path, arguments, within).await
    }

    /// Like [`call`](Self::call), for an operation with an empty response.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn command(
        &self,
        path: &'static str,
        arguments: &impl Serialize,
        within: Duration,
    ) -> Result<(), ClientError> {
        self.request_timeout::<Nothing>(Method::POST, path, arguments, within).await.map(drop)
    }

    /// Calls an operation with a streamed response, over a connection of its own. The timeout applies to the beginning
    /// of the response. The stream may pause as long as the operation does; it ends with an error if the agent
    /// disconnects. Dropping it ends the operation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn download(
        &self,
        path: &'static str,
        arguments: &impl Serialize,
        within: Duration,
    ) -> Result<Download, ClientError> {
        let request = request(Method::POST, path, arguments)?;
        let span = call_span(path);
        let begun = async {
            let mut connection = open(&self.path).await?;
            let response = send(&mut connection, request).await?;
            if response.status() != StatusCode::OK {
                return Err(refusal(response).await);
            }
            let length = response.headers().get(http::header::CONTENT_LENGTH);
            let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
            Ok(Download::new(length, response.into_body(), connection))
        };
        timeout(within, begun.instrument(span)).await.map_err(|_| ClientError::Timeout(within))?
    }

    /// Calls an operation with a streamed request, over a connection of its own. The timeout starts with the last byte:
    /// the caller decides how long the bytes take, but the call fails if the agent accepts none of them for a minute.
    /// An error in `content` cancels the operation.
    ///
    /// # Errors
    /// See [`ClientError`]. An error of `content` itself becomes [`ClientError::Broken`].
    pub async fn upload<T: DeserializeOwned>(
        &self,
        path: &'static str,
        arguments: &impl Serialize,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        within: Duration,
    ) -> Result<T, ClientError> {
        self.upload_unless_stalled(path, arguments, content, within, STALL_TIMEOUT).await
    }

    async fn upload_unless_stalled<T: DeserializeOwned>(
        &self,
        path: &'static str,
        arguments: &impl Serialize,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        within: Duration,
        stalled: Duration,
    ) -> Result<T, ClientError> {
        let (untaken, seen) = watch::channel(false);
        let content =
            TrackedContent { content: Box::pin(content), untaken: Some(untaken) }.map(|part| part.map(Frame::data));
        let arguments = serde_json::to_vec(arguments).map_err(|e| ClientError::Malformed(e.to_string()))?;
        let request = head(Method::POST, path)
            .header(ARGUMENTS_HEADER, STANDARD.encode(arguments))
            .body(StreamBody::new(content).boxed_unsync())
            .map_err(|e| ClientError::Malformed(e.to_string()))?;
        let mut connection = open(&self.path).await?;
        // The agent may refuse before it has read everything.
        tokio::select! {
            answer = async { json(send(&mut connection, request).await?).await } => answer,
            bound = upload_timed_out(seen, within, stalled) => Err(ClientError::Timeout(bound)),
        }
    }

    async fn request_timeout<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &'static str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<T, ClientError> {
        let request = request(method, path, body)?;
        self.exchange(request, within, |response| async { json(response).await }).await
    }

    /// Sends `request` on an idle connection that is still open, or else on a new one.
    async fn exchange<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        request: Request<RequestBody>,
        within: Duration,
        read: impl FnOnce(Response<Incoming>) -> F,
    ) -> Result<T, ClientError> {
        let span = call_span(request.uri().path());
        let exchange = async {
            let mut connection = match self.idle() {
                Some(connection) => connection,
                None => open(&self.path).await?,
            };
            let answer = read(send(&mut connection, request).await?).await?;
            // Reused only after a complete exchange.
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE_CONNECTIONS {
                idle.push(connection);
            }
            Ok(answer)
        };
        timeout(within, exchange.instrument(span)).await.map_err(|_| ClientError::Timeout(within))?
    }

    fn idle(&self) -> Option<SendRequest<RequestBody>> {
        let mut idle = self.idle.lock();
        idle.retain(|connection| !connection.is_closed());
        idle.pop()
    }
}

/// An empty response.
#[derive(serde::Deserialize)]
struct Nothing {}

async fn open(path: &Path) -> Result<SendRequest<RequestBody>, ClientError> {
    let opened = timeout(QUICK_TIMEOUT, async {
        let stream = connect(path).await.map_err(ClientError::Connect)?;
        Ok::<_, ClientError>(http1::handshake(TokioIo::new(AgentStream(stream))).await?)
    });
    let (sender, connection) = opened.await.map_err(|_| ClientError::Timeout(QUICK_TIMEOUT))??;
    drive(connection);
    Ok(sender)
}

/// Drives a connection in the background until it ends.
fn drive(connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to an agent or a browser broke");
        }
    });
}

/// Reads a JSON document of the HTTP server behind `channel`, through the `dial` socket at `dial_path`. `host` is the value of
/// the header, and `max_bytes` the maximum size of the document.
///
/// # Errors
/// As [`dial`]; [`ClientError::Malformed`] if the response is not 200 with JSON; [`ClientError::TooLong`].
pub async fn read_json<T: DeserializeOwned>(
    dial_path: impl AsRef<Path>,
    channel: Channel,
    (host, path): (&str, &str),
    max_bytes: usize,
) -> Result<T, ClientError> {
    let stream = dial(dial_path, channel).await?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(ClientError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    drive(connection);
    let request = Request::get(path).header(http::header::HOST, host).body(Full::new(Bytes::new()));
    let response = sender.send_request(request.map_err(|e| ClientError::Malformed(e.to_string()))?).await?;
    if response.status() != StatusCode::OK {
        return Err(ClientError::Malformed(format!("the status is {}", response.status())));
    }
    let body = bounded(response, max_bytes).await?;
    serde_json::from_slice(&body).map_err(|e| ClientError::Malformed(e.to_string()))
}

fn head(method: Method, path: &'static str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "agent")
        .header(VERSION_HEADER, PROTOCOL_VERSION)
}

fn request(method: Method, path: &'static str, body: &impl Serialize) -> Result<Request<RequestBody>, ClientError> {
    let body = if method == Method::GET { Vec::new() } else { serde_json::to_vec(body).unwrap_or_default() };
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    head(method, path).body(body).map_err(|e| ClientError::Malformed(e.to_string()))
}

async fn send(
    connection: &mut SendRequest<RequestBody>,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, ClientError> {
    connection.ready().await?;
    Ok(connection.send_request(request).await?)
}

async fn json<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, ClientError> {
    let bytes = checked(response, MAX_JSON_BYTES).await?;
    serde_json::from_slice(&bytes).map_err(|e| ClientError::Malformed(e.to_string()))
}

/// Returns the length in bytes of the longest possible PNG of that size.
fn png_bytes((width, height): (u32, u32)) -> usize {
    let (width, height) = (width as usize, height as usize);
    let raw = (4 * width + 1) * height;
    raw + raw / 64 + 64 * 1024
}

async fn checked(response: Response<Incoming>, limit: usize) -> Result<Bytes, ClientError> {
    if response.status() == StatusCode::OK { bounded(response, limit).await } else { Err(refusal(response).await) }
}

async fn refusal(response: Response<Incoming>) -> ClientError {
    match bounded(response, MAX_JSON_BYTES).await {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map_or_else(|e| ClientError::Malformed(e.to_string()), ClientError::Refused)
        }
        Err(error) => error,
    }
}

async fn bounded(response: Response<Incoming>, limit: usize) -> Result<Bytes, ClientError> {
    let collected = Limited::new(response.into_body(), limit).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => ClientError::Broken(*error),
        Err(other) if other.is::<LengthLimitError>() => ClientError::TooLong,
        Err(other) => ClientError::Malformed(other.to_string()),
    })
}

#[cfg(test)]
mod tests;
