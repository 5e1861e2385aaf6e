//! An executor: it runs scripts one at a time, in order of arrival.
//!
//! Each script has a process of its own, which is killed with all its descendants after the response was sent. The
//! default executor loads the process for the next script while a script runs, and connects it to the browser once the
//! process of that script has ended. A named executor has a tab of its own and starts its processes when they are
//! needed, because several ready ones would take the session's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::process::{MessageKind, Process};
use super::runner::Runner;
use super::running::{Outcome, RunningScript, describe_end, has_crashed, timed_out};
use crate::browser::{Browser, Page};
use crate::clock;
use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::script::{self as wire, ExecuteScript, MAX_WAITING, ScriptEnd, Tab};

/// After this time without a script the process disconnects from the browser, so that Playwright does not follow pages
/// that only others use.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this further time the process is ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The timeout for a stopped script to be gone.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A task that prepares a process.
type Preparation = AbortOnDropHandle<Result<Process, Refusal>>;

#[derive(Debug)]
pub(super) struct Executor {
    /// `None` for the default executor.
    name: Option<String>,
    runner: Arc<Runner>,
    created_at_ms: u64,
    /// When the last script started, in milliseconds since 1970; 0 before the first one.
    last_used_at_ms: AtomicU64,
    /// The places of the running script and the waiting ones.
    slots: Semaphore,
    /// The permit to run a script, acquired in order of arrival.
    turn: Semaphore,
    /// The process for the next script.
    next: Mutex<Option<Preparation>>,
    /// Held by the one process of this executor that Playwright connects to the browser. If two of them attach to the
    /// same frames, each sometimes mistakes the other's session for its own and waits for ever.
    connected: Arc<AsyncMutex<()>>,
    idle_task: Mutex<Option<AbortOnDropHandle<()>>>,
    /// The tab of a named executor, attached since it was opened.
    tab: Mutex<Option<Page>>,
    /// Cancelled to stop the running script; of a named executor also the waiting ones.
    stop: Mutex<CancellationToken>,
}

