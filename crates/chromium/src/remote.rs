//! Remote browsers: sandboxes without a browser, whose agent drives one that runs elsewhere.

use std::os::unix::net::UnixListener;

use casement_domain::browser::{EngineError, EngineFault, Launch, Started};
use casement_domain::ids::BrowserId;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::fault::failed;
use crate::running::{BrowserSlot, Running};

/// A browser that was started elsewhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteBrowser {
    /// What [`RemotePort::serve`] needs to find the browser again, opaque to the engine: at most
    /// [`RemoteBrowser::MAX_RECORD_BYTES`]. Stored in the sandbox's directory, where only the server can read it.
    pub record: String,
    /// The version of the browser, for [`Started::version`]; empty: as the browser itself reports it.
    pub version: String,
}

impl RemoteBrowser {
    /// The maximum length of a record, in bytes.
    pub const MAX_RECORD_BYTES: usize = 64 << 10;
}

impl std::fmt::Debug for RemoteBrowser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The record may contain a secret.
        f.debug_struct("RemoteBrowser").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Connects sandboxes with remote browsers.
///
/// Each connection to a listener begins with the request of a WebSocket handshake (`GET / HTTP/1.1`,
/// `Host: localhost`), which is to be answered by the browser's debugging WebSocket, like `/devtools/browser/<id>` of
/// Chromium. What runs in the sandbox is not trusted: a connection must lead to this browser and to nothing else,
/// whatever path and headers the request names.
pub trait RemotePort: Send + Sync {
    /// Serves the sandbox of `browser` on `listener` until [`RemotePort::close`]. `record` is that of its
    /// [`RemoteBrowser`]. The listener is non-blocking. Starts at once and does not block; called within a runtime.
    fn serve(&self, browser: BrowserId, record: &str, listener: UnixListener);

    /// Stops serving that sandbox and ends its connections. Does nothing if it is not served.
    fn close(&self, browser: BrowserId);
}

impl Engine {
    /// Starts a sandbox without a browser, whose agent drives `remote`. Returns once a page of the remote browser has
    /// evaluated an expression and has the size of the shape. Of the shape, only the viewport and the location count;
    /// the location is not set, and is what [`BrowserEngine::has_location`] compares with.
    ///
    /// [`BrowserEngine::end`] ends the sandbox, and leaves the remote browser running.
    ///
    /// [`BrowserEngine::has_location`]: casement_domain::browser::BrowserEngine::has_location
    /// [`BrowserEngine::end`]: casement_domain::browser::BrowserEngine::end
    ///
    /// # Errors
    /// As [`BrowserEngine::start`](casement_domain::browser::BrowserEngine::start); [`EngineError::Failed`] also if the
    /// record is too long, or the engine has no [`RemotePort`]. A start that fails leaves nothing behind here.
    pub async fn start_remote(&self, launch: &Launch, remote: RemoteBrowser) -> Result<Started, EngineError> {
        if self.0.remote.get().is_none() {
            return Err(failed(EngineFault::AgentError, "this engine cannot reach remote browsers"));
        }
        if remote.record.len() > RemoteBrowser::MAX_RECORD_BYTES {
            return Err(failed(EngineFault::AgentError, "the record of a remote browser is too long"));
        }
        self.start_browser(launch.clone(), Some(remote)).await
    }

    /// Returns the records of the remote browsers that run now, also of adopted ones.
    #[must_use]
    pub fn remote_records(&self) -> Vec<(BrowserId, String)> {
        let slots = self.0.slots();
        let running = slots.iter().filter_map(|(id, slot)| match slot {
            BrowserSlot::Running(running) => Some((*id, running.remote.as_ref()?.record.clone())),
            _ => None,
        });
        running.collect()
    }
}

impl Running {
    /// Fails for a remote browser, with the reason that it `cannot` do something.
    pub(crate) fn ensure_local(&self, cannot: &str) -> Result<(), EngineError> {
        match self.remote {
            None => Ok(()),
            Some(_) => Err(EngineError::OutOfRange(format!("the browser is remote: {cannot}"))),
        }
    }
}
