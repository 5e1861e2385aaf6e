//! A running browser, and the state of each browser.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use casement_agent_protocol::client::AgentClient;
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use casement_sandbox::Sandbox;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::fault::{Condition, failed};
use crate::remote::RemoteBrowser;

/// The indexes of the `agent` and the `dial` socket in a sandbox.
pub(crate) const AGENT_SOCKET: usize = 0;
pub(crate) const DIAL_SOCKET: usize = 1;

/// A browser that answered. Dropping it stops the watch and leaves the browser running.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: BrowserId,
    pub(crate) sandbox: Sandbox,
    pub(crate) agent: AgentClient,
    /// The memory limit in bytes, without files.
    pub(crate) memory_bytes: u64,
    /// The remote browser; `None` if the browser runs in the sandbox.
    pub(crate) remote: Option<RemoteBrowser>,
    cdp_path: Mutex<String>,
    restarting: AtomicBool,
    out_of_memory: AtomicBool,
    /// Locked while the configuration for the next start of Chromium changes.
    pub(crate) changing: tokio::sync::Mutex<()>,
    watch: Mutex<Option<AbortHandle>>,
}

impl Running {
    /// # Errors
    /// If the path is invalid: it comes from the sandbox and goes into requests. A remote browser has none.
    pub(crate) fn new(
        id: BrowserId,
        sandbox: Sandbox,
        agent: AgentClient,
        cdp_path: String,
        memory_bytes: u64,
        remote: Option<RemoteBrowser>,
    ) -> Result<Self, EngineError> {
        let cdp_path = Mutex::new(if remote.is_some() { String::new() } else { checked_path(cdp_path)? });
        let (restarting, out_of_memory, changing, watch) = Default::default();
        Ok(Self { id, sandbox, agent, memory_bytes, remote, cdp_path, restarting, out_of_memory, changing, watch })
    }

    /// Returns `/devtools/browser/<uuid>`; empty for a remote browser.
    pub(crate) fn cdp_path(&self) -> String {
        self.cdp_path.lock().clone()
    }

    /// Stores the path of the restarted browser.
    ///
    /// # Errors
    /// If the path is invalid.
    pub(crate) fn set_cdp_path(&self, cdp_path: String) -> Result<(), EngineError> {
        *self.cdp_path.lock() = checked_path(cdp_path)?;
        Ok(())
    }

    /// Fails while the browser restarts.
    pub(crate) fn ensure_not_restarting(&self) -> Result<(), EngineError> {
        if self.restarting.load(Ordering::Relaxed) {
            return Err(failed(EngineFault::BrowserHung, "the browser is being restarted"));
        }
        Ok(())
    }

    /// Refuses access to the browser until the guard is dropped.
    pub(crate) fn begin_restart(&self) -> RestartGuard<'_> {
        self.restarting.store(true, Ordering::Relaxed);
        RestartGuard(self)
    }

    /// Stores the task that watches the browser.
    pub(crate) fn set_watch_task(&self, task: AbortHandle) {
        *self.watch.lock() = Some(task);
    }

    /// Stops sending events of the browser.
    pub(crate) fn stop_watching(&self) {
        if let Some(task) = self.watch.lock().take() {
            task.abort();
        }
    }

    /// Stores that the memory was full, because the cgroup that reported it may soon be removed.
    pub(crate) fn mark_out_of_memory(&self) {
        self.out_of_memory.store(true, Ordering::Relaxed);
    }

    /// Returns the condition of the sandbox, after a failed call.
    pub(crate) fn condition(&self) -> Condition {
        if self.sandbox.oom_killed() {
            self.mark_out_of_memory();
        }
        match self.out_of_memory.load(Ordering::Relaxed) {
            true => Condition::OutOfMemory,
            false if self.sandbox.is_alive() => Condition::Alive,
            false => Condition::Gone,
        }
    }

    /// Converts a failed call to the domain's error.
    pub(crate) fn failed(&self, error: &casement_agent_protocol::client::ClientError) -> EngineError {
        crate::fault::call(self.id, self.condition(), error)
    }
}

/// See [`Running::begin_restart`].
pub(crate) struct RestartGuard<'a>(&'a Running);

impl Drop for RestartGuard<'_> {
    fn drop(&mut self) {
        self.0.restarting.store(false, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop_watching();
    }
}

fn checked_path(path: String) -> Result<String, EngineError> {
    if is_browser_path(&path) {
        return Ok(path);
    }
    Err(failed(EngineFault::AgentError, "the agent gave no usable path of the browser"))
}

fn is_browser_path(path: &str) -> bool {
    let uuid = path.strip_prefix("/devtools/browser/");
    uuid.is_some_and(|uuid| {
        (1..=64).contains(&uuid.len()) && uuid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    })
}

/// The task that ends a browser, shared by all callers that wait for it. The error is for people.
pub(crate) type Ending = Shared<BoxFuture<'static, Result<(), String>>>;

/// The state of a browser.
#[derive(Clone)]
pub(crate) enum BrowserSlot {
    Starting(Arc<Starting>),
    Running(Arc<Running>),
    Ending(Ending),
}

/// A start in progress.
#[derive(Default)]
pub(crate) struct Starting {
    /// Cancelled when the end of the browser is requested.
    pub(crate) cancelled: CancellationToken,
    /// Cancelled when the start has finished, successfully or not.
    pub(crate) has_finished: CancellationToken,
}

#[cfg(test)]
mod tests {
    use super::is_browser_path;

    #[test]
    fn only_valid_browser_paths_are_accepted() {
        assert!(is_browser_path("/devtools/browser/0a1b-2C"));
        for bad in [
            "",
            "/devtools/browser/",
            "/devtools/page/0a",
            "/devtools/browser/a HTTP/1.1\r\nX: y",
            "/devtools/browser/../x",
        ] {
            assert!(!is_browser_path(bad), "{bad:?}");
        }
    }
}
