//! The port to the connections of browsers: of this program's own in their sandboxes, and of remote ones on a WebDriver
//! server.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use hyper::HeaderMap;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};

use super::CloseReason;

/// The `Host` that Chromium's DevTools endpoint accepts.
pub const CDP_HOST: &str = "127.0.0.1:9222";
/// The `Host` that chromedriver accepts.
pub const WEBDRIVER_HOST: &str = "127.0.0.1:9515";

/// The endpoint of a connection into a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// A browser's DevTools endpoint.
    Cdp,
    /// The WebDriver BiDi endpoint of a remote browser. A browser of this program has none of its own: its BiDi passes
    /// through [`Channel::WebDriver`].
    Bidi,
    /// The HTTP port of classic WebDriver: chromedriver, attached to the same browser, or the WebDriver server of a
    /// remote browser. The first connection starts chromedriver.
    WebDriver,
}

impl Channel {
    /// Returns the close reason if the upstream closes its connection without a close frame and the session reports no
    /// reason. chromedriver does so after every `session.end`; Chromium, when it crashes. If the server of a remote
    /// browser does, nobody knows yet whether the browser still runs.
    pub(crate) fn default_close_reason(self, is_remote: bool) -> CloseReason {
        match self {
            _ if is_remote => CloseReason::NodeUnreachable,
            Self::Cdp => CloseReason::Crashed,
            Self::WebDriver | Self::Bidi => CloseReason::Normal,
        }
    }

    /// Returns the `Host` that a browser of this program accepts.
    pub(crate) fn local_host(self) -> &'static str {
        match self {
            Self::Cdp => CDP_HOST,
            Self::WebDriver | Self::Bidi => WEBDRIVER_HOST,
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Cdp => "cdp",
            Self::WebDriver | Self::Bidi => "webdriver",
        }
    }
}

/// Opens connections to the browser of one session.
#[async_trait]
pub trait BrowserConnector: Send + Sync {
    /// Opens a new connection.
    ///
    /// # Errors
    /// [`ConnectorError`] if the session has ended or does not respond.
    async fn dial(&self, channel: Channel) -> Result<BrowserConnection, ConnectorError>;

    /// Opens a connection for one WebSocket of [`Channel::Cdp`] or [`Channel::Bidi`]. It may be one whose handshake is
    /// done. Default: a new connection.
    ///
    /// # Errors
    /// As [`dial`](Self::dial).
    async fn dial_socket(&self, channel: Channel) -> Result<BrowserConnection, ConnectorError> {
        self.dial(channel).await
    }

    /// Returns the path of the browser-wide DevTools endpoint, such as `/devtools/browser/…`. Not called for a remote
    /// browser, whose path is in the endpoint of its connection.
    ///
    /// # Errors
    /// [`ConnectorError`] if the session has ended or does not respond.
    async fn cdp_path(&self) -> Result<String, ConnectorError>;

    /// Returns the session on the WebDriver server if the browser is a remote one. Default: it is one of this program.
    fn remote_session(&self) -> Option<Arc<RemoteSessionInfo>> {
        None
    }
}

/// The session of a remote browser on its WebDriver server.
#[derive(Clone, PartialEq)]
pub struct RemoteSessionInfo {
    /// The id of the session at the server.
    pub id: String,
    /// The capabilities that the server answered when the session was started. They contain addresses of the server.
    pub capabilities: Map<String, Value>,
    /// The capabilities with which it was started for a client. The server need not answer them.
    pub requested: Map<String, Value>,
}

impl fmt::Debug for RemoteSessionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The capabilities contain addresses that may hold credentials.
        f.debug_struct("RemoteSessionInfo").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A new connection to a browser.
pub struct BrowserConnection {
    /// The open stream.
    pub stream: BrowserStream,
    /// Whether the handshake of the WebSocket is done. Otherwise nothing was sent yet.
    pub is_websocket: bool,
    /// What requests on the stream must say; `None`: the browser is one of this program, or no request follows.
    pub endpoint: Option<RemoteEndpoint>,
}

impl BrowserConnection {
    /// Uses a connection into a sandbox of this program.
    #[must_use]
    pub fn local(stream: std::net::TcpStream) -> Self {
        Self { stream: BrowserStream::Sandbox(stream), is_websocket: false, endpoint: None }
    }

    /// Uses a connection to a WebDriver server.
    #[must_use]
    pub fn remote(stream: impl RemoteStream + 'static, endpoint: RemoteEndpoint) -> Self {
        Self { stream: BrowserStream::Remote(Box::new(stream)), is_websocket: false, endpoint: Some(endpoint) }
    }

    /// Uses a WebSocket to a WebDriver server, without extensions, on which no message has been sent yet.
    #[must_use]
    pub fn remote_websocket(stream: impl RemoteStream + 'static) -> Self {
        Self { stream: BrowserStream::Remote(Box::new(stream)), is_websocket: true, endpoint: None }
    }
}

/// The stream of a connection to a browser.
pub enum BrowserStream {
    /// A TCP connection into a sandbox, which its agent may share.
    Sandbox(std::net::TcpStream),
    /// A connection to a WebDriver server, perhaps with TLS.
    Remote(Box<dyn RemoteStream>),
}

/// A stream to a WebDriver server. It belongs to this program alone and never blocks.
pub trait RemoteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> RemoteStream for T {}

/// What requests to a remote browser must say.
#[derive(Clone)]
pub struct RemoteEndpoint {
    /// The `Host` header.
    pub host: String,
    /// [`Channel::Cdp`] and [`Channel::Bidi`]: the path and query of the WebSocket. [`Channel::WebDriver`]: the path
    /// below which the commands of the protocol are, with or without a slash at its end; empty: the root.
    pub path: String,
    /// Further headers, such as the server's `Authorization`. They are neither logged nor passed to clients. Headers of
    /// the connection or of the handshake among them have no effect.
    pub headers: HeaderMap,
}

impl fmt::Debug for RemoteEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may be credentials, whether they are marked as such or not.
        let names: Vec<&str> = self.headers.keys().map(hyper::header::HeaderName::as_str).collect();
        f.debug_struct("RemoteEndpoint").field("host", &self.host).field("headers", &names).finish_non_exhaustive()
    }
}

/// The headers that the server sets itself in every request to a browser.
const OWN_HEADERS: [&str; 12] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
];

impl RemoteEndpoint {
    /// Returns the further headers that have an effect.
    pub(crate) fn further_headers(
        &self,
    ) -> impl Iterator<Item = (&hyper::header::HeaderName, &hyper::header::HeaderValue)> {
        self.headers.iter().filter(|(name, _)| !OWN_HEADERS.contains(&name.as_str()))
    }
}

/// A connection to the session's browser failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// The session has ended (404).
    #[error("the session has ended")]
    Ended,
    /// The session does not respond now (503; the client may retry).
    #[error("the session does not answer: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
