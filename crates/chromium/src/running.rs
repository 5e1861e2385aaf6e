//! One browser that runs, and where each browser stands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use casement_agent_protocol::client::AgentClient;
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use casement_sandbox::Sandbox;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::fault::{Condition, failed};

/// The `agent` and the `dial` socket among those of a sandbox.
pub(crate) const AGENT_SOCKET: usize = 0;
pub(crate) const DIAL_SOCKET: usize = 1;

/// A browser that answered. Dropping it ends nothing but our watching.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: BrowserId,
    pub(crate) sandbox: Sandbox,
    pub(crate) agent: AgentClient,
    cdp_path: Mutex<String>,
    restarting: AtomicBool,
    out_of_memory: AtomicBool,
    /// Held while something changes what the browser is started as.
    pub(crate) changing: tokio::sync::Mutex<()>,
    watch: Mutex<Option<AbortHandle>>,
}

impl Running {
    /// # Errors
    /// If the path is none: it comes from inside the sandbox and goes into requests.
    pub(crate) fn new(
        id: BrowserId,
        sandbox: Sandbox,
        agent: AgentClient,
        cdp_path: String,
    ) -> Result<Self, EngineError> {
        let cdp_path = Mutex::new(usable(cdp_path)?);
        let (restarting, out_of_memory, changing, watch) = Default::default();
        Ok(Self { id, sandbox, agent, cdp_path, restarting, out_of_memory, changing, watch })
    }

    /// `/devtools/browser/<uuid>`.
    pub(crate) fn cdp_path(&self) -> String {
        self.cdp_path.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The browser that was started anew answers elsewhere.
    ///
    /// # Errors
    /// If the path is none.
    pub(crate) fn moved(&self, cdp_path: String) -> Result<(), EngineError> {
        *self.cdp_path.lock().unwrap_or_else(PoisonError::into_inner) = usable(cdp_path)?;
        Ok(())
    }

    /// Whether the browser is being started anew, and why nobody gets into it.
    pub(crate) fn there(&self) -> Result<(), EngineError> {
        if self.restarting.load(Ordering::Relaxed) {
            return Err(failed(EngineFault::BrowserHung, "the browser is being started anew"));
        }
        Ok(())
    }

    /// Nobody gets into the browser for as long as the guard lives.
    pub(crate) fn away(&self) -> RestartGuard<'_> {
        self.restarting.store(true, Ordering::Relaxed);
        RestartGuard(self)
    }

    /// Puts the task that watches it in its care.
    pub(crate) fn watched_by(&self, task: AbortHandle) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// From now on nothing is told of it.
    pub(crate) fn unwatch(&self) {
        if let Some(task) = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    /// It ends because its memory was full; its control group, which told it, may soon be gone.
    pub(crate) fn mark_out_of_memory(&self) {
        self.out_of_memory.store(true, Ordering::Relaxed);
    }

    /// How it is, for a call that failed.
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

    /// A failed call, in the domain's words.
    pub(crate) fn failed(&self, error: &casement_agent_protocol::client::ClientError) -> EngineError {
        crate::fault::call(self.id, self.condition(), error)
    }
}

/// See [`Running::away`].
pub(crate) struct RestartGuard<'a>(&'a Running);

impl Drop for RestartGuard<'_> {
    fn drop(&mut self) {
        self.0.restarting.store(false, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.unwatch();
    }
}

fn usable(path: String) -> Result<String, EngineError> {
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

/// The work of ending a browser, for everyone who waits for it. The error is for people.
pub(crate) type Ending = Shared<BoxFuture<'static, Result<(), String>>>;

/// Where a browser stands.
#[derive(Clone)]
pub(crate) enum BrowserSlot {
    /// It is being started.
    Starting(Arc<Starting>),
    /// It runs.
    Running(Arc<Running>),
    /// It is being ended.
    Ending(Ending),
}

/// A start that is under way.
#[derive(Default)]
pub(crate) struct Starting {
    /// Cancelled by whoever does not want the browser any more.
    pub(crate) unwanted: CancellationToken,
    /// Cancelled when the start has come to its end, one way or the other.
    pub(crate) over: CancellationToken,
}

#[cfg(test)]
mod tests {
    use super::is_browser_path;

    #[test]
    fn only_a_path_of_a_browser_goes_into_requests() {
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
