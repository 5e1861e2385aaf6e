//! The loaded processes of one deployment that wait for a call.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use casement_domain::invocation::{CallLimits, FailedDeployment, Runnable};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use super::Inner;
use crate::build::{OUT_OF_MEMORY, load_command, load_failure};
use crate::egress::EgressPolicy;
use crate::host::{AppSandbox, SandboxParams, authority};
use crate::link;
use crate::protocol::{Answer, Exit, Outcome, Request};

/// The maximum number of ready processes. Usually there is one, and more while calls arrive faster than processes load.
const MAX_READY: usize = 4;
/// The time without a shortage after which one ready process is enough again.
const SHORTAGE_WINDOW: Duration = Duration::from_secs(60);
/// The number of consecutive failed loads after which the deployment fails, and the pause after each of them.
const MAX_FAILURES: u32 = 3;
const LOAD_BACKOFF: Duration = Duration::from_secs(2);

/// The number of consecutive loads that fail because of this machine after which a waiting call fails.
const MAX_HOST_FAILURES: u32 = 5;
/// The longest suspension of ready processes if they end repeatedly. Processes for waiting calls are loaded meanwhile.
const MAX_READY_BACKOFF: Duration = Duration::from_secs(300);
/// The maximum number of simultaneous loads of one deployment, and the longest time for which a load holds a slot of
/// the machine: a load that takes longer usually waits for something.
const MAX_LOADING_PER_DEPLOYMENT: usize = 2;
const LOAD_SLOT_TIME: Duration = Duration::from_secs(10);

/// The processes of one deployment.
pub(super) struct DeploymentPool {
    runner_pool: Weak<Inner>,
    runnable: Runnable,
    loading: Semaphore,
    state: Mutex<State>,
}

/// The reason why a process was not loaded.
enum LoadError {
    /// A fault of the program, which will repeat.
    Program(String),
    /// Loading timed out, because of the program or because this machine is busy.
    TimedOut(String),
    /// A fault of this machine, which may be temporary.
    Host(String),
}

impl LoadError {
    fn reason(self) -> String {
        match self {
            Self::Program(reason) | Self::TimedOut(reason) | Self::Host(reason) => reason,
        }
    }
}

fn host(error: impl std::fmt::Display) -> LoadError {
    LoadError::Host(error.to_string())
}

/// Classifies the end of a process that was not loaded.
fn classify_exit(outcome: Outcome, app_sandbox: &AppSandbox) -> LoadError {
    let own_limit = app_sandbox.sandbox().is_ok_and(casement_sandbox::Sandbox::oom_killed);
    let blame = match &outcome {
        _ if own_limit => LoadError::Program,
        Outcome::Died { exit: Exit::Late } => LoadError::TimedOut,
        // No program in the sandbox sends this signal; the kernel sends it if the machine has no memory left.
        Outcome::Died { exit: Exit::Signal(9) } => LoadError::Host,
        _ => LoadError::Program,
    };
    blame(load_failure(outcome, app_sandbox))
}

#[derive(Default)]
struct State {
    keeps_ready: bool,
    ready: VecDeque<ReadyProcess>,
    waiters: VecDeque<oneshot::Sender<Result<AppSandbox, String>>>,
    loading: usize,
    failures: u32,
    host_failures: u32,
    target: usize,
    shortage_at: Option<Instant>,
    /// The number of consecutive suspensions, because ready processes ended or loads timed out, and the end of the
    /// current suspension, during which no process is loaded to be ready.
    suspensions: u32,
    suspended_until: Option<Instant>,
    /// The time of the first load that timed out since the last successful load.
    first_timeout: Option<Instant>,
}

/// A ready process.
struct ReadyProcess {
    app_sandbox: AppSandbox,
    since: Instant,
}

impl State {
    /// Takes a ready process, if there is one.
    fn take_ready(&mut self) -> Option<AppSandbox> {
        self.remove_ended();
        self.ready.pop_front().map(|waiting| waiting.app_sandbox)
    }

