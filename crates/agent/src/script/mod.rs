//! Scripts of callers, which run beside the browser: one at a time, in order of arrival.
//!
//! Each script has a process of its own, which is killed with all its descendants after the response was sent. The
//! process for the next script loads while a script runs, and connects to the browser once the process of that script
//! has ended.

mod process;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::process::RunnerConfig;
use self::process::{MessageKind, Process, RunnerMessage, SNAPSHOT};
use crate::browser_handle::BrowserHandle;
use crate::reply::{Answer, Refusal, ok, read_within};
use crate::telemetry::{Phase, Telemetry};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::script::{EXECUTE, ExecuteScript, MAX_WAITING, ScriptEnd};

/// The longest request: a script of 1 MiB, with the longest JSON encoding.
const MAX_REQUEST: usize = 8 << 20;
/// The timeout for a process to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// A process that is not ready after this time may be blocked by a page that hangs.
const STUCK_PAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout for the end of a process that broke its connection.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// After this time without a script the process disconnects from the browser, so that Playwright answers no dialogs of
/// other clients.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this further time the process is ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// A task that prepares a process.
type Preparation = AbortOnDropHandle<Result<Process, String>>;

/// The scripts of the session.
#[derive(Debug)]
pub(crate) struct Scripts {
    browser: BrowserHandle,
    telemetry: Arc<Telemetry>,
    config: RunnerConfig,
    /// The places of the running script and the waiting ones.
    slots: Semaphore,
    /// The permit to run a script, acquired in order of arrival.
    turn: Semaphore,
    /// The process for the next script.
    next: Mutex<Option<Preparation>>,
    /// Held by the one process that Playwright connects to the browser. If two of them attach to the same frames, each
    /// sometimes mistakes the other's session for its own and waits for ever.
    connected: Arc<AsyncMutex<()>>,
    /// True if the snapshot was made for another machine, so that processes start without it.
    is_snapshot_unusable: AtomicBool,
    idle_task: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Scripts {
    pub(crate) fn new(browser: BrowserHandle, telemetry: Arc<Telemetry>, config: RunnerConfig) -> Self {
        let (next, connected, is_snapshot_unusable, idle_task) = Default::default();
        let (slots, turn) = (Semaphore::new(MAX_WAITING + 1), Semaphore::new(1));
        Self { browser, telemetry, config, slots, turn, next, connected, is_snapshot_unusable, idle_task }
    }

    /// Serves `/v1/script/…`.
    pub(crate) async fn serve(self: &Arc<Self>, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            EXECUTE => ok(&self.execute(read_within(body, MAX_REQUEST).await?).await?),
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn execute(self: &Arc<Self>, request: ExecuteScript) -> Result<ScriptEnd, Refusal> {
        let Some(folder) = &self.config.folder else {
            let message = "this installation has no script runner: `cargo xtask up` installs one, and `casement serve --script-runner` \
                           says where it is";
            return Err(Refusal::new(ErrorCode::NotSupported, message));
        };
        let Ok(_slot) = self.slots.try_acquire() else {
            let message = format_args!("{MAX_WAITING} scripts of this session wait already");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        };
        let arrived_at = Instant::now();
        let limits = Limits {
            run: Duration::from_millis(request.timeout_ms),
            total: request.within_ms.map_or(Duration::MAX, Duration::from_millis),
        };
        let wait = limits.run.min(limits.total);
        let Ok(Ok(_turn)) = timeout(wait, self.turn.acquire()).await else {
            return Ok(failed_script(format!("{}: the scripts before it had not ended", timed_out(wait))));
        };
        let running = self.browser.usable()?;
        // Playwright cannot use a page with a dialog that it did not see open.
        if let Some(dialog) = running.browser.open_dialogs().first() {
            return Err(Refusal::new(ErrorCode::InvalidState, dialog));
        }
        self.idle_task.lock().take();
        let _idle = IdleGuard(self);
        self.run(folder, &request.code, arrived_at, limits).await
    }

    /// Runs a script and prepares the process for the next one.
    async fn run(
        self: &Arc<Self>,
        folder: &Path,
        code: &str,
        arrived_at: Instant,
        limits: Limits,
    ) -> Result<ScriptEnd, Refusal> {
        let process = self.take_ready(folder).await?;
        let connected = Arc::clone(&self.connected).lock_owned().await;
        let mut running = RunningScript { scripts: self, parts: Some((process, connected)) };
        self.prepare(folder);
        let left = limits.total.saturating_sub(arrived_at.elapsed());
        let within = limits.run.min(left);
        let reported_limit = if left < limits.run { limits.total } else { limits.run };
        let mut abandoned = AbandonGuard { scripts: self, folder, is_armed: true };
        let outcome = running.run(code, within).await;
        let (stdout, stderr) = running.take_output();
        let (success, result, error) = match outcome {
            // The process is ended after the response.
            Outcome::Message(message) if message.is == MessageKind::Done => {
                (message.success, message.result, message.error)
            }
            Outcome::Message(message) => {
                running.end().await;
                self.free_stuck_page().await;
                abandoned.is_armed = false;
                let why = message.error.unwrap_or_default();
                let message: String = why.lines().next().unwrap_or_default().chars().take(300).collect();
                return Err(Refusal::new(ErrorCode::BrowserHung, message));
            }
            Outcome::Ended => {
                let (pid, status) = running.wait_for_end().await;
                if has_crashed(status, &stderr) {
                    self.telemetry.report_program_end("script-runner", Phase::Running, pid);
                }
                (false, None, Some(describe_end(status, &stderr)))
            }
            Outcome::TimedOut => {
                running.end().await;
                self.free_stuck_page().await;
                (false, None, Some(timed_out(reported_limit)))
            }
        };
        abandoned.is_armed = false;
        Ok(ScriptEnd { success, result, error, stdout, stderr })
    }

    /// Prepares a process, unless one is being prepared.
    fn prepare(self: &Arc<Self>, folder: &Path) {
        self.next.lock().get_or_insert_with(|| {
            let (scripts, folder) = (Arc::clone(self), folder.to_owned());
            AbortOnDropHandle::new(tokio::spawn(async move { scripts.start_process(&folder).await }))
        });
    }

    /// Returns the prepared process, or a new one.
    async fn take_ready(&self, folder: &Path) -> Result<Process, Refusal> {
        let prepared = self.next.lock().take();
        if let Some(prepared) = prepared
            && let Ok(Ok(mut process)) = prepared.await
            && process.wait(Duration::ZERO).await.is_none()
        {
            // Output after the end of the last script belongs to no script.
            process.take_output();
            return Ok(process);
        }
        self.start_process(folder).await.map_err(|error| {
            tracing::warn!(error, "the script runner did not start");
            Refusal::new(ErrorCode::Failed, format_args!("the script runner did not start: {error}"))
        })
    }

    /// Starts a process and waits until it is ready. It connects to the browser once no other process is connected.
    async fn start_process(&self, folder: &Path) -> Result<Process, String> {
        if !self.is_snapshot_unusable.load(Ordering::Relaxed) && folder.join(SNAPSHOT).is_file() {
            match self.try_start(folder, true).await {
                Err(StartError::Ended(output)) => {
                    tracing::warn!(output, "the script runner does not start from its snapshot");
                    self.is_snapshot_unusable.store(true, Ordering::Relaxed);
                }
                started => return started.map_err(|error| error.to_string()),
            }
        }
        self.try_start(folder, false).await.map_err(|error| error.to_string())
    }

    async fn try_start(&self, folder: &Path, from_snapshot: bool) -> Result<Process, StartError> {
        let mut process = Process::start(&self.config, folder, from_snapshot)?;
        let _connected = self.connected.lock().await;
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

    fn endpoint(&self) -> String {
        let endpoint = self.browser.endpoint();
        format!("ws://127.0.0.1:{}{}", endpoint.port, endpoint.path)
    }

    /// Terminates the code that an ended script may have left running in a page, because no other script could connect
    /// to the browser.
    async fn free_stuck_page(&self) {
        if let Some(running) = self.browser.ready() {
            running.browser.free_stuck_page().await;
        }
    }

    /// Disconnects the prepared process after a while without a script, and ends it after a longer one.
    async fn become_idle(&self) {
        sleep(DISCONNECT_TIMEOUT).await;
        if let Ok(_turn) = self.turn.try_acquire() {
            let prepared = self.next.lock().take();
            if let Some(prepared) = prepared
                && let Ok(Ok(mut process)) = prepared.await
                && process.send(&json!({ "is": "rest" })).await.is_ok()
            {
                *self.next.lock() = Some(AbortOnDropHandle::new(tokio::spawn(async { Ok(process) })));
            }
        }
        sleep(IDLE_TIMEOUT).await;
        let idle = self.next.lock().take();
        if let Some(idle) = idle
            && let Ok(Ok(process)) = idle.await
        {
            process.end().await;
        }
    }
}

/// The timeouts of a script.
#[derive(Clone, Copy)]
struct Limits {
    /// The timeout of the run.
    run: Duration,
    /// The timeout of waiting and running together.
    total: Duration,
}

/// Starts the idle time when a script ends in any way, also when its caller disconnects.
struct IdleGuard<'a>(&'a Arc<Scripts>);

impl Drop for IdleGuard<'_> {
    fn drop(&mut self) {
        let scripts = Arc::clone(self.0);
        let task = tokio::spawn(async move { scripts.become_idle().await });
        *self.0.idle_task.lock() = Some(AbortOnDropHandle::new(task));
    }
}

/// Frees the page and prepares a process if the caller disconnects, which ends the process of its script.
struct AbandonGuard<'a> {
    scripts: &'a Arc<Scripts>,
    folder: &'a Path,
    is_armed: bool,
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            let (scripts, folder) = (Arc::clone(self.scripts), self.folder.to_owned());
            tokio::spawn(async move {
                scripts.free_stuck_page().await;
                scripts.prepare(&folder);
            });
        }
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