impl Executor {
    pub(super) fn new(name: Option<String>, runner: Arc<Runner>) -> Self {
        let (next, connected, idle_task, tab, stop) = Default::default();
        let (slots, turn) = (Semaphore::new(MAX_WAITING + 1), Semaphore::new(1));
        let (created_at_ms, last_used_at_ms) = (clock::now_ms(), AtomicU64::new(0));
        Self { name, runner, created_at_ms, last_used_at_ms, slots, turn, next, connected, idle_task, tab, stop }
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(super) async fn execute(self: &Arc<Self>, request: ExecuteScript) -> Result<ScriptEnd, Refusal> {
        self.execute_with(request, None).await
    }

    /// Like [`execute`](Self::execute), with the page of this tab.
    pub(super) async fn execute_with(
        self: &Arc<Self>,
        request: ExecuteScript,
        tab: Option<Tab>,
    ) -> Result<ScriptEnd, Refusal> {
        self.runner.folder()?;
        let Ok(_slot) = self.slots.try_acquire() else {
            let message = format_args!("{MAX_WAITING} scripts of this executor wait already");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        };
        let arrived_at = Instant::now();
        let limits = Limits {
            run: Duration::from_millis(request.timeout_ms),
            total: request.within_ms.map_or(Duration::MAX, Duration::from_millis),
        };
        let wait = limits.run.min(limits.total);
        let turn = tokio::select! {
            biased;
            () = self.deleted() => return Ok(failed_script(self.stopped())),
            turn = timeout(wait, self.turn.acquire()) => turn,
        };
        let Ok(Ok(_turn)) = turn else {
            return Ok(failed_script(format!("{}: the scripts before it had not ended", timed_out(wait))));
        };
        self.last_used_at_ms.store(clock::now_ms(), Ordering::Relaxed);
        let running = self.runner.usable_browser()?;
        let tab = match tab {
            Some(tab) => Some(tab),
            None => self.own_tab(&running.browser).await?,
        };
        self.idle_task.lock().take();
        // A named executor has no prepared process.
        let _idle = self.name.is_none().then(|| IdleGuard(self));
        self.run(&request.code, tab, arrived_at, limits).await
    }

    /// Runs a script, with the tab if the executor has one of its own.
    async fn run(
        self: &Arc<Self>,
        code: &str,
        tab: Option<Tab>,
        arrived_at: Instant,
        limits: Limits,
    ) -> Result<ScriptEnd, Refusal> {
        let stop = self.stop.lock().clone();
        let process = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(failed_script(self.stopped())),
            process = self.take_ready() => process?,
        };
        let connected = Arc::clone(&self.connected).lock_owned().await;
        let mut running = RunningScript::new(process, connected);
        self.prepare();
        let left = limits.total.saturating_sub(arrived_at.elapsed());
        let within = limits.run.min(left);
        let reported_limit = if left < limits.run { limits.total } else { limits.run };
        let mut abandoned = AbandonGuard { executor: self, is_armed: true };
        let message = json!({
            "is": "run", "code": code, "endpoint": self.runner.endpoint(),
            "target": tab.as_ref().map(|tab| &tab.target_id), "others": *self.runner.executor_tabs.lock(),
            "downloads": self.runner.downloads(),
        });
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => Outcome::Stopped,
            outcome = running.run(&message, within) => outcome,
        };
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
                if message.is == MessageKind::Blocked {
                    return Err(self.runner.blocked());
                }
                if let Some(running) = self.runner.browser.ready()
                    && let Some(refusal) = self.close_crashed_tab(&running.browser).await
                {
                    return Err(refusal);
                }
                let why = message.error.unwrap_or_default();
                let message: String = why.lines().next().unwrap_or_default().chars().take(300).collect();
                return Err(Refusal::new(ErrorCode::BrowserHung, message));
            }
            Outcome::Ended => {
                let (pid, status) = running.wait_for_end().await;
                if has_crashed(status, &stderr) {
                    self.runner.report_crash(pid);
                }
                (false, None, Some(describe_end(status, &stderr)))
            }
            Outcome::TimedOut => {
                running.end().await;
                self.free_stuck_page().await;
                (false, None, Some(timed_out(reported_limit)))
            }
            Outcome::Stopped => {
                running.end().await;
                self.free_stuck_page().await;
                (false, None, Some(self.stopped()))
            }
        };
        abandoned.is_armed = false;
        Ok(ScriptEnd { success, result, error, stdout, stderr, tab: tab.or(running.tab.take()) })
    }

    /// Returns the tab of a named executor. Opens it if it does not exist; `None` for the default executor.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidState`] once if the tab has crashed. It is closed, so that the next script gets a new one.
    async fn own_tab(&self, browser: &Browser) -> Result<Option<Tab>, Refusal> {
        if self.name.is_none() {
            return Ok(None);
        }
        if let Some(refusal) = self.close_crashed_tab(browser).await {
            return Err(refusal);
        }
        let known = self.tab.lock().clone();
        if let Some(page) = known
            && browser.url_of(&page.target).await?.is_some()
        {
            return Ok(Some(Tab { target_id: page.target, created: false }));
        }
        let page = browser.open_tab().await?;
        let target_id = page.target.clone();
        let closed = self.tab.lock().replace(page);
        let mut tabs = self.runner.executor_tabs.lock();
        tabs.insert(target_id.clone());
        if let Some(closed) = closed {
            tabs.remove(&closed.target);
        }
        Ok(Some(Tab { target_id, created: true }))
    }

    /// Closes the tab of a named executor if it has crashed, and returns the refusal that says so.
    async fn close_crashed_tab(&self, browser: &Browser) -> Option<Refusal> {
        let has_crashed = self.tab.lock().as_ref().is_some_and(|page| browser.has_crashed(&page.target));
        if !has_crashed {
            return None;
        }
        self.leave_tab(true).await;
        let message = "the tab of the executor has crashed and was closed: the next script gets a new one";
        Some(Refusal::new(ErrorCode::InvalidState, message))
    }

    /// Prepares a process of the default executor, unless one is being prepared.
    fn prepare(self: &Arc<Self>) {
        if self.name.is_none() {
            self.next.lock().get_or_insert_with(|| {
                let executor = Arc::clone(self);
                AbortOnDropHandle::new(tokio::spawn(
                    async move { executor.runner.start_process(&executor.connected).await },
                ))
            });
        }
    }

    /// Returns the prepared process, or a new one.
    async fn take_ready(&self) -> Result<Process, Refusal> {
        let prepared = self.next.lock().take();
        if let Some(prepared) = prepared
            && let Ok(Ok(mut process)) = prepared.await
            && process.wait(Duration::ZERO).await.is_none()
        {
            // Output after the end of the last script belongs to no script.
            process.take_output();
            return Ok(process);
        }
        self.runner.start_process(&self.connected).await
    }

    async fn free_stuck_page(&self) {
        let Some(running) = self.runner.browser.ready() else { return };
        let tab = self.tab.lock().clone();
        match tab {
            Some(page) => running.browser.free_stuck(&page).await,
            None => running.browser.free_stuck_page().await,
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

    /// Waits until this executor is deleted; for ever for the default one.
    async fn deleted(&self) {
        if self.name.is_none() {
            return std::future::pending().await;
        }
        let stop = self.stop.lock().clone();
        stop.cancelled().await;
    }

    /// Returns the error of a stopped script.
    fn stopped(&self) -> String {
        let change = if self.name.is_none() { "restarted" } else { "deleted" };
        format!("the executor was {change}")
    }

    /// Stops the running script and waits until it is gone. The waiting scripts of a named executor stop too; those of
    /// the default executor run afterwards.
    pub(super) async fn stop(&self) {
        let stop = if self.name.is_none() { std::mem::take(&mut *self.stop.lock()) } else { self.stop.lock().clone() };
        stop.cancel();
        if self.name.is_some() {
            drop(timeout(STOP_TIMEOUT, self.turn.acquire()).await);
        }
    }

    /// Gives up the tab of a named executor: closes it, or leaves it to the other clients of the browser.
    pub(super) async fn leave_tab(&self, close: bool) {
        let Some(page) = self.tab.lock().take() else { return };
        self.runner.executor_tabs.lock().remove(&page.target);
        if let Some(running) = self.runner.browser.ready() {
            if close {
                running.browser.close_tab(&page.target).await;
            } else {
                running.browser.detach(&page).await;
            }
        }
    }

    pub(super) async fn describe(&self) -> wire::Executor {
        let target_id = self.tab.lock().as_ref().map(|page| page.target.clone());
        let url = match (&target_id, self.runner.browser.ready()) {
            (Some(target), Some(running)) => running.browser.url_of(target).await.ok().flatten(),
            _ => None,
        };
        let last_used_at_ms = self.last_used_at_ms.load(Ordering::Relaxed);
        wire::Executor {
            name: self.name.clone(),
            busy: self.turn.available_permits() == 0,
            created_at_ms: self.created_at_ms,
            last_used_at_ms: (last_used_at_ms > 0).then_some(last_used_at_ms),
            target_id,
            url,
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
struct IdleGuard<'a>(&'a Arc<Executor>);

impl Drop for IdleGuard<'_> {
    fn drop(&mut self) {
        let executor = Arc::clone(self.0);
        let task = tokio::spawn(async move { executor.become_idle().await });
        *self.0.idle_task.lock() = Some(AbortOnDropHandle::new(task));
    }
}

/// Frees the page and prepares a process if the caller disconnects, which ends the process of its script.
struct AbandonGuard<'a> {
    executor: &'a Arc<Executor>,
    is_armed: bool,
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            let executor = Arc::clone(self.executor);
            tokio::spawn(async move {
                executor.free_stuck_page().await;
                executor.prepare();
            });
        }
    }
}

fn failed_script(error: String) -> ScriptEnd {
    let (stdout, stderr) = Default::default();
    ScriptEnd { success: false, result: None, error: Some(error), stdout, stderr, tab: None }
}
