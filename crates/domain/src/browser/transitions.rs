//! The transitions of a browser.

use super::{Browser, BrowserState};
use crate::ids::{BrowserId, SessionId};

/// An event of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserEvent {
    /// Its page answered.
    Ready,
    /// A session leases it.
    Lease(SessionId),
    /// The response of the lease did not reach its caller, so the browser was not used.
    GiveBack,
    /// It was released or discarded, ended by itself, or failed to start.
    End,
}

impl BrowserEvent {
    /// The event's name in tables and errors.
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

/// The event is not possible in this state; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("browser {id} is {}, so '{event}' is not possible", state.as_str())]
pub struct BrowserRefused {
    /// The browser.
    pub id: BrowserId,
    /// Its state.
    pub state: BrowserState,
    /// The event.
    pub event: &'static str,
}

impl Browser {
    /// Returns the browser after `event`; `self` is unchanged.
    ///
    /// # Errors
    /// [`BrowserRefused`] if the event is not possible in its state.
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
