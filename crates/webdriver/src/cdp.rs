//! Carries CDP connections of a session from a Unix socket to the WebDriver server.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use casement_domain::ids::BrowserId;
use http::header::HOST;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::net::{UnixListener, UnixStream};
use tokio::select;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::dial::{CONNECT_TIMEOUT, Channel, Endpoint, GridStream, dial_debugger};
use crate::engine::WebDriverEngine;
use crate::error::GridError;
use crate::record::{RemoteSession, is_request_path};

/// The maximum number of connections of a session at the same time.
const MAX_CONNECTIONS: usize = 64;
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const BUFFER: usize = 32 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const MAX_VERSION: usize = 16 * 1024;
/// The headers of a WebSocket handshake that pass in both directions.
const HANDSHAKE: [&str; 5] = [
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
    "sec-websocket-accept",
];

/// The head of a request or of a response.
pub(crate) struct Head {
    first: First,
    handshake: Vec<(&'static str, HeaderValue)>,
    is_upgrade: bool,
    /// The bytes after the head.
    pub(crate) rest: BytesMut,
}

enum First {
    Request { is_get_of_root: bool },
    Response { status: u16 },
}

/// The reason why a connection is not carried.
pub(crate) enum Refusal {
    /// It is no request for a WebSocket at `/`.
    Forbidden,
    /// It is no HTTP, or too large or too slow.
    Bad,
    /// The server does not give the WebSocket.
    Server,
    /// The other side is gone.
    Gone,
}

impl Refusal {
    const fn response(&self) -> Option<&'static str> {
        match self {
            Self::Forbidden => Some("403 Forbidden"),
            Self::Bad => Some("400 Bad Request"),
            Self::Server => Some("502 Bad Gateway"),
            Self::Gone => None,
        }
    }
}