enum Outcome {
    Message(RunnerMessage),
    /// The process ended before the script did.
    Ended,
    TimedOut,
}

/// A script and its process. No other process connects to the browser until this one has ended in any way.
struct RunningScript<'a> {
    scripts: &'a Scripts,
    parts: Option<(Process, OwnedMutexGuard<()>)>,
}

impl RunningScript<'_> {
    async fn run(&mut self, code: &str, within: Duration) -> Outcome {
        let Some((process, _)) = &mut self.parts else { return Outcome::Ended };
        let deadline = Instant::now() + within;
        let message = json!({ "is": "run", "code": code, "endpoint": self.scripts.endpoint() });
        if !matches!(timeout_at(deadline, process.send(&message)).await, Ok(Ok(()))) {
            return Outcome::Ended;
        }
        loop {
            match timeout_at(deadline, process.receive()).await {
                Ok(Ok(Some(message @ RunnerMessage { is: MessageKind::Done | MessageKind::Failed, .. }))) => {
                    return Outcome::Message(message);
                }
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None) | Err(_)) => return Outcome::Ended,
                Err(_) => return Outcome::TimedOut,
            }
        }
    }

    /// Takes the standard output and error.
    fn take_output(&mut self) -> (String, String) {
        self.parts.as_mut().map(|(process, _)| process.take_output()).unwrap_or_default()
    }

    /// Waits for the end of a process that broke its connection. Returns its process id and exit status.
    async fn wait_for_end(&mut self) -> (Option<u32>, Option<ExitStatus>) {
        let Some((process, _)) = &mut self.parts else { return (None, None) };
        let pid = process.pid();
        (pid, process.wait(END_TIMEOUT).await)
    }

    async fn end(&mut self) {
        if let Some((process, _connected)) = self.parts.take() {
            process.end().await;
        }
    }
}

