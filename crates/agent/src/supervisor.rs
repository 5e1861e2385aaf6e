//! Supervises the browser: starts it, watches it, restarts it on request, and reports how it ended.

mod remote;
mod start;

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};

use crate::browser_handle::BrowserHandle;
use crate::chromedriver::Chromedriver;
use crate::chromium::{Chromium, StartError, wait_for_group_end};
use crate::display::Display;
use crate::egress::FailedTunnels;
use crate::extension::Extensions;
use crate::process::tree::is_stopped;
use crate::profile::Profiles;
use crate::replay::Replays;
use crate::reply::Refusal;
use crate::restart_queue::{QueuedRestart, RestartKind, ResultSender};
use crate::telemetry::{Phase, Telemetry};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::{AgentConfig, ErrorCode, ExitReason, FailureCode, State, Status};

/// The interval of memory measurements.
const MEMORY_INTERVAL: Duration = Duration::from_secs(2);
/// The timeouts of closing the browser: at the end of the session, and when its profile is needed afterwards.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const CLOSE_FOR_PROFILE_TIMEOUT: Duration = Duration::from_secs(15);
/// The delay after which Chromium writes the `localStorage` of pages. When Chromium closes, it does not wait for the
/// process that writes it.
const STORAGE_FLUSH_INTERVAL: Duration = Duration::from_millis(1200);
/// The interval of probes, and the time without an answer after which the browser counts as hung.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum time for which Chromium's process may be stopped. A debugger may stop it, but not for ever.
const MAX_STOPPED: Duration = Duration::from_secs(45);
const STOPPED_INTERVAL: Duration = Duration::from_secs(1);
/// The time after the end of Chromium within which the end of the display counts as the cause: Chromium ends when its
/// display ends.
const DISPLAY_END_TIMEOUT: Duration = Duration::from_millis(500);

/// The end of the browser.
pub(crate) struct End {
    pub(crate) state: State,
    /// The reason, for people.
    pub(crate) detail: String,
}

impl End {
    fn exited(reason: ExitReason, detail: impl Into<String>) -> Self {
        Self { state: State::Exited { reason }, detail: detail.into() }
    }

    fn failed(StartError { code, message }: StartError) -> Self {
        Self { state: State::Failed { code, message: message.clone() }, detail: message }
    }

    fn requested() -> Self {
        Self::exited(ExitReason::Shutdown, "a shutdown was requested")
    }
}

/// The processes of the browser. Dropping them kills them.
struct Processes {
    chromium: Chromium,
    display: Option<Arc<Display>>,
}

/// The supervisor of the browser and its display.
pub(crate) struct Supervisor {
    pub(crate) config: AgentConfig,
    pub(crate) browser: BrowserHandle,
    pub(crate) restarts: mpsc::Receiver<QueuedRestart>,
    pub(crate) chromedriver: Arc<Chromedriver>,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) profiles: Arc<Profiles>,
    pub(crate) replays: Arc<Replays>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) failed_tunnels: Arc<FailedTunnels>,
    pub(crate) shutdown: Arc<Notify>,
}

impl Supervisor {
    /// Runs the browser until it ends or a shutdown is requested.
    pub(crate) async fn run(&mut self) -> End {
        let (limit, telemetry) = (self.config.memory_limit_bytes, Arc::clone(&self.telemetry));
        tokio::select! {
            end = self.run_either() => end,
            // The processes are killed when the other future is dropped.
            () = memory_exceeded(limit) => {
                telemetry.report_memory_full();
                End::exited(ExitReason::Oom, "the memory limit of the session was exceeded")
            }
        }
    }

    async fn run_either(&mut self) -> End {
        match self.config.remote {
            Some(_) => self.run_remote().await,
            None => self.run_browser().await,
        }
    }

    async fn run_browser(&mut self) -> End {
        let shutdown = Arc::clone(&self.shutdown);
        let mut caller = None;
        let started = tokio::select! {
            started = self.start(&mut caller) => started,
            () = shutdown.notified() => return End::requested(),
        };
        let mut processes = match started {
            Ok(processes) => processes,
            Err(error) => {
                send_result(caller, Err(start_refusal(&error)));
                return End::failed(error);
            }
        };
        send_result(caller, Ok(self.status()));
        loop {
            let (pid, group) = (processes.chromium.pid(), processes.chromium.group());
            tokio::select! {
                status = processes.chromium.wait() => {
                    // The profile may be read as soon as the end is reported, so no process may still write to it.
                    wait_for_group_end(group).await;
                    return self.exited(status, pid, &processes).await;
                }
                detail = hung(&self.browser, pid) => {
                    processes.chromium.kill_group().await;
                    self.telemetry.report_program_end("chromium", Phase::Running, pid);
                    return End::exited(ExitReason::Hung, detail);
                }
                () = shutdown.notified() => {
                    self.close(&mut processes.chromium, CLOSE_TIMEOUT).await;
                    return End::requested();
                }
                Some(restart) = self.restarts.recv() => {
                    if let Some(end) = self.perform(&mut processes, restart).await {
                        return end;
                    }
                }
            }
        }
    }

    fn status(&self) -> Status {
        self.browser.status().current()
    }

    async fn exited(&self, status: io::Result<ExitStatus>, pid: Option<u32>, processes: &Processes) -> End {
        let display_pid = match &processes.display {
            Some(display) => display.wait_for_end(DISPLAY_END_TIMEOUT).await,
            None => None,
        };
        if display_pid.is_some() {
            self.telemetry.report_program_end("xvfb", Phase::Running, display_pid);
        } else if status.as_ref().is_ok_and(ExitStatus::success) {
            return End::exited(ExitReason::Closed, "Chromium was closed from inside");
        }
        self.telemetry.report_program_end("chromium", Phase::Running, pid);
        let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        End::exited(ExitReason::Crashed, format!("Chromium ended: {how}; {}", processes.chromium.error_output()))
    }