impl WebDriverEngine {
    /// Serves the browser's CDP WebSocket to the connections that `listener` accepts: each sends `GET /` with an upgrade
    /// to a WebSocket, which is passed to the server, and receives what the server answers. Nothing else can be
    /// requested. A session has at most 64 connections at the same time; further ones are closed.
    ///
    /// Never returns; dropping the future closes all connections. A connection that breaks is a suspicion, see
    /// [`Self::suspect`].
    pub async fn serve_cdp(&self, listener: UnixListener, session: RemoteSession) {
        let mut connections = JoinSet::new();
        loop {
            select! {
                accepted = listener.accept() => match accepted {
                    Ok(_) if connections.len() >= MAX_CONNECTIONS => {}
                    Ok((stream, _)) => {
                        let engine = self.clone();
                        let session = session.clone();
                        connections.spawn(async move { engine.carry(stream, &session).await });
                    }
                    // For example no file descriptor is free.
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Carries one connection until either side closes it.
    pub(crate) async fn carry(&self, mut stream: UnixStream, session: &RemoteSession) {
        match self.open(&mut stream, session).await {
            Ok(mut grid) => {
                // However it ends, the reason may be the loss of the session.
                copy_bidirectional_with_sizes(&mut stream, &mut grid, BUFFER, BUFFER).await.ok();
                self.suspect(session.browser);
            }
            Err(refusal) => {
                if matches!(refusal, Refusal::Server) {
                    self.suspect(session.browser);
                }
                if let Some(response) = refusal.response() {
                    let response = format!("HTTP/1.1 {response}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                    timeout(HEAD_TIMEOUT, stream.write_all(response.as_bytes())).await.ok();
                }
            }
        }
    }

    /// Passes the handshake of a connection in both directions.
    async fn open(&self, stream: &mut UnixStream, session: &RemoteSession) -> Result<GridStream, Refusal> {
        let head = timeout(HEAD_TIMEOUT, Head::read(stream, parse_request)).await.map_err(|_elapsed| Refusal::Bad)?;
        let request = head?;
        if !request.is_upgrade || !matches!(request.first, First::Request { is_get_of_root: true }) {
            return Err(Refusal::Forbidden);
        }
        let opening = self.open_at_server(&request, session);
        let opened = timeout(self.client.command_timeout() + CONNECT_TIMEOUT, opening).await;
        let (grid, response) = opened.map_err(|_elapsed| Refusal::Server)??;
        let mut text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n".to_owned();
        append(&mut text, response.handshake());
        text.push_str("\r\n");
        let gone = |_| Refusal::Gone;
        stream.write_all(text.as_bytes()).await.map_err(gone)?;
        stream.write_all(&response.rest).await.map_err(gone)?;
        Ok(grid)
    }

    /// Opens the WebSocket at the server with the handshake of `request`. Returns the head of its response too.
    pub(crate) async fn open_at_server(
        &self,
        request: &Head,
        session: &RemoteSession,
    ) -> Result<(GridStream, Head), Refusal> {
        let failed = |error: GridError| {
            tracing::info!(engine = %self.name(), browser = %session.browser, %error, "no CDP connection");
            Refusal::Server
        };
        let broken = |_: io::Error| failed(GridError::away("the connection was lost"));
        let (mut grid, endpoint) = self.connect(session, Channel::Cdp).await.map_err(failed)?;
        grid.write_all(upgrade(&endpoint, request).as_bytes()).await.map_err(broken)?;
        grid.write_all(&request.rest).await.map_err(broken)?;
        let response = Head::read(&mut grid, parse_response).await;
        let response = response.map_err(|_| failed(GridError::nonsense("no HTTP response to a WebSocket")))?;
        match response.first {
            First::Response { status: 101 } if response.is_upgrade => Ok((grid, response)),
            First::Response { status } => Err(failed(GridError::nonsense(format!("{status} to a WebSocket")))),
            First::Request { .. } => Err(Refusal::Server),
        }
    }
}

/// Returns the request for a WebSocket.
fn upgrade(endpoint: &Endpoint, request: &Head) -> String {
    let Endpoint { host, path, headers } = endpoint;
    let mut text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n");
    append(&mut text, headers.iter().map(|(name, value)| (name.as_str(), value)));
    append(&mut text, request.handshake());
    text.push_str("\r\n");
    text
}

fn append<'a>(text: &mut String, headers: impl Iterator<Item = (&'a str, &'a HeaderValue)>) {
    for (name, value) in headers.filter_map(|(name, value)| Some((name, value.to_str().ok()?))) {
        for part in [name, ": ", value, "\r\n"] {
            text.push_str(part);
        }
    }
}

impl Head {
    /// Reads a head of at most 16 KiB.
    async fn read(stream: &mut (impl AsyncRead + Unpin), parse: fn(&[u8]) -> Parsed) -> Result<Self, Refusal> {
        let mut bytes = BytesMut::with_capacity(1024);
        loop {
            let received = stream.read_buf(&mut bytes).await.map_err(|_| Refusal::Gone)?;
            match parse(&bytes).map_err(|_| Refusal::Bad)? {
                Some((mut head, length)) => {
                    head.rest = bytes.split_off(length);
                    return Ok(head);
                }
                None if received == 0 => return Err(Refusal::Gone),
                None if bytes.len() >= MAX_HEAD => return Err(Refusal::Bad),
                None => {}
            }
        }
    }

    fn new(first: First, headers: &[httparse::Header<'_>]) -> Self {
        let value = |name: &str| headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        let is_websocket = |value: &[u8]| value.eq_ignore_ascii_case(b"websocket");
        let is_upgrade = value("upgrade").is_some_and(|header| is_websocket(header.value));
        let handshake = HANDSHAKE.into_iter().filter_map(|name| {
            let value = HeaderValue::from_bytes(value(name)?.value).ok()?;
            Some((name, value))
        });
        Self { first, handshake: handshake.collect(), is_upgrade, rest: BytesMut::new() }
    }

    /// Returns the request for a WebSocket with these headers of the handshake.
    pub(crate) fn websocket(handshake: Vec<(&'static str, HeaderValue)>) -> Self {
        let first = First::Request { is_get_of_root: true };
        Self { first, handshake, is_upgrade: true, rest: BytesMut::new() }
    }

    pub(crate) fn handshake(&self) -> impl Iterator<Item = (&str, &HeaderValue)> {
        self.handshake.iter().map(|(name, value)| (*name, value))
    }
}

/// A head and its length, if it is complete.
type Parsed = Result<Option<(Head, usize)>, httparse::Error>;

fn parse_request(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(bytes)? else { return Ok(None) };
    let is_get_of_root = request.method == Some("GET") && request.path == Some("/");
    Ok(Some((Head::new(First::Request { is_get_of_root }, request.headers), length)))
}

fn parse_response(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
    let status = response.code.unwrap_or_default();
    Ok(Some((Head::new(First::Response { status }, response.headers), length)))
}

/// Asks a browser of this machine for the path of its CDP WebSocket.
pub(crate) async fn browser_path(port: u16, browser: BrowserId) -> Result<String, GridError> {
    let broken = |_: hyper::Error| GridError::away("the browser's port broke the connection off");
    let asking = async {
        let stream = dial_debugger(port, browser).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let request = Request::get("/json/version").header(HOST, format!("localhost:{port}"));
        let request = request.body(Empty::<Bytes>::new()).map_err(|_| GridError::nonsense("the browser's port"))?;
        // The connection ends with its sender.
        let answering = async move {
            let response = sender.send_request(request).await.map_err(broken)?;
            let body = Limited::new(response.into_body(), MAX_VERSION).collect().await;
            Ok::<_, GridError>(body.map_err(|_| GridError::nonsense("the browser's port says too much"))?.to_bytes())
        };
        let (body, _) = tokio::join!(answering, connection);
        body
    };
    let body = timeout(CONNECT_TIMEOUT, asking)
        .await
        .map_err(|_elapsed| GridError::away("the browser's port is silent"))??;
    let address = serde_json::from_slice::<Value>(&body).ok();
    let address = address.as_ref().and_then(|answer| answer.get("webSocketDebuggerUrl")?.as_str());
    let path = address.and_then(|address| Some(Url::parse(address).ok()?.path().to_owned()));
    path.filter(|path| is_request_path(path))
        .ok_or_else(|| GridError::nonsense("the browser's port names no WebSocket"))
}
