//! Starts the processes that run code of callers, connected to the browser.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{sleep, timeout};

use super::process::{MessageKind, Process, RunnerConfig, RunnerMessage, SNAPSHOT};
use crate::browser_handle::{BrowserHandle, RunningBrowser};
use crate::reply::Refusal;
use crate::telemetry::{Phase, Telemetry};
use casement_agent_protocol::ErrorCode;

/// The timeout for a process to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(40);
/// A process that is not ready after this time may be blocked by a page that hangs.
const STUCK_PAGE_TIMEOUT: Duration = Duration::from_secs(3);

/// What all processes of a session's callers share.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) browser: BrowserHandle,
    telemetry: Arc<Telemetry>,
    config: RunnerConfig,
    /// True if the snapshot was made for another machine, so that processes start without it.
    is_snapshot_unusable: AtomicBool,
    /// The targets of the tabs of named executors. Code that has no tab of its own uses another page if there is one.
    pub(super) executor_tabs: Mutex<BTreeSet<String>>,
}

impl Runner {
    pub(crate) fn new(browser: BrowserHandle, telemetry: Arc<Telemetry>, config: RunnerConfig) -> Self {
        let (is_snapshot_unusable, executor_tabs) = Default::default();
        Self { browser, telemetry, config, is_snapshot_unusable, executor_tabs }
    }

    /// Returns the folder of the script runner.
    ///
    /// # Errors
    /// [`ErrorCode::NotSupported`] if it is not installed.
    pub(super) fn folder(&self) -> Result<&Path, Refusal> {
        self.config.folder.as_deref().ok_or_else(|| {
            let message = "this installation has no script runner: `cargo xtask up` installs one, and `casement serve --script-runner` \
                           says where it is";
            Refusal::new(ErrorCode::NotSupported, message)
        })
    }

    /// Returns the browser for a new process.
    ///
    /// # Errors
    /// As [`BrowserHandle::usable`]; [`ErrorCode::InvalidState`] while a page has a dialog.
    pub(super) fn usable_browser(&self) -> Result<Arc<RunningBrowser>, Refusal> {
        let running = self.browser.usable()?;
        // Playwright cannot use a page with a dialog that it did not see open.
        match self.open_dialog() {
            Some(refusal) => Err(refusal),
            None => Ok(running),
        }
    }

    /// Returns the refusal of code while a page has a dialog; `None` if no page has one.
    fn open_dialog(&self) -> Option<Refusal> {
        let running = self.browser.ready()?;
        running.browser.open_dialogs().first().map(|dialog| Refusal::new(ErrorCode::InvalidState, dialog))
    }

    /// Returns the refusal of code beside a dialog that opened a moment before.
    pub(super) fn blocked(&self) -> Refusal {
        let answered =
            || Refusal::new(ErrorCode::InvalidState, "a dialog was open and is answered now: repeat the call");
        self.open_dialog().unwrap_or_else(answered)
    }

    /// Starts a process and waits until it is ready. It connects to the browser while `connected` is locked.
    pub(super) async fn start_process(&self, connected: &AsyncMutex<()>) -> Result<Process, Refusal> {
        let folder = self.folder()?;
        self.start_in(folder, connected).await.map_err(|error| {
            tracing::warn!(error, "the script runner did not start");
            Refusal::new(ErrorCode::Failed, format_args!("the script runner did not start: {error}"))
        })
    }

    async fn start_in(&self, folder: &Path, connected: &AsyncMutex<()>) -> Result<Process, String> {
        if !self.is_snapshot_unusable.load(Ordering::Relaxed) && folder.join(SNAPSHOT).is_file() {
            match self.try_start(folder, true, connected).await {
                Err(StartError::Ended(output)) => {
                    tracing::warn!(output, "the script runner does not start from its snapshot");
                    self.is_snapshot_unusable.store(true, Ordering::Relaxed);
                }
                started => return started.map_err(|error| error.to_string()),
            }
        }
        self.try_start(folder, false, connected).await.map_err(|error| error.to_string())
    }

    async fn try_start(
        &self,
        folder: &Path,
        from_snapshot: bool,
        connected: &AsyncMutex<()>,
    ) -> Result<Process, StartError> {
        let mut process = Process::start(&self.config, folder, from_snapshot)?;
        let _connected = connected.lock().await;
        let ready = async {
            process.send(&json!({ "is": "connect", "endpoint": self.endpoint() })).await?;
            process.receive().await
        };
        let free_stuck_page = async {
            sleep(STUCK_PAGE_TIMEOUT).await;
            self.free_stuck_page().await;
            std::future::pending::<()>().await;
        };
        let ready = async {
            tokio::select! {
                ready = ready => ready,
                () = free_stuck_page => unreachable!("it waits for ever"),
            }
        };
        match timeout(START_TIMEOUT, ready).await {
            Ok(Ok(Some(RunnerMessage { is: MessageKind::Ready, .. }))) => Ok(process),
            Ok(_) => {
                let (_, output) = process.take_output();
                Err(StartError::Ended(output.trim().chars().take(500).collect()))
            }
            Err(_) => Err(StartError::TimedOut),
        }
    }

    /// Returns the URL of the browser's debugging protocol.
    pub(super) fn endpoint(&self) -> String {
        self.browser.debugging_url()
    }

    /// Returns the directory of the session's downloads, if the browser's files are those of this machine.
    pub(super) fn downloads(&self) -> Option<Cow<'_, str>> {
        self.config.downloads.as_deref().map(Path::to_string_lossy)
    }

    /// Terminates the code that an ended script may have left running in a page, because no other script could connect
    /// to the browser.
    pub(super) async fn free_stuck_page(&self) {
        if let Some(running) = self.browser.ready() {
            running.browser.free_stuck_page().await;
        }
    }

    /// Reports that a process of a caller has crashed.
    pub(super) fn report_crash(&self, pid: Option<u32>) {
        self.telemetry.report_program_end("script-runner", Phase::Running, pid);
    }
}

/// The reason why a process did not become ready.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}")]
    Start(#[from] std::io::Error),
    /// The process ended, with this error output.
    #[error("{0}")]
    Ended(String),
    #[error("it was not ready within {} s", START_TIMEOUT.as_secs())]
    TimedOut,
}