impl Drop for RunningScript<'_> {
    fn drop(&mut self) {
        if let Some((process, connected)) = self.parts.take() {
            tokio::spawn(async move {
                process.end().await;
                drop(connected);
            });
        }
    }
}

fn failed_script(error: String) -> ScriptEnd {
    ScriptEnd { success: false, result: None, error: Some(error), stdout: String::new(), stderr: String::new() }
}

fn timed_out(limit: Duration) -> String {
    format!("timed out after {} s", limit.as_secs_f64())
}

/// Returns true if the process was ended by a signal or because of its memory use.
fn has_crashed(status: Option<ExitStatus>, stderr: &str) -> bool {
    let signalled = |status: ExitStatus| status.signal().is_some() || matches!(status.code(), Some(129..=192));
    stderr.contains("JavaScript heap out of memory") || status.is_some_and(signalled)
}

fn describe_end(status: Option<ExitStatus>, stderr: &str) -> String {
    if stderr.contains("JavaScript heap out of memory") {
        return "the script used more memory than it may have".to_owned();
    }
    match status.map(|status| (status.code(), status.signal())) {
        // bubblewrap and shells report a signal in this way.
        Some((Some(code @ 129..=192), _)) => format!("the script's process ended by signal {}", code - 128),
        Some((Some(code), _)) => format!("the script ended its process with exit code {code}"),
        Some((None, Some(signal))) => format!("the script's process ended by signal {signal}"),
        _ => "the script's process broke off".to_owned(),
    }
}
