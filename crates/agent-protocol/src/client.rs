//! The server's side of the protocol: the agent's operations as calls, every one with a deadline and a bound.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, getpeername, recvmsg, sockopt,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::extension::{RESTART, RestartRequest};
use crate::{
    ARGUMENTS_HEADER, Channel, DEFAULT_HANDOUT_MS, DIAL_OK, ErrorBody, Event, HEARTBEAT_SECONDS, Handout,
    MAX_IMAGE_BYTES, MAX_JSON_BYTES, PROTOCOL_VERSION, READY_WAIT_SECONDS, Region, ScreenshotRequest, Status,
    VERSION_HEADER, Viewport,
};

/// Deadline of what the agent answers from its own memory.
const QUICK: Duration = Duration::from_secs(5);
/// Deadline of what the browser has to work for.
const WORK: Duration = Duration::from_secs(60);
/// Deadline of starting Chromium anew, with its display.
const RESTARTING: Duration = Duration::from_secs(90);
/// What a caller waits longer than the agent promises to take.
const GRACE: Duration = Duration::from_secs(2);
/// Deadline of a dialled connection; the first WebDriver one includes the start of chromedriver.
const DIAL: Duration = Duration::from_secs(15);
/// How long an agent may take none of what is sent to it. One that is stopped takes nothing for ever.
const STALLED: Duration = Duration::from_secs(60);
/// Idle connections kept to one agent.
const MAX_KEPT: usize = 2;
/// Longest line of the event stream.
const MAX_LINE: usize = 64 << 10;
/// Longest word of a refused dial.
const MAX_WORD: u64 = 128;

