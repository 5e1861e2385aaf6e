//! Events of browsers: ends that were not requested.

use casement_domain::ids::BrowserId;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The unrequested end of a browser; at most one event for each browser. The receiver has to end the browser, because
/// processes and files of it may be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineEvent {
    /// The browser.
    pub browser: BrowserId,
    /// The reason.
    pub reason: BrowserExitReason,
}

/// The reason why a browser is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserExitReason {
    /// Chromium, its display or the agent ended by itself or does not answer.
    Crashed,
    /// The memory limit of the browser was exceeded.
    Oom,
    /// Chromium was closed from inside: by a client, or by a person.
    Closed,
    /// Chromium does not answer any more.
    Hung,
}

impl BrowserExitReason {
    /// Returns the name of the reason in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Crashed => "crashed",
            Self::Oom => "oom",
            Self::Closed => "browser_closed",
            Self::Hung => "browser_hung",
        }
    }
}

/// The subscribers. The channels are unbounded, because each browser adds one event at most.
#[derive(Debug, Default)]
pub(crate) struct EventListeners(Mutex<Vec<UnboundedSender<EngineEvent>>>);

impl EventListeners {
    pub(crate) fn subscribe(&self) -> UnboundedReceiver<EngineEvent> {
        let (sender, receiver) = unbounded_channel();
        self.0.lock().push(sender);
        receiver
    }

    pub(crate) fn notify(&self, event: EngineEvent) {
        self.0.lock().retain(|listener| listener.send(event).is_ok());
    }
}
