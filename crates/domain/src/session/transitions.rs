//! The state machine of a session.

use time::OffsetDateTime;

use super::{EndReason, Session, SessionState};
use crate::ids::{BrowserId, SessionId};

/// An event of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The browser is ready.
    Ready(BrowserId),
    /// The browser could not be started or did not answer at the hand-out.
    StartFailed,
    /// The session is deleted.
    Delete,
    /// The idle timeout has passed.
    IdleTimeout,
    /// The browser ended by itself.
    Crash,
    /// The browser exceeded its memory limit.
    OutOfMemory,
    /// The browser was closed from inside: by a client, or by a person.
    BrowserClosed,
    /// The browser no longer answers.
    BrowserHung,
    /// The caller releases the session to its pool.
    Release,
    /// The response did not reach the caller.
    Undelivered,
    /// The node was lost.
    NodeLost,
    /// The deadline of the drain of the node is over.
    NodeDrained,
    /// The engine lost the browser.
    EngineLost,
}

impl SessionEvent {
    /// Returns one sample of each event.
    #[must_use]
    pub const fn samples(browser: BrowserId) -> [Self; 13] {
        [
            Self::Ready(browser),
            Self::StartFailed,
            Self::Delete,
            Self::IdleTimeout,
            Self::Crash,
            Self::OutOfMemory,
            Self::BrowserClosed,
            Self::BrowserHung,
            Self::Release,
            Self::Undelivered,
            Self::NodeLost,
            Self::NodeDrained,
            Self::EngineLost,
        ]
    }

    /// Returns the name of the event in tables and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready(_) => "ready",
            Self::StartFailed => "start failed",
            Self::Delete => "delete",
            Self::IdleTimeout => "idle timeout",
            Self::Crash => "crash",
            Self::OutOfMemory => "out of memory",
            Self::BrowserClosed => "browser closed",
            Self::BrowserHung => "browser hung",
            Self::Release => "release",
            Self::Undelivered => "undelivered",
            Self::NodeLost => "node lost",
            Self::NodeDrained => "node drained",
            Self::EngineLost => "engine lost",
        }
    }
}

/// The error of an event that the state does not allow; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("session {id} is {}, so '{event}' is not possible", state.as_str())]
pub struct SessionRefused {
    /// The session.
    pub id: SessionId,
    /// The current state.
    pub state: SessionState,
    /// The name of the event.
    pub event: &'static str,
}

impl Session {
    /// Returns the session after `event` at `now`.
    ///
    /// # Errors
    /// [`SessionRefused`] if the event is not possible in its state.
    pub fn on(&self, event: SessionEvent, now: OffsetDateTime) -> Result<Self, SessionRefused> {
        use SessionEvent as E;
        use SessionState::{Active, Ended, Starting};

        let end = |reason| Session { state: Ended(reason), ended_at: Some(now), ..self.clone() };
        Ok(match (self.state, event) {
            (Starting, E::Ready(browser)) => {
                Session { state: Active, browser: Some(browser), last_active_at: now, ..self.clone() }
            }
            (Starting | Active, E::StartFailed) => end(EndReason::StartFailed),
            (Starting | Active, E::Undelivered) => end(EndReason::Undelivered),
            (Starting | Active, E::NodeLost) => end(EndReason::NodeLost),
            (Active, E::Delete) => end(EndReason::Deleted),
            (Active, E::IdleTimeout) => end(EndReason::IdleTimeout),
            (Active, E::Crash) => end(EndReason::Crashed),
            (Active, E::OutOfMemory) => end(EndReason::Oom),
            (Active, E::BrowserClosed) => end(EndReason::BrowserClosed),
            (Active, E::BrowserHung) => end(EndReason::BrowserHung),
            (Active, E::NodeDrained) => end(EndReason::NodeDrained),
            (Active, E::EngineLost) => end(EndReason::EngineLost),
            (Active, E::Release) if self.pool.is_some() => end(EndReason::Released),
            (
                Starting,
                E::Delete
                | E::IdleTimeout
                | E::Crash
                | E::OutOfMemory
                | E::BrowserClosed
                | E::BrowserHung
                | E::NodeDrained
                | E::EngineLost
                | E::Release,
            )
            | (Active, E::Ready(_) | E::Release)
            | (Ended(_), _) => {
                return Err(SessionRefused { id: self.id, state: self.state, event: event.name() });
            }
        })
    }
}