/// What is sent to an agent: JSON, or bytes as they come.
type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// Why a call to the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens: the sandbox is gone.
    #[error("connecting to the agent: {0}")]
    Connect(#[source] io::Error),
    /// The connection broke off.
    #[error("the connection to the agent broke off: {0}")]
    Broken(#[from] hyper::Error),
    /// No answer in time.
    #[error("the agent did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The answer is longer than it may be.
    #[error("the agent's answer is too long")]
    TooLong,
    /// The answer cannot be read.
    #[error("the agent's answer cannot be read: {0}")]
    Malformed(String),
    /// The agent said no.
    #[error("the agent refused: {}", .0.message)]
    Refused(ErrorBody),
    /// The agent could not connect to what was dialled; the word says why.
    #[error("the agent could not connect: {0}")]
    NotConnected(String),
    /// Something other than a TCP socket came back.
    #[error("the agent handed over something that is not a TCP socket")]
    NotASocket,
}

/// The agent of one session. Keeps connections open between calls and makes them anew when they broke.
///
/// Calls do not wait for each other: one that finds every kept connection in use opens a further one.
#[derive(Debug)]
pub struct AgentClient {
    path: PathBuf,
    kept: Mutex<Vec<SendRequest<Sent>>>,
}

impl AgentClient {
    /// Connects to the `agent` socket at `path`, whose length does not matter.
    ///
    /// # Errors
    /// [`ClientError::Connect`] when nobody listens there, [`ClientError::Timeout`].
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        let path = path.as_ref().to_owned();
        let connection = open(&path).await?;
        Ok(Self { path, kept: Mutex::new(vec![connection]) })
    }

    /// How the agent and its browser are, at once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.ask(Method::GET, "/v1/status", &(), QUICK).await
    }

    /// Waits until the browser is ready or has failed, a minute at most, and answers how it is then.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ready(&self) -> Result<Status, ClientError> {
        let within = Duration::from_secs(READY_WAIT_SECONDS) + GRACE;
        let mut connection = open(&self.path).await?;
        let request = request(Method::GET, "/v1/ready", &())?;
        let answered = timeout(within, async { json(send(&mut connection, request).await?).await });
        answered.await.map_err(|_| ClientError::Timeout(within))?
    }

    /// Proves that the open page answers, and begins to open `start_url`.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `browser_hung` when the page did not answer within `within` (a second when absent).
    pub async fn handout(
        &self,
        start_url: Option<String>,
        idle_end_seconds: Option<u64>,
        within: Option<Duration>,
    ) -> Result<(), ClientError> {
        let timeout_ms = within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let patience = within.unwrap_or(Duration::from_millis(DEFAULT_HANDOUT_MS)) + GRACE;
        let body = Handout { start_url, idle_end_seconds, timeout_ms };
        self.ask::<Nothing>(Method::POST, "/v1/handout", &body, patience).await.map(drop)
    }

    /// A PNG of `region`, or of everything, in exactly that many pixels: as many as `size` has, which tells how much is taken at most.
    ///
    /// # Errors
    /// [`ClientError::TooLong`] for what is no picture of that size;
    /// [`ClientError::Refused`] with `out_of_range` when the region does not lie within the viewport.
    pub async fn screenshot(&self, region: Option<Region>, size: (u32, u32)) -> Result<Bytes, ClientError> {
        let request = request(Method::POST, "/v1/screenshot", &ScreenshotRequest { region })?;
        let most = png_bytes(size).min(MAX_IMAGE_BYTES);
        self.exchange(request, WORK, |response| async move { checked(response, most).await }).await
    }

    /// Brings the live browser to another size.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `out_of_range` when the display cannot grow to it.
    pub async fn viewport(&self, viewport: Viewport) -> Result<(), ClientError> {
        self.ask::<Nothing>(Method::POST, "/v1/viewport", &viewport, WORK).await.map(drop)
    }

    /// Starts Chromium anew, or for the first time where it was held back, and waits until its page answers. See [`RESTART`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn restart(&self, wish: &RestartRequest) -> Result<Status, ClientError> {
        self.ask(Method::POST, RESTART, wish, RESTARTING).await
    }

    /// Asks the browser to close and the agent to end. Answers before that is done: the event stream tells.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn shutdown(&self) -> Result<(), ClientError> {
        self.ask::<Nothing>(Method::POST, "/v1/shutdown", &(), QUICK).await.map(drop)
    }

    /// Listens to what happens, over a connection of its own. While it is open the agent knows that it has a server.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self) -> Result<Events, ClientError> {
        let mut connection = open(&self.path).await?;
        let request = request(Method::GET, "/v1/events", &())?;
        let response =
            timeout(QUICK, send(&mut connection, request)).await.map_err(|_| ClientError::Timeout(QUICK))??;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        Ok(Events { body: response.into_body(), buffer: BytesMut::new(), searched: 0, _connection: connection })
    }

    /// One operation, `/v1/<area>/<operation>`: JSON there and back.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn call<T: DeserializeOwned>(
        &self,
        path: &'static str,
        arguments: &impl Serialize,
        within: Duration,
    ) -> Result<T, ClientError> {
        self.ask(Method::POST, path, arguments, within).await
    }

    /// As [`call`](Self::call), for an operation that answers nothing.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn command(
        &self,
        path: &'static str,
        arguments: &impl Serialize,
        within: Duration,
    ) -> Result<(), ClientError> {
        self.ask::<Nothing>(Method::POST, path, arguments, within).await.map(drop)
    }

    /// An operation that answers bytes as they come, over a connection of its own. The deadline holds for the answer's beginning.
    /// The stream may be silent for as long as the operation is; it ends with an error when the agent breaks off. Dropping it ends the
    /// operation.
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
        let begun = async {
            let mut connection = open(&self.path).await?;
            let response = send(&mut connection, request).await?;
            if response.status() != StatusCode::OK {
                return Err(refusal(response).await);
            }
            let length = response.headers().get(http::header::CONTENT_LENGTH);
            let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
            Ok(Download { length, body: BodyStream::new(response.into_body()), _connection: connection })
        };
        timeout(within, begun).await.map_err(|_| ClientError::Timeout(within))?
    }

    /// An operation that takes bytes as they come, over a connection of its own. The deadline holds from the last byte on: how long
    /// the bytes may take to come is the caller's to say, but an agent that takes none of them for a minute is given up. An error in
    /// `content` breaks the operation off.
    ///
    /// # Errors
    /// See [`ClientError`]. An error of `content` itself shows as [`ClientError::Broken`].
    pub async fn upload<T: DeserializeOwned>(
        &self,
        path: &'static str,
        arguments: &impl Serialize,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        within: Duration,
    ) -> Result<T, ClientError> {
        self.upload_unless_stalled(path, arguments, content, within, STALLED).await
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
        let content = Taken { content: Box::pin(content), untaken: Some(untaken) }.map(|part| part.map(Frame::data));
        let arguments = serde_json::to_vec(arguments).map_err(|e| ClientError::Malformed(e.to_string()))?;
        let request = head(Method::POST, path)
            .header(ARGUMENTS_HEADER, STANDARD.encode(arguments))
            .body(StreamBody::new(content).boxed_unsync())
            .map_err(|e| ClientError::Malformed(e.to_string()))?;
        let mut connection = open(&self.path).await?;
        // The agent may refuse before it has read everything.
        tokio::select! {
            answer = async { json(send(&mut connection, request).await?).await } => answer,
            bound = late(seen, within, stalled) => Err(ClientError::Timeout(bound)),
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &'static str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<T, ClientError> {
        let request = request(method, path, body)?;
        self.exchange(request, within, |response| async { json(response).await }).await
    }

    /// Sends `request` on a kept connection. One that was closed while idle is not used.
    async fn exchange<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        request: Request<Sent>,
        within: Duration,
        read: impl FnOnce(Response<Incoming>) -> F,
    ) -> Result<T, ClientError> {
        let exchange = async {
            let mut connection = match self.idle() {
                Some(connection) => connection,
                None => open(&self.path).await?,
            };
            let answer = read(send(&mut connection, request).await?).await?;
            // Kept only when the exchange is whole: what broke off or timed out halfway is dropped.
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < MAX_KEPT {
                kept.push(connection);
            }
            Ok(answer)
        };
        timeout(within, exchange).await.map_err(|_| ClientError::Timeout(within))?
    }

    fn idle(&self) -> Option<SendRequest<Sent>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|connection| !connection.is_closed());
        kept.pop()
    }
}

