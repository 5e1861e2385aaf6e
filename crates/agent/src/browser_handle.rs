//! Access to the running browser for the parts that control it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::browser::Browser;
use crate::cdp::Endpoint;
use crate::display::Display;
use crate::process::tree::is_stopped;
use crate::reply::Refusal;
use crate::status::StatusPublisher;
use casement_agent_protocol::{ErrorCode, State, Viewport};

/// The running browser and its display, if it has one.
#[derive(Debug)]
pub(crate) struct RunningBrowser {
    pub(crate) browser: Arc<Browser>,
    pub(crate) display: Option<Arc<Display>>,
    /// The process id of Chromium's main process.
    pub(crate) pid: Option<u32>,
}

/// A shared reference to the running browser, which a restart replaces. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct BrowserHandle {
    running: Arc<Mutex<Option<Arc<RunningBrowser>>>>,
    status: StatusPublisher,
    debugging_port: u16,
    /// The socket of a remote browser.
    remote: Option<Arc<Path>>,
}

impl BrowserHandle {
    pub(crate) fn new(status: StatusPublisher, debugging_port: u16, remote: Option<PathBuf>) -> Self {
        Self { running: Arc::default(), status, debugging_port, remote: remote.map(Arc::from) }
    }

    /// Returns the status of the browser.
    pub(crate) fn status(&self) -> &StatusPublisher {
        &self.status
    }

    /// Returns the current viewport.
    pub(crate) fn viewport(&self) -> Viewport {
        self.status.viewport()
    }

    /// Returns the endpoint of the browser's debugging protocol.
    pub(crate) fn endpoint(&self) -> Endpoint {
        match &self.remote {
            Some(socket) => Endpoint::Remote(Arc::clone(socket)),
            None => Endpoint::Local { port: self.debugging_port, path: self.status.current().browser_ws_path },
        }
    }

    /// Returns the URL of the browser's debugging protocol for programs in the sandbox. That of a remote browser is
    /// served by a forwarder.
    pub(crate) fn debugging_url(&self) -> String {
        format!("ws://127.0.0.1:{}{}", self.debugging_port, self.endpoint().path())
    }

    /// Returns true for a remote browser.
    pub(crate) const fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Returns the browser if it is ready.
    pub(crate) fn ready(&self) -> Option<Arc<RunningBrowser>> {
        matches!(self.status.state(), State::Ready).then(|| self.running())?
    }

    /// Returns the browser if it is ready and its process is not stopped.
    ///
    /// # Errors
    /// [`ErrorCode::NotReady`]; [`ErrorCode::RemoteAway`] if the server of a remote browser cannot be reached;
    /// [`ErrorCode::BrowserHung`] if its process is stopped.
    pub(crate) fn usable(&self) -> Result<Arc<RunningBrowser>, Refusal> {
        let running = self.ready().ok_or_else(|| self.unready())?;
        if running.pid.is_some_and(is_stopped) {
            let message = "the browser's process is suspended and cannot answer";
            return Err(Refusal::new(ErrorCode::BrowserHung, message));
        }
        Ok(running)
    }

    fn unready(&self) -> Refusal {
        if self.is_remote() && self.status.state() == State::Starting {
            return Refusal::new(ErrorCode::RemoteAway, "the server of the remote browser cannot be reached");
        }
        Refusal::new(ErrorCode::NotReady, "the browser is not ready")
    }

    /// Returns the browser that was started last, unless it is being replaced.
    pub(crate) fn running(&self) -> Option<Arc<RunningBrowser>> {
        self.running.lock().clone()
    }

    /// Replaces the browser; `None` while there is none.
    pub(crate) fn replace(&self, running: Option<RunningBrowser>) {
        *self.running.lock() = running.map(Arc::new);
    }
}
