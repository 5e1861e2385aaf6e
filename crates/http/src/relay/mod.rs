//! WebSocket relays between a client and a session's browser.
//!
//! actix responds to the upgrade with a streaming body that is the whole relay (see
//! `docs/decisions/0003-websocket-relay-in-actix.md`): actix provides the backpressure in both directions, and the
//! relay exists as long as the connection. The connection ends after both close frames (`websocket_end`).

mod backlog;
mod body;
mod byte_counter;
mod client_frames;
mod close;
mod connector;
mod delivery_receipt;
mod delivery_report;
mod exchange;
mod files;
mod handshake;
mod held_close;
mod socket;
mod upstream;
pub(crate) mod wire;

use std::{any::Any, sync::Arc, time::Duration};

use actix_web::{HttpResponse, web};
use bytes::BytesMut;

pub use self::{
    backlog::SendBacklog,
    byte_counter::RelayObserver,
    close::{CloseReason, EndSender, EndSignal, end_signal},
    connector::{
        BrowserConnection, BrowserConnector, BrowserStream, CDP_HOST, Channel, ConnectorError, RemoteEndpoint,
        RemoteSessionInfo, RemoteStream, WEBDRIVER_HOST,
    },
    delivery_receipt::DeliveryReceipt,
    delivery_report::DeliveryReport,
    files::{FilesLocation, SessionFiles},
    handshake::{BadHandshake, ClientHandshake},
    socket::prepare_connection,
    wire::{FrameTracker, TooLong},
};
pub(crate) use self::{
    backlog::Writes,
    body::{Ending, RelayBody, UnreadBytes},
    byte_counter::ByteCounter,
    exchange::exchange,
    files::{FileCommands, directory_of_classic},
    handshake::{Target, upgrade_upstream},
    socket::STALL_TIMEOUT,
    upstream::Upstream,
};

/// The time without a byte for the client after which a WebSocket is kept open by a ping. Common front ends close connections
/// on which nothing flows for 60 or 100 s.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(30);

/// A relay could not be opened; no response was sent to the client yet.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The upstream connection failed (503).
    #[error("the browser's connection failed during the handshake")]
    Io(#[from] std::io::Error),
    /// The upstream refused the handshake (502, or 404 for an unknown WebDriver session).
    #[error("the browser refused the WebSocket with status {status}")]
    Refused {
        /// The HTTP status of the upstream's response.
        status: u16,
    },
    /// The upstream's response is not a handshake (502).
    #[error("the browser's handshake makes no sense")]
    Handshake,
    /// The upstream did not respond in time (503).
    #[error("the browser did not answer the handshake in time")]
    Timeout,
    /// The path is not valid in a request line; an internal error (500).
    #[error("the upstream path is not a path")]
    Path,
}

/// The bounds of a relay.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum size of a message of a client with all its fragments, in bytes. A longer one is closed with code
    /// 1009.
    pub max_client_message_bytes: u64,
    /// The maximum time for which a client may read none of the sent bytes.
    pub stall_timeout: Duration,
    /// The maximum wait for the session's end reason after the upstream has closed its connection.
    pub crash_grace: Duration,
    /// The time without a byte for the client after which it is sent a ping.
    pub ping_interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_client_message_bytes: 100 * 1024 * 1024,
            stall_timeout: STALL_TIMEOUT,
            crash_grace: Duration::from_secs(1),
            ping_interval: PING_INTERVAL,
        }
    }
}

/// One WebSocket between a client and a session.
pub struct Relay {
    /// The endpoint of `upstream`, for metrics and the `Host` header.
    pub channel: Channel,
    /// The WebSocket path at a browser of this program; a remote browser's is in its endpoint.
    pub path: String,
    /// Ends the relay with a reason.
    pub end: EndSignal,
    /// The bounds of the relay.
    pub limits: Limits,
    /// The files of the session, for the commands that name some. Default: commands are not looked at.
    pub files: Option<Arc<dyn SessionFiles>>,
    /// Observes the opening and the end of the relay.
    pub observer: Option<Box<dyn RelayObserver>>,
    /// Dropped when the relay ends; keeps the session from counting as idle.
    pub guard: Box<dyn Any>,
}

impl Relay {
    /// Performs the handshake with the browser, then accepts the client's. After that, bytes are forwarded; payloads are
    /// not parsed, except the commands that name files.
    ///
    /// # Errors
    /// [`RelayError`] if the upstream's handshake fails; no response was sent to the client yet.
    pub async fn open(
        self,
        client: &ClientHandshake,
        payload: web::Payload,
        connection: BrowserConnection,
    ) -> Result<HttpResponse, RelayError> {
        let BrowserConnection { stream, is_websocket, endpoint } = connection;
        let is_remote = matches!(stream, BrowserStream::Remote(_));
        let mut upstream = Upstream::adopt(stream)?;
        let target = Target::of(endpoint.as_ref(), self.channel, &self.path);
        let from_upstream = match is_websocket {
            true => BytesMut::new(),
            false => upgrade_upstream(&mut upstream, &target).await?,
        };
        let default_reason = self.channel.default_close_reason(is_remote);
        let counter = ByteCounter::open(self.channel.label(), client.backlog(), self.observer);
        let ending = Ending { session_end: self.end.boxed(), default_reason };
        let unread = UnreadBytes { from_client: Default::default(), from_upstream };
        let files = self.files.map(|files| FileCommands::new(self.channel, files));
        let body = RelayBody::new(payload, upstream, unread, ending, self.limits, counter, self.guard);
        Ok(client.accept().streaming(body.with(files).of_remote(is_remote)))
    }
}
