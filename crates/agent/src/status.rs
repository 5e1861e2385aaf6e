//! The status of the browser, for the server and for every part of the agent that depends on it.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::watch;

use casement_agent_protocol::{AgentConfig, PROTOCOL_VERSION, Stage, State, Status, Viewport};

/// Publishes the status to all subscribers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct StatusPublisher(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    status: watch::Sender<Status>,
    /// The reason of the end, for people. Set before the state that reports the end.
    detail: Mutex<String>,
    started_at: Instant,
}

impl StatusPublisher {
    pub(crate) fn new(config: &AgentConfig, started_at: Instant) -> Self {
        let status = watch::Sender::new(Status {
            version: PROTOCOL_VERSION,
            nonce: config.nonce.clone(),
            state: State::Starting,
            browser_ws_path: String::new(),
            browser_version: String::new(),
            user_agent: String::new(),
            chromium_argv: Vec::new(),
            viewport: config.viewport,
            location: Some(config.location.clone()),
            stages: Vec::new(),
        });
        Self(Arc::new(Inner { status, detail: Mutex::default(), started_at }))
    }

    /// Subscribes to the status.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Status> {
        self.0.status.subscribe()
    }

    /// Returns the current status.
    pub(crate) fn current(&self) -> Status {
        self.0.status.borrow().clone()
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> State {
        self.0.status.borrow().state.clone()
    }

    /// Returns the current viewport.
    pub(crate) fn viewport(&self) -> Viewport {
        self.0.status.borrow().viewport
    }

    /// Adds the stage `name` of the start, which is complete now.
    pub(crate) fn add_stage(&self, name: &str) {
        let ms = self.0.started_at.elapsed().as_secs_f64() * 1000.0;
        self.update(|status| status.stages.push(Stage { name: name.to_owned(), ms }));
    }

    /// Changes the status and notifies all subscribers.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        self.0.status.send_modify(change);
    }

    /// Publishes the final state, with its reason for people.
    pub(crate) fn end(&self, state: State, detail: String) {
        *self.0.detail.lock() = detail;
        self.update(|status| status.state = state);
    }

    /// Returns the reason of the end, for people.
    pub(crate) fn detail(&self) -> String {
        self.0.detail.lock().clone()
    }
}
