//! The transitions of a browser.

use super::{Browser, BrowserState};
use crate::ids::{BrowserId, SessionId};

/// An event of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserEvent {
    /// The page of the browser answered.
    Ready,
    /// A session leases the browser.
    Lease(SessionId),
    /// The response of the lease did not reach its caller, and the browser was not used.
    GiveBack,
    /// The browser was released or discarded, ended by itself, or failed to start.
    End,
}

impl BrowserEvent {
    /// Returns the name of the event in tables and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Lease(_) => "lease",
            Self::GiveBack => "give back",
            Self::End => "end",
        }
    }
}

/// The error of an event that is not possible in the current state; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("browser {id} is {}, so '{event}' is not possible", state.as_str())]
pub struct BrowserRefused {
    /// The browser.
    pub id: BrowserId,
    /// The state of the browser.
    pub state: BrowserState,
    /// The name of the event.
    pub event: &'static str,
}

impl Browser {
    /// Returns the browser after `event`; `self` is unchanged.
    ///
    /// # Errors
    /// [`BrowserRefused`] if the event is not possible in the current state.
    pub fn on(&self, event: BrowserEvent) -> Result<Self, BrowserRefused> {
        use BrowserEvent::{End, GiveBack, Lease, Ready};
        use BrowserState::{Ending, Idle, Leased, Warming};

        let (state, session) = match (self.state, event) {
            (Warming, Ready) | (Leased, GiveBack) => (Idle, None),
            (Idle, Lease(session)) => (Leased, Some(session)),
            (Warming | Idle | Leased, End) => (Ending, self.session),
            (Warming, Lease(_) | GiveBack) | (Idle, Ready | GiveBack) | (Leased, Ready | Lease(_)) | (Ending, _) => {
                return Err(BrowserRefused { id: self.id, state: self.state, event: event.name() });
            }
        };
        Ok(Self { state, session, ..self.clone() })
    }
}
