//! WebSocket relays between a client and a session's browser.
//!
//! The upgrade is answered by actix itself, with a streaming body that is the whole relay (see
//! `docs/decisions/0003-websocket-relay-in-actix.md`): back-pressure is actix's in both directions, and the relay's life is that of the
//! connection.

mod backlog;
mod body;
mod byte_counter;
mod client_frames;
mod close;
mod delivery_receipt;
mod handshake;
mod hangup;
mod socket;
mod upstream;
pub(crate) mod wire;

use std::{any::Any, time::Duration};

use actix_web::{HttpResponse, web};
use async_trait::async_trait;

pub use self::{
    backlog::SendBacklog,
    byte_counter::RelayObserver,
    close::{CloseReason, EndSender, EndSignal, end_signal},
    delivery_receipt::DeliveryReceipt,
    handshake::{BadHandshake, ClientHandshake},
    hangup::DeliveryReport,
    socket::on_connect,
    wire::{FrameTracker, TooLong},
};
pub(crate) use self::{
    backlog::Writes,
    body::{Ending, RelayBody, UnreadBytes},
    byte_counter::ByteCounter,
    handshake::with_upstream,
    socket::STALL,
    upstream::Upstream,
};

/// The `Host` that Chromium's DevTools endpoint accepts.
pub const CDP_HOST: &str = "127.0.0.1:9222";
/// The `Host` that chromedriver accepts.
pub const WEBDRIVER_HOST: &str = "127.0.0.1:9515";

/// What inside a session a connection goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Chromium's DevTools endpoint.
    Cdp,
    /// chromedriver's HTTP port, attached to the same browser; it is started by the first dial.
    WebDriver,
}

impl Channel {
    /// What it means that the inside just ends its connection while the session says nothing of an end of its own.
    /// chromedriver does so after every `session.end`; Chromium, when it dies.
    pub(crate) fn bare_end(self) -> CloseReason {
        match self {
            Self::Cdp => CloseReason::Crashed,
            Self::WebDriver => CloseReason::Normal,
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Cdp => "cdp",
            Self::WebDriver => "webdriver",
        }
    }
}

/// Opens connections into one session.
#[async_trait]
pub trait BrowserConnector: Send + Sync {
    /// A fresh connection.
    ///
    /// # Errors
    /// [`ConnectorError`] when the session ended or does not answer.
    async fn dial(&self, channel: Channel) -> Result<std::net::TcpStream, ConnectorError>;

    /// The path of the browser-wide DevTools endpoint, such as `/devtools/browser/…`.
    ///
    /// # Errors
    /// [`ConnectorError`] when the session ended or does not answer.
    async fn cdp_path(&self) -> Result<String, ConnectorError>;
}

/// No connection into the session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// The session is over (404).
    #[error("the session has ended")]
    Ended,
    /// It does not answer now (503, worth a retry).
    #[error("the session does not answer: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A relay that did not come about; nothing was answered to the client yet.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The upstream connection failed (503).
    #[error("the browser's connection failed during the handshake")]
    Io(#[from] std::io::Error),
    /// The upstream refused the handshake (502, or 404 for a WebDriver session that is not there).
    #[error("the browser refused the WebSocket with status {status}")]
    Refused {
        /// Its HTTP status.
        status: u16,
    },
    /// The upstream answered something that is no handshake (502).
    #[error("the browser's handshake makes no sense")]
    Answer,
    /// The upstream took too long (503).
    #[error("the browser did not answer the handshake in time")]
    Timeout,
    /// The path cannot stand in a request line; a mistake of ours (500).
    #[error("the upstream path is not a path")]
    Path,
}

/// What bounds a relay.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest message of a client, over all its fragments, in bytes; above it, 1009.
    pub client_message: u64,
    /// How long a client may leave sent bytes lying without taking any of them.
    pub stall: Duration,
    /// How long a connection that the inside ended waits for the session's own reason.
    pub crash_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { client_message: 100 * 1024 * 1024, stall: STALL, crash_grace: Duration::from_secs(1) }
    }
}

/// One WebSocket between a client and a session.
pub struct Relay {
    /// Where `upstream` leads, for metrics and for the `Host`.
    pub channel: Channel,
    /// The upstream's WebSocket path.
    pub path: String,
    /// Ends the relay with a reason.
    pub end: EndSignal,
    /// What bounds it.
    pub limits: Limits,
    /// Is told when the relay opens and ends.
    pub observer: Option<Box<dyn RelayObserver>>,
    /// Dropped when the relay is over, whatever ended it: keeps the session from counting as idle.
    pub guard: Box<dyn Any>,
}

impl Relay {
    /// Makes our handshake with `upstream`, then answers the client's. From then on bytes pass; payloads are never
    /// looked at.
    ///
    /// # Errors
    /// [`RelayError`] when the upstream's handshake fails; the client has no answer yet.
    pub async fn open(
        self,
        client: &ClientHandshake,
        payload: web::Payload,
        upstream: std::net::TcpStream,
    ) -> Result<HttpResponse, RelayError> {
        let mut upstream = Upstream::adopt(upstream)?;
        let host = match self.channel {
            Channel::Cdp => CDP_HOST,
            Channel::WebDriver => WEBDRIVER_HOST,
        };
        let from_upstream = with_upstream(&mut upstream, host, &self.path).await?;
        let meter = ByteCounter::open(self.channel.label(), client.backlog(), self.observer);
        let ending = Ending { told: self.end.boxed(), bare: self.channel.bare_end() };
        let leftovers = UnreadBytes { from_client: Default::default(), from_upstream };
        let body = RelayBody::new(payload, upstream, leftovers, ending, self.limits, meter, self.guard);
        Ok(client.accept().streaming(body))
    }
}