    /// Removes ready processes that have ended.
    fn remove_ended(&mut self) {
        let (alive, ended): (VecDeque<ReadyProcess>, VecDeque<ReadyProcess>) =
            std::mem::take(&mut self.ready).into_iter().partition(|waiting| is_alive(&waiting.app_sandbox));
        self.ready = alive;
        if let Some(longest) = ended.iter().map(|waiting| waiting.since.elapsed()).max() {
            if longest > MAX_READY_BACKOFF {
                self.suspensions = 0;
            }
            self.suspend_ready();
        }
    }

    /// Suspends ready processes, each time for longer.
    fn suspend_ready(&mut self) {
        let backoff = LOAD_BACKOFF.saturating_mul(1 << self.suspensions.min(10)).min(MAX_READY_BACKOFF);
        self.suspensions = self.suspensions.saturating_add(1);
        self.suspended_until = Some(Instant::now() + backoff);
    }

    /// Stops loading ready processes. Returns true if they were loaded until now.
    fn give_up(&mut self) -> bool {
        if self.keeps_ready {
            self.target = 0;
        }
        std::mem::take(&mut self.keeps_ready)
    }

    /// Returns the number of processes to load: for waiting calls and, unless suspended, as ready processes.
    fn missing(&self) -> usize {
        let is_suspended = self.suspended_until.is_some_and(|until| Instant::now() < until);
        let target = if is_suspended { 0 } else { self.target };
        (self.waiters.len() + target).saturating_sub(self.loading + self.ready.len())
    }
}

impl DeploymentPool {
    pub(super) fn new(runner_pool: &Arc<Inner>, runnable: Runnable, target: usize) -> Self {
        let state = State { target, ..State::default() };
        Self {
            runner_pool: Arc::downgrade(runner_pool),
            runnable,
            loading: Semaphore::new(MAX_LOADING_PER_DEPLOYMENT),
            state: Mutex::new(state),
        }
    }

    /// Has a process ready from now on.
    pub(super) fn keep(self: &Arc<Self>) {
        {
            let mut state = self.state();
            if state.keeps_ready {
                return;
            }
            state.keeps_ready = true;
            state.target = state.target.max(1);
        }
        self.replenish();
    }

