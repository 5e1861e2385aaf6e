//! The reasons for which the server closes connections, and the signal that carries a reason to open connections.

use std::{future::Future, pin::Pin};

use bytes::Bytes;
use tokio::sync::watch;

use super::wire;

/// The reason for which the server closes a WebSocket. Each has its own close code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The upstream closed regularly, and the session continues.
    Normal,
    /// The session was deleted.
    Deleted,
    /// The idle timeout of the session is reached.
    IdleTimeout,
    /// The browser ended unexpectedly.
    Crashed,
    /// The lease was returned to its pool.
    Released,
    /// The browser was restarted under the same session.
    BrowserRestarted,
    /// The client did not read the sent data.
    SlowReader,
    /// The session ran out of memory.
    Oom,
    /// The browser was closed from inside, by a client or a person.
    BrowserClosed,
    /// The browser no longer responded, and was ended.
    BrowserHung,
    /// The node was drained, and the time that its sessions had was over.
    NodeDrained,
    /// The engine lost the browser: the WebDriver server no longer has its session.
    EngineLost,
    /// The server stops; the session continues.
    Drain,
    /// The client sent a message above the limit.
    MessageTooBig,
    /// The client sent a binary message, which no endpoint accepts.
    UnsupportedData,
    /// The client broke the WebSocket protocol.
    Protocol,
    /// The client violated a rule of the endpoint, for example by not opening its session.
    Policy,
    /// The node of the session, or the server of its remote browser, cannot be reached; the session may continue.
    NodeUnreachable,
    /// The session has as many live views as it may have; the session continues.
    TooManyViewers,
}

impl CloseReason {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 19] = [
        Self::Normal,
        Self::Deleted,
        Self::IdleTimeout,
        Self::Crashed,
        Self::Released,
        Self::BrowserRestarted,
        Self::SlowReader,
        Self::Oom,
        Self::BrowserClosed,
        Self::BrowserHung,
        Self::NodeDrained,
        Self::EngineLost,
        Self::Drain,
        Self::MessageTooBig,
        Self::UnsupportedData,
        Self::Protocol,
        Self::Policy,
        Self::NodeUnreachable,
        Self::TooManyViewers,
    ];

    /// Returns the WebSocket close code and the reason text.
    const fn code_and_text(self) -> (u16, &'static str) {
        match self {
            Self::Normal => (1000, "normal"),
            Self::Deleted => (4000, "deleted"),
            Self::IdleTimeout => (4001, "idle_timeout"),
            Self::Crashed => (4002, "crashed"),
            Self::Released => (4003, "released"),
            Self::BrowserRestarted => (4004, "browser_restarted"),
            Self::SlowReader => (4005, "slow_reader"),
            Self::Oom => (4006, "oom"),
            Self::BrowserClosed => (4007, "browser_closed"),
            Self::BrowserHung => (4008, "browser_hung"),
            Self::NodeDrained => (4010, "node_drained"),
            Self::EngineLost => (4011, "engine_lost"),
            Self::Drain => (1012, "drain"),
            Self::MessageTooBig => (1009, "message_too_big"),
            Self::UnsupportedData => (1003, "unsupported_data"),
            Self::Protocol => (1002, "protocol_error"),
            Self::Policy => (1008, "policy"),
            Self::NodeUnreachable => (4009, "node_unreachable"),
            Self::TooManyViewers => (4012, "too_many_viewers"),
        }
    }

    /// Returns the WebSocket close code.
    #[must_use]
    pub fn code(self) -> u16 {
        self.code_and_text().0
    }

    /// Returns the reason text of the close frame, which is also the label in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.code_and_text().1
    }

    /// Returns the whole close frame, from server to client.
    #[must_use]
    pub fn frame(self) -> Bytes {
        let mut body = self.code().to_be_bytes().to_vec();
        body.extend_from_slice(self.as_str().as_bytes());
        wire::encode(wire::CLOSE, &body, None)
    }
}

/// The sending side of an end signal: one per session, owned by the part that learns of the session's end.
#[derive(Debug)]
pub struct EndSender(watch::Sender<Option<CloseReason>>);

/// The receiving side of an end signal, watched by a connection.
#[derive(Clone, Debug)]
pub struct EndSignal(watch::Receiver<Option<CloseReason>>);

/// Creates a pair. Dropping the sender without a reason ends nothing.
#[must_use]
pub fn end_signal() -> (EndSender, EndSignal) {
    let (sender, receiver) = watch::channel(None);
    (EndSender(sender), EndSignal(receiver))
}

impl EndSender {
    /// Ends every connection that watches, now or later. Only the first reason counts.
    pub fn end(&self, reason: CloseReason) {
        self.0.send_if_modified(|slot| {
            let first = slot.is_none();
            slot.get_or_insert(reason);
            first
        });
    }

    /// Creates a further receiver.
    #[must_use]
    pub fn signal(&self) -> EndSignal {
        EndSignal(self.0.subscribe())
    }
}

impl EndSignal {
    /// Waits for the reason; forever if the sender is dropped without one.
    pub async fn ended(mut self) -> CloseReason {
        let reason = self.0.wait_for(Option::is_some).await.ok().and_then(|slot| *slot);
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn boxed(self) -> Pin<Box<dyn Future<Output = CloseReason>>> {
        Box::pin(self.ended())
    }
}