/// An answer without content.
#[derive(serde::Deserialize)]
struct Nothing {}

/// The content of an upload, which tells whether the agent still has to take some of it. That is gone with its end.
struct Taken<S> {
    content: Pin<Box<S>>,
    untaken: Option<watch::Sender<bool>>,
}

impl<S: Stream<Item = io::Result<Bytes>>> Stream for Taken<S> {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Whoever asks for more has room for it: the agent took what came before.
        let next = self.content.as_mut().poll_next(context);
        if let Poll::Ready(None) = next {
            self.untaken = None;
        }
        if let Some(untaken) = &self.untaken {
            untaken.send_replace(next.is_ready());
        }
        next
    }
}

/// Returns once an upload has waited for its agent for too long, and for how long that was: `stalled` with a piece that is not taken,
/// `within` after the last one.
async fn late(mut untaken: watch::Receiver<bool>, within: Duration, stalled: Duration) -> Duration {
    loop {
        let waits = *untaken.borrow_and_update();
        let changed = match waits {
            true => timeout(stalled, untaken.changed()).await,
            false => Ok(untaken.changed().await),
        };
        match changed {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                sleep(within).await;
                return within;
            }
            Err(_) => return stalled,
        }
    }
}

/// Bytes that an operation answers.
#[derive(Debug)]
pub struct Download {
    /// How many bytes come, where the agent knows.
    pub length: Option<u64>,
    body: BodyStream<Incoming>,
    _connection: SendRequest<Sent>,
}

impl Stream for Download {
    type Item = Result<Bytes, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.body.poll_next_unpin(context)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            }
        }
    }
}

/// The agent's events, in order.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: BytesMut,
    /// How much of the buffer has no end of a line.
    searched: usize,
    _connection: SendRequest<Sent>,
}

impl Events {
    /// The next event; none when the stream is at its end. Heartbeats are events too.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] when three heartbeats are missing: the agent hangs, is frozen or gone.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        let within = Duration::from_secs(HEARTBEAT_SECONDS * 3);
        timeout(within, self.line()).await.map_err(|_| ClientError::Timeout(within))?
    }

    async fn line(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end);
                self.buffer.advance(1);
                self.searched = 0;
                return serde_json::from_slice(&line).map(Some).map_err(|e| ClientError::Malformed(e.to_string()));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE {
                return Err(ClientError::TooLong);
            }
            let Some(frame) = self.body.frame().await.transpose()? else { return Ok(None) };
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