    /// Stops loading ready processes and ends the present ones. Returns true if calls still wait for a process.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state();
        state.keeps_ready = false;
        state.target = 0;
        let ended = std::mem::take(&mut state.ready);
        let needed = !state.waiters.is_empty();
        drop(state);
        drop(ended);
        needed
    }

    /// Returns a loaded process, which then belongs to the caller. Waits until one is loaded.
    pub(super) async fn take(self: &Arc<Self>, limits: CallLimits) -> Result<AppSandbox, String> {
        let runner_pool = self.runner_pool.upgrade().ok_or("the server is going down")?;
        if limits != runner_pool.sandboxes.config.call_limits {
            return self.load(limits).await.map_err(LoadError::reason);
        }
        let waiting = {
            let mut state = self.state();
            match state.take_ready() {
                Some(app_sandbox) => Ok(app_sandbox),
                None => {
                    if state.keeps_ready {
                        state.target = (state.target + 1).min(MAX_READY);
                        state.shortage_at = Some(Instant::now());
                    }
                    let (sender, waiting) = oneshot::channel();
                    state.waiters.push_back(sender);
                    Err(waiting)
                }
            }
        };
        self.replenish();
        match waiting {
            Ok(app_sandbox) => Ok(app_sandbox),
            Err(waiting) => waiting.await.unwrap_or_else(|_| Err("the process was lost".to_owned())),
        }
    }

    /// Starts loading the missing processes.
    fn replenish(self: &Arc<Self>) {
        let missing = {
            let mut state = self.state();
            if state.shortage_at.is_some_and(|shortage_at| shortage_at.elapsed() > SHORTAGE_WINDOW) {
                state.target = state.target.min(1);
                state.shortage_at = None;
            }
            state.remove_ended();
            state.waiters.retain(|waiter| !waiter.is_closed());
            let missing = state.missing();
            state.loading += missing;
            missing
        };
        for _ in 0..missing {
            let pool = Arc::clone(self);
            tokio::spawn(async move { pool.load_one().await });
        }
    }

    async fn load_one(self: Arc<Self>) {
        let Some(runner_pool) = self.runner_pool.upgrade() else { return };
        let loaded = self.load(runner_pool.sandboxes.config.call_limits).await;
        let failed = match loaded {
            Ok(app_sandbox) => {
                {
                    let mut state = self.state();
                    (state.failures, state.host_failures, state.first_timeout) = (0, 0, None);
                }
                self.offer(app_sandbox);
                None
            }
            Err(failed) => Some(failed),
        };
        match failed {
            Some(LoadError::Program(reason)) => self.fail(&runner_pool, reason).await,
            Some(LoadError::TimedOut(reason)) => self.fail_timeout(&runner_pool, reason),
            Some(LoadError::Host(reason)) => self.fail_host(reason).await,
            None => {}
        }
        self.state().loading -= 1;
        self.replenish();
    }

    /// Sends a loaded process to the first waiting call, or adds it to the ready processes.
    fn offer(self: &Arc<Self>, mut app_sandbox: AppSandbox) {
        let mut state = self.state();
        while let Some(waiter) = state.waiters.pop_front() {
            match waiter.send(Ok(app_sandbox)) {
                Ok(()) => return,
                Err(Ok(back)) => app_sandbox = back,
                Err(Err(_)) => return,
            }
        }
        if state.ready.len() < state.target {
            self.watch(&app_sandbox);
            state.ready.push_back(ReadyProcess { app_sandbox, since: Instant::now() });
        }
    }

    /// Loads a replacement if a ready process ends. Loads nothing if the process was taken before.
    fn watch(self: &Arc<Self>, app_sandbox: &AppSandbox) {
        let (Ok(sandbox), pool) = (app_sandbox.sandbox().cloned(), Arc::downgrade(self)) else { return };
        tokio::spawn(async move {
            sandbox.exited().await.ok();
            if let Some(pool) = pool.upgrade() {
                pool.replenish();
                pool.replenish_after_suspension();
            }
        });
    }

    /// Replenishes again after the suspension.
    fn replenish_after_suspension(self: &Arc<Self>) {
        let Some(until) = self.state().suspended_until.filter(|until| Instant::now() < *until) else { return };
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(pool) = pool.upgrade() {
                pool.replenish();
            }
        });
    }

    /// Fails the first waiting call because loading timed out. The cause is unknown, so the deployment fails only if
    /// loads time out for `give_up_seconds`, which is longer than a machine is busy.
    fn fail_timeout(self: &Arc<Self>, runner_pool: &Inner, reason: String) {
        let limit = Duration::from_secs(runner_pool.sandboxes.config.give_up_seconds);
        let (has_failed, waiter) = {
            let mut state = self.state();
            state.suspend_ready();
            let late = state.first_timeout.get_or_insert_with(Instant::now).elapsed();
            let has_failed = late >= limit && state.give_up();
            (has_failed, state.waiters.pop_front())
        };
        tracing::warn!(deployment = %self.runnable.deployment, reason, "failed to load an app process");
        if let Some(waiter) = waiter {
            waiter.send(Err(reason.clone())).ok();
        }
        if has_failed {
            runner_pool.failed_sender.send(FailedDeployment { deployment: self.runnable.deployment, reason }).ok();
        } else {
            self.replenish_after_suspension();
        }
    }

    /// Fails the first waiting call, and the deployment after [`MAX_FAILURES`] consecutive failures.
    async fn fail(&self, runner_pool: &Inner, reason: String) {
        let (has_failed, waiter) = {
            let mut state = self.state();
            state.failures += 1;
            let has_failed = state.failures >= MAX_FAILURES && state.give_up();
            (has_failed, state.waiters.pop_front())
        };
        tracing::debug!(deployment = %self.runnable.deployment, reason, "failed to load an app process");
        if let Some(waiter) = waiter {
            waiter.send(Err(reason.clone())).ok();
        }
        if has_failed {
            runner_pool.failed_sender.send(FailedDeployment { deployment: self.runnable.deployment, reason }).ok();
        } else {
            tokio::time::sleep(LOAD_BACKOFF).await;
        }
    }

    /// Leaves calls waiting after a fault of this machine, which may recover. Fails the first waiting call after
    /// [`MAX_HOST_FAILURES`] consecutive failures.
    async fn fail_host(&self, reason: String) {
        let (host_failures, waiter) = {
            let mut state = self.state();
            state.host_failures += 1;
            let waiter = if state.host_failures >= MAX_HOST_FAILURES { state.waiters.pop_front() } else { None };
            (state.host_failures, waiter)
        };
        tracing::warn!(deployment = %self.runnable.deployment, reason, "this machine failed to load an app process");
        if let Some(waiter) = waiter {
            waiter.send(Err(reason)).ok();
        }
        tokio::time::sleep(LOAD_BACKOFF * host_failures.min(MAX_HOST_FAILURES)).await;
    }

    async fn load(&self, limits: CallLimits) -> Result<AppSandbox, LoadError> {
        let runner_pool = self.runner_pool.upgrade().ok_or_else(|| host("the server is going down"))?;
        let place = runner_pool.artifacts.directory_of(&self.runnable.artifact).await.map_err(host)?;
        let _own = self.loading.acquire().await.map_err(host)?;
        let load_slot = runner_pool.loading.acquire().await.map_err(host)?;
        let environment = &self.runnable.environment;
        let target = SandboxParams {
            kind: 'r',
            memory_bytes: limits.memory_bytes,
            disk_bytes: limits.disk_bytes,
            processes: limits.processes,
            policy: EgressPolicy::Web(authority(&environment.base_url).into_iter().collect()),
            artifact: Some(&place),
            base_url: Some(&environment.base_url),
        };
        let app_sandbox = runner_pool.sandboxes.open(target).await.map_err(host)?;
        let seconds = runner_pool.sandboxes.config.load_seconds;
        let command = load_command(&runner_pool.sandboxes, &self.runnable.entrypoint, environment, seconds);
        let mut stream = app_sandbox.ask(&Request::Load(command)).await.map_err(host)?;
        let mut sink = link::DiscardLines;
        let mut answering = std::pin::pin!(link::next_answer(&mut stream, &mut sink));
        let early = tokio::time::timeout(LOAD_SLOT_TIME, &mut answering).await;
        drop(load_slot);
        let answer = match early {
            Ok(answer) => Ok(answer),
            Err(_) => tokio::time::timeout(Duration::from_secs(seconds + 30), answering).await,
        };
        match answer {
            Ok(Ok(Answer::Loaded { .. })) => Ok(app_sandbox),
            Ok(Ok(Answer::Ended(outcome))) => Err(classify_exit(outcome, &app_sandbox)),
            Ok(Ok(Answer::Refused { reason })) => Err(LoadError::Program(reason)),
            Ok(Ok(_)) => Err(LoadError::Program("its process sent an unexpected answer".to_owned())),
            // The whole sandbox ended, not only the program: because of its limits, or from outside.
            Ok(Err(_)) if app_sandbox.sandbox().is_ok_and(casement_sandbox::Sandbox::oom_killed) => {
                Err(LoadError::Program(OUT_OF_MEMORY.to_owned()))
            }
            Ok(Err(_)) => Err(host("its process ended unexpectedly")),
            Err(_) => Err(host("its process was not loaded in time")),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn is_alive(app_sandbox: &AppSandbox) -> bool {
    app_sandbox.sandbox().is_ok_and(casement_sandbox::Sandbox::is_alive)
}