    /// Performs a queued restart. Returns the end of the browser, if it has ended.
    async fn perform(&mut self, processes: &mut Processes, restart: QueuedRestart) -> Option<End> {
        let QueuedRestart { kind, result } = restart;
        let RestartKind::Restart(request) = kind else {
            self.close_for_good(processes, result).await;
            return Some(End::requested());
        };
        let shutdown = Arc::clone(&self.shutdown);
        let restarted = tokio::select! {
            restarted = self.restart(processes, &request) => restarted,
            () = shutdown.notified() => return Some(End::requested()),
        };
        let Err(error) = restarted else {
            send_result(Some(result), Ok(self.status()));
            return None;
        };
        send_result(Some(result), Err(start_refusal(&error)));
        if error.code == FailureCode::Extension {
            return None;
        }
        self.telemetry.report_program_end("chromium", Phase::Startup, None);
        self.telemetry.report_reconnect_failure();
        let detail = format!("Chromium could not be restarted: {}", error.message);
        Some(End::exited(ExitReason::Crashed, detail))
    }

    /// Closes the browser, sends the result to the caller, and waits for the shutdown.
    async fn close_for_good(&mut self, processes: &mut Processes, result: ResultSender) {
        let shutdown = Arc::clone(&self.shutdown);
        let closed = async {
            self.browser.status().update(|status| status.state = State::Starting);
            self.close_for_profile(&mut processes.chromium).await;
            self.browser.replace(None);
            self.chromedriver.end().await;
            self.browser.status().update(|status| status.state = State::Closed);
            send_result(Some(result), Ok(self.status()));
            while let Some(QueuedRestart { kind, result }) = self.restarts.recv().await {
                let answer = match kind {
                    RestartKind::Close => Ok(self.status()),
                    RestartKind::Restart(_) => Err(Refusal::new(ErrorCode::NotReady, "the browser is closed")),
                };
                send_result(Some(result), answer);
            }
        };
        tokio::select! {
            () = closed => {}
            () = shutdown.notified() => {}
        }
    }

    /// Closes a browser whose profile is needed.
    async fn close_for_profile(&self, chromium: &mut Chromium) {
        tokio::time::sleep(STORAGE_FLUSH_INTERVAL).await;
        self.close(chromium, CLOSE_FOR_PROFILE_TIMEOUT).await;
    }

    /// Lets the browser close itself, so that its profile is complete, and kills it after the timeout.
    async fn close(&self, chromium: &mut Chromium, within: Duration) {
        let is_requested = match self.browser.running() {
            Some(running) => running.browser.close().await.is_ok(),
            None => false,
        };
        let group = chromium.group();
        if !is_requested || tokio::time::timeout(within, chromium.wait()).await.is_err() {
            chromium.kill_group().await;
        } else {
            // Chromium's helper processes end a moment later, and may write to the profile until then.
            wait_for_group_end(group).await;
        }
    }
}

/// Waits for the request that starts a browser whose start is deferred.
async fn first_request(restarts: &mut mpsc::Receiver<QueuedRestart>) -> (RestartRequest, ResultSender) {
    loop {
        match restarts.recv().await {
            Some(QueuedRestart { kind: RestartKind::Restart(request), result }) => return (request, result),
            Some(QueuedRestart { kind: RestartKind::Close, result }) => {
                send_result(Some(result), Err(Refusal::new(ErrorCode::NotReady, "the browser is not started")));
            }
            None => std::future::pending().await,
        }
    }
}

fn send_result(caller: Option<ResultSender>, result: Result<Status, Refusal>) {
    if let Some(caller) = caller {
        // A caller that has disconnected reads the result from the event stream.
        drop(caller.send(result));
    }
}

fn start_refusal(error: &StartError) -> Refusal {
    let code = match error.code {
        FailureCode::Extension => ErrorCode::NotAllowed,
        FailureCode::PageUnresponsive | FailureCode::DebuggingPort => ErrorCode::BrowserHung,
        _ => ErrorCode::Failed,
    };
    Refusal::new(code, &error.message)
}

/// Returns when the browser hangs, with the reason.
async fn hung(browser: &BrowserHandle, pid: Option<u32>) -> String {
    tokio::select! {
        () = unresponsive(browser) => format!("Chromium did not answer for {} s", PROBE_TIMEOUT.as_secs()),
        () = stopped(pid) => format!("Chromium was stopped and did not go on for {} s", MAX_STOPPED.as_secs()),
    }
}

/// Returns when the browser has not answered a probe. The browser process answers even if its pages hang.
async fn unresponsive(browser: &BrowserHandle) {
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        let Some(running) = browser.ready() else { continue };
        if running.browser.is_unresponsive(PROBE_TIMEOUT).await {
            return;
        }
        if let Err(error) = running.browser.close_surplus_pages().await {
            tracing::debug!(%error, "cannot count the pages");
        }
    }
}

/// Returns when the process has been stopped without interruption for too long.
async fn stopped(pid: Option<u32>) {
    let Some(pid) = pid else { return std::future::pending().await };
    let mut since = None;
    loop {
        tokio::time::sleep(STOPPED_INTERVAL).await;
        match is_stopped(pid) {
            true if since.get_or_insert_with(Instant::now).elapsed() >= MAX_STOPPED => return,
            true => {}
            false => since = None,
        }
    }
}

async fn memory_exceeded(limit: Option<u64>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        tokio::time::sleep(MEMORY_INTERVAL).await;
        let is_over = tokio::task::spawn_blocking(move || casement_sandbox::over_limit(limit)).await;
        if matches!(is_over, Ok(true)) {
            return;
        }
    }
}