/// Connects through the sandbox to `channel` by the `dial` socket at `path`. The socket is non-blocking and closed on exec.
///
/// # Errors
/// [`ClientError::NotConnected`] with the agent's word when nothing listens inside, [`ClientError::NotASocket`] when what came
/// back is something else than a TCP socket, [`ClientError::Connect`] when the sandbox is gone, [`ClientError::Timeout`].
pub async fn dial(path: impl AsRef<Path>, channel: Channel) -> Result<TcpStream, ClientError> {
    timeout(DIAL, async {
        let mut stream = connect(path.as_ref()).await.map_err(ClientError::Connect)?;
        stream.write_all(&[channel.byte()]).await.map_err(ClientError::Connect)?;
        let (byte, passed) = receive(&stream).await.map_err(ClientError::Connect)?;
        if byte != DIAL_OK {
            let mut word = Vec::new();
            stream.take(MAX_WORD).read_to_end(&mut word).await.map_err(ClientError::Connect)?;
            return Err(ClientError::NotConnected(String::from_utf8_lossy(&word).into_owned()));
        }
        let socket = tcp_only(passed.ok_or(ClientError::NotASocket)?)?;
        socket.set_nonblocking(true).map_err(ClientError::Connect)?;
        Ok(socket)
    })
    .await
    .map_err(|_| ClientError::Timeout(DIAL))?
}

/// One byte and the descriptor that came with it. Further descriptors are closed.
async fn receive(stream: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0; 1];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let message = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
            if message.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut passed = None;
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                    passed = descriptors.last();
                }
            }
            Ok((byte[0], passed))
        })
        .await
}

/// A sandbox could hand over anything: only a connected TCP socket is taken.
fn tcp_only(passed: OwnedFd) -> Result<TcpStream, ClientError> {
    let domain = sockopt::socket_domain(&passed).map_err(|_| ClientError::NotASocket)?;
    let kind = sockopt::socket_type(&passed).map_err(|_| ClientError::NotASocket)?;
    let inet = domain == AddressFamily::INET || domain == AddressFamily::INET6;
    if !inet || kind != SocketType::STREAM {
        return Err(ClientError::NotASocket);
    }
    // What listened may have ended in between, and a socket that was never connected is no use either.
    getpeername(&passed).map_err(|_| ClientError::NotConnected("closed".to_owned()))?;
    Ok(TcpStream::from(passed))
}

/// A connection whose last word is heard: an agent that refuses an upload does not read the rest of it, and a write that
/// fails for that must not hide the answer that waits to be read. What is written after its end goes nowhere; whether there
/// is an answer, reading tells.
#[derive(Debug)]
struct LastWord(UnixStream);

fn unheard(written: io::Result<usize>, all: usize) -> io::Result<usize> {
    match written {
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(all),
        other => other,
    }
}

impl AsyncRead for LastWord {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for LastWord {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes).map(|written| unheard(written, bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = parts.iter().map(|part| part.len()).sum();
        Pin::new(&mut self.0).poll_write_vectored(context, parts).map(|written| unheard(written, all))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

async fn open(path: &Path) -> Result<SendRequest<Sent>, ClientError> {
    let opened = timeout(QUICK, async {
        let stream = connect(path).await.map_err(ClientError::Connect)?;
        Ok::<_, ClientError>(http1::handshake(TokioIo::new(LastWord(stream))).await?)
    });
    let (sender, connection) = opened.await.map_err(|_| ClientError::Timeout(QUICK))??;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to an agent broke off");
        }
    });
    Ok(sender)
}

/// Connects to a unix socket whose path may be longer than the kernel takes: through a descriptor of its directory.
async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let directory = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    UnixStream::connect(short).await
}

fn head(method: Method, path: &'static str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "agent")
        .header(VERSION_HEADER, PROTOCOL_VERSION)
}

fn request(method: Method, path: &'static str, body: &impl Serialize) -> Result<Request<Sent>, ClientError> {
    let body = if method == Method::GET { Vec::new() } else { serde_json::to_vec(body).unwrap_or_default() };
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    head(method, path).body(body).map_err(|e| ClientError::Malformed(e.to_string()))
}

