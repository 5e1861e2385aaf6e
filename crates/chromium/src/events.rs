//! What happens to browsers without being asked for.

use std::sync::{Mutex, PoisonError};

use casement_domain::ids::BrowserId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Something that happened to a browser. At most one of each browser, and none of one that was ended on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineEvent {
    /// Which browser.
    pub browser: BrowserId,
    /// What happened.
    pub what: What,
}

/// What can happen to a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is of no use any more. Something of it may be left: end it.
    Exited(BrowserExitReason),
}

/// Why a browser is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserExitReason {
    /// Chromium, its display or the agent ended by itself or does not answer.
    Crashed,
    /// Its memory was full.
    Oom,
    /// Chromium was closed from inside: by a client, or by a person.
    Closed,
    /// Chromium did not answer any more.
    Hung,
}

/// Who wants to know. Unbounded, because each browser adds one event at most.
#[derive(Debug, Default)]
pub(crate) struct EventListeners(Mutex<Vec<UnboundedSender<EngineEvent>>>);

impl EventListeners {
    pub(crate) fn subscribe(&self) -> UnboundedReceiver<EngineEvent> {
        let (sender, receiver) = unbounded_channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        receiver
    }

    pub(crate) fn tell(&self, event: EngineEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|listener| listener.send(event).is_ok());
    }
}