async fn send(connection: &mut SendRequest<Sent>, request: Request<Sent>) -> Result<Response<Incoming>, ClientError> {
    connection.ready().await?;
    Ok(connection.send_request(request).await?)
}

async fn json<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, ClientError> {
    let bytes = checked(response, MAX_JSON_BYTES).await?;
    serde_json::from_slice(&bytes).map_err(|e| ClientError::Malformed(e.to_string()))
}

/// What a PNG of that size takes at most, whatever it shows.
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
mod tests {
    use futures_util::stream;
    use serde_json::Value;
    use tempfile::TempDir;
    use tokio::net::UnixListener;

    use super::*;

    const BRIEF: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(60);

    async fn agent() -> (TempDir, UnixListener, AgentClient) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("agent");
        let listener = UnixListener::bind(&path).expect("a socket");
        let client = AgentClient::connect(&path).await.expect("somebody listens");
        (directory, listener, client)
    }

    async fn upload(
        client: &AgentClient,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        within: Duration,
        stalled: Duration,
    ) -> Result<Value, ClientError> {
        client.upload_unless_stalled("/v1/fs/write", &(), content, within, stalled).await
    }

    fn piece() -> io::Result<Bytes> {
        Ok(Bytes::from_static(&[0; 4096]))
    }

    #[tokio::test]
    async fn an_agent_that_takes_nothing_of_an_upload_is_not_waited_for_for_ever() {
        let (_directory, _reads_nothing, client) = agent().await;
        let given_up = upload(&client, stream::repeat_with(piece), LONG, BRIEF).await;
        assert!(matches!(given_up, Err(ClientError::Timeout(BRIEF))), "{given_up:?}");
    }

    #[tokio::test]
    async fn an_agent_that_has_everything_has_its_own_time_to_answer() {
        let (_directory, _answers_nothing, client) = agent().await;
        let given_up = upload(&client, stream::iter([piece()]), BRIEF, LONG).await;
        assert!(matches!(given_up, Err(ClientError::Timeout(BRIEF))), "{given_up:?}");
    }

    #[tokio::test]
    async fn content_that_is_slow_to_come_is_not_its_agents_fault() {
        let (_directory, _listener, client) = agent().await;
        let slow = stream::iter([piece()]).chain(stream::pending());
        assert!(timeout(BRIEF * 5, upload(&client, slow, BRIEF, BRIEF)).await.is_err(), "it was given up");
    }

    #[tokio::test]
    async fn no_more_is_taken_of_a_picture_than_one_of_its_size_may_have() {
        let (_directory, listener, client) = agent().await;
        tokio::spawn(async move {
            let (mut caller, _) = listener.accept().await.expect("the client");
            assert_ne!(caller.read(&mut [0; 4096]).await.expect("a request"), 0);
            drop(caller.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await);
            while caller.write_all(&[0; 4096]).await.is_ok() {}
        });
        let taken = client.screenshot(None, (100, 100)).await;
        assert!(matches!(taken, Err(ClientError::TooLong)), "{taken:?}");
    }

    #[tokio::test]
    async fn an_event_that_comes_in_pieces_is_found_and_hides_none_behind_it() {
        let (_directory, listener, client) = agent().await;
        tokio::spawn(async move {
            let (_first, _) = listener.accept().await.expect("the client");
            let (mut caller, _) = listener.accept().await.expect("who listens to events");
            assert_ne!(caller.read(&mut [0; 4096]).await.expect("a request"), 0);
            for part in ["HTTP/1.1 200 OK\r\n\r\n{\"event\":", "\"heart", "beat\"}\n{\"event\":\"heartbeat\"}", "\n"] {
                caller.write_all(part.as_bytes()).await.expect("a listener");
                sleep(Duration::from_millis(20)).await;
            }
        });
        let mut events = client.events().await.expect("events");
        for _ in 0..2 {
            assert!(matches!(events.next().await, Ok(Some(Event::Heartbeat))), "a whole event");
        }
        assert!(matches!(events.next().await, Ok(None)));
    }
}
