//! The loaded processes of one deployment that wait for a call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use casement_domain::invocation::{CallLimits, FailedDeployment, Runnable};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use super::Inner;
use crate::build::{OUT_OF_MEMORY, load_command, load_failure};
use crate::egress::EgressPolicy;
use crate::host::{AppSandbox, SandboxParams, authority};
use crate::link;
use crate::protocol::{Answer, Exit, Outcome, Request};

/// How many wait at most: one, and more of them while calls come faster than processes are loaded.
const MOST_READY: usize = 4;
/// After how long without such calls one is enough again.
const CALM: Duration = Duration::from_secs(60);
/// After how many failures in a row the deployment is given up, and how long each is rested.
const MOST_FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(2);

/// How often in a row this machine may fail to load one before those who wait are told.
const MOST_STUMBLES: u32 = 5;
/// The longest rest where a process is held ready and will not stay: calls have theirs loaded meanwhile.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// How many processes of one deployment are loaded at a time, and how long each keeps the others of this machine from it: most that take
/// longer wait for something.
const LOADING_OF_ONE: usize = 2;
const TURN: Duration = Duration::from_secs(10);

/// The processes of one deployment.
pub(super) struct DeploymentPool {
    runner_pool: Weak<Inner>,
    runnable: Runnable,
    loading: Semaphore,
    state: Mutex<State>,
}

/// Why a process was not loaded.
enum NotLoaded {
    /// The program's own fault: another one will not be loaded either.
    Program(String),
    /// It took too long: by itself, or because this machine was busy.
    Late(String),
    /// This machine's, which may pass.
    Host(String),
}

impl NotLoaded {
    fn reason(self) -> String {
        match self {
            Self::Program(reason) | Self::Late(reason) | Self::Host(reason) => reason,
        }
    }
}

fn host(error: impl std::fmt::Display) -> NotLoaded {
    NotLoaded::Host(error.to_string())
}

/// Whose fault it is that a process ended before it was loaded.
fn fault(outcome: Outcome, room: &AppSandbox) -> NotLoaded {
    let own_limit = room.sandbox().is_ok_and(casement_sandbox::Sandbox::oom_killed);
    let blame = match &outcome {
        _ if own_limit => NotLoaded::Program,
        Outcome::Died { exit: Exit::Late } => NotLoaded::Late,
        // Nobody inside does so: the kernel has, for want of memory.
        Outcome::Died { exit: Exit::Signal(9) } => NotLoaded::Host,
        _ => NotLoaded::Program,
    };
    blame(load_failure(outcome, room))
}

#[derive(Default)]
struct State {
    kept: bool,
    ready: VecDeque<Waiting>,
    waiters: VecDeque<oneshot::Sender<Result<AppSandbox, String>>>,
    loading: usize,
    failures: u32,
    stumbles: u32,
    wanted: usize,
    missed: Option<Instant>,
    /// How many in a row ended while they waited, or were not loaded in time; and until when none is held ready because of that.
    lapses: u32,
    rests: Option<Instant>,
    /// When the first of them was not loaded in time since one was.
    late_since: Option<Instant>,
}

/// A process that is held ready.
struct Waiting {
    room: AppSandbox,
    since: Instant,
}

impl State {
    /// A process that waits, if one does.
    fn ready(&mut self) -> Option<AppSandbox> {
        self.bury();
        self.ready.pop_front().map(|waiting| waiting.room)
    }

    /// Lets go of those that have ended while they waited.
    fn bury(&mut self) {
        let (living, ended): (VecDeque<Waiting>, VecDeque<Waiting>) =
            std::mem::take(&mut self.ready).into_iter().partition(|waiting| is_alive(&waiting.room));
        self.ready = living;
        if let Some(longest) = ended.iter().map(|waiting| waiting.since.elapsed()).max() {
            if longest > LONGEST_REST {
                self.lapses = 0;
            }
            self.lapse();
        }
    }

    /// None is held ready for a while, and for longer each time.
    fn lapse(&mut self) {
        let rest = REST.saturating_mul(1 << self.lapses.min(10)).min(LONGEST_REST);
        self.lapses = self.lapses.saturating_add(1);
        self.rests = Some(Instant::now() + rest);
    }

    /// Holds none ready any more, if it was to be; whether it was.
    fn give_up(&mut self) -> bool {
        if self.kept {
            self.wanted = 0;
        }
        std::mem::take(&mut self.kept)
    }

    /// How many are missing: for those who wait, and, where that is no vain endeavour, to be held ready.
    fn missing(&self) -> usize {
        let rests = self.rests.is_some_and(|until| Instant::now() < until);
        let wanted = if rests { 0 } else { self.wanted };
        (self.waiters.len() + wanted).saturating_sub(self.loading + self.ready.len())
    }
}

impl DeploymentPool {
    pub(super) fn new(runner_pool: &Arc<Inner>, runnable: Runnable, wanted: usize) -> Self {
        let state = State { wanted, ..State::default() };
        Self {
            runner_pool: Arc::downgrade(runner_pool),
            runnable,
            loading: Semaphore::new(LOADING_OF_ONE),
            state: Mutex::new(state),
        }
    }

    /// Holds a process ready from now on.
    pub(super) fn keep(self: &Arc<Self>) {
        {
            let mut state = self.state();
            if state.kept {
                return;
            }
            state.kept = true;
            state.wanted = state.wanted.max(1);
        }
        self.replenish();
    }

    /// Holds none ready any more, and ends those that wait. Whether it is still needed, by calls that wait for it.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state();
        state.kept = false;
        state.wanted = 0;
        let ended = std::mem::take(&mut state.ready);
        let needed = !state.waiters.is_empty();
        drop(state);
        drop(ended);
        needed
    }

    /// A loaded process, which is then nobody else's.
    pub(super) async fn take(self: &Arc<Self>, limits: CallLimits) -> Result<AppSandbox, String> {
        let runner_pool = self.runner_pool.upgrade().ok_or("the server is going down")?;
        if limits != runner_pool.rooms.config.call_limits {
            return self.load(limits).await.map_err(NotLoaded::reason);
        }
        let waiting = {
            let mut state = self.state();
            match state.ready() {
                Some(room) => Ok(room),
                None => {
                    if state.kept {
                        state.wanted = (state.wanted + 1).min(MOST_READY);
                        state.missed = Some(Instant::now());
                    }
                    let (give, waiting) = oneshot::channel();
                    state.waiters.push_back(give);
                    Err(waiting)
                }
            }
        };
        self.replenish();
        match waiting {
            Ok(room) => Ok(room),
            Err(waiting) => waiting.await.unwrap_or_else(|_| Err("the process was lost".to_owned())),
        }
    }

    /// Begins to load as many as are missing.
    fn replenish(self: &Arc<Self>) {
        let missing = {
            let mut state = self.state();
            if state.missed.is_some_and(|missed| missed.elapsed() > CALM) {
                state.wanted = state.wanted.min(1);
                state.missed = None;
            }
            state.bury();
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
        let loaded = self.load(runner_pool.rooms.config.call_limits).await;
        let failed = match loaded {
            Ok(room) => {
                {
                    let mut state = self.state();
                    (state.failures, state.stumbles, state.late_since) = (0, 0, None);
                }
                self.offer(room);
                None
            }
            Err(failed) => Some(failed),
        };
        match failed {
            Some(NotLoaded::Program(reason)) => self.fail(&runner_pool, reason).await,
            Some(NotLoaded::Late(reason)) => self.be_late(&runner_pool, reason),
            Some(NotLoaded::Host(reason)) => self.stumble(reason).await,
            None => {}
        }
        self.state().loading -= 1;
        self.replenish();
    }

    /// Gives a process to the first who waits, or has it wait itself.
    fn offer(self: &Arc<Self>, mut room: AppSandbox) {
        let mut state = self.state();
        while let Some(waiter) = state.waiters.pop_front() {
            match waiter.send(Ok(room)) {
                Ok(()) => return,
                Err(Ok(back)) => room = back,
                Err(Err(_)) => return,
            }
        }
        if state.ready.len() < state.wanted {
            self.watch(&room);
            state.ready.push_back(Waiting { room, since: Instant::now() });
        }
    }

    /// Loads another one when this one ends while it waits; when it was taken, nothing is missing then.
    fn watch(self: &Arc<Self>, room: &AppSandbox) {
        let (Ok(sandbox), pool) = (room.sandbox().cloned(), Arc::downgrade(self)) else { return };
        tokio::spawn(async move {
            sandbox.exited().await.ok();
            if let Some(pool) = pool.upgrade() {
                pool.replenish();
                pool.replenish_rested();
            }
        });
    }

    /// Looks again what is missing, once there was a rest.
    fn replenish_rested(self: &Arc<Self>) {
        let Some(until) = self.state().rests.filter(|until| Instant::now() < *until) else { return };
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(pool) = pool.upgrade() {
                pool.replenish();
            }
        });
    }

    /// Tells whoever waits that it took too long. Nobody knows whose fault that is, so that the deployment is given up only when it has
    /// gone on for longer than a machine is busy.
    fn be_late(self: &Arc<Self>, runner_pool: &Inner, reason: String) {
        let patience = Duration::from_secs(runner_pool.rooms.config.give_up_seconds);
        let (failed_deployment, waiter) = {
            let mut state = self.state();
            state.lapse();
            let late = state.late_since.get_or_insert_with(Instant::now).elapsed();
            let failed_deployment = late >= patience && state.give_up();
            (failed_deployment, state.waiters.pop_front())
        };
        tracing::warn!(deployment = %self.runnable.deployment, reason, "a process was not loaded");
        if let Some(waiter) = waiter {
            waiter.send(Err(reason.clone())).ok();
        }
        if failed_deployment {
            runner_pool.fall.send(FailedDeployment { deployment: self.runnable.deployment, reason }).ok();
        } else {
            self.replenish_rested();
        }
    }

    /// Tells whoever waits that there will be no process, and gives the deployment up when that has gone on for a while.
    async fn fail(&self, runner_pool: &Inner, reason: String) {
        let (failed_deployment, waiter) = {
            let mut state = self.state();
            state.failures += 1;
            let failed_deployment = state.failures >= MOST_FAILURES && state.give_up();
            (failed_deployment, state.waiters.pop_front())
        };
        tracing::debug!(deployment = %self.runnable.deployment, reason, "a process was not loaded");
        if let Some(waiter) = waiter {
            waiter.send(Err(reason.clone())).ok();
        }
        if failed_deployment {
            runner_pool.fall.send(FailedDeployment { deployment: self.runnable.deployment, reason }).ok();
        } else {
            tokio::time::sleep(REST).await;
        }
    }

    /// Whoever waits goes on waiting while this machine may come to itself again; nothing of it is the program's fault.
    async fn stumble(&self, reason: String) {
        let (stumbles, waiter) = {
            let mut state = self.state();
            state.stumbles += 1;
            let waiter = if state.stumbles >= MOST_STUMBLES { state.waiters.pop_front() } else { None };
            (state.stumbles, waiter)
        };
        tracing::warn!(deployment = %self.runnable.deployment, reason, "this machine could not load a process");
        if let Some(waiter) = waiter {
            waiter.send(Err(reason)).ok();
        }
        tokio::time::sleep(REST * stumbles.min(MOST_STUMBLES)).await;
    }

    async fn load(&self, limits: CallLimits) -> Result<AppSandbox, NotLoaded> {
        let runner_pool = self.runner_pool.upgrade().ok_or_else(|| host("the server is going down"))?;
        let place = runner_pool.artifacts.place(&self.runnable.artifact).await.map_err(host)?;
        let _own = self.loading.acquire().await.map_err(host)?;
        let turn = runner_pool.loading.acquire().await.map_err(host)?;
        let environment = &self.runnable.environment;
        let wanted = SandboxParams {
            kind: 'r',
            memory_bytes: limits.memory_bytes,
            disk_bytes: limits.disk_bytes,
            processes: limits.processes,
            reach: EgressPolicy::Web(authority(&environment.base_url).into_iter().collect()),
            artifact: Some(&place),
            base_url: Some(&environment.base_url),
        };
        let room = runner_pool.rooms.open(wanted).await.map_err(host)?;
        let seconds = runner_pool.rooms.config.load_seconds;
        let command = load_command(&runner_pool.rooms, &self.runnable.entrypoint, environment, seconds);
        let mut stream = room.ask(&Request::Load(command)).await.map_err(host)?;
        let mut deaf = link::DiscardLines;
        let mut answering = std::pin::pin!(link::words(&mut stream, &mut deaf));
        let soon = tokio::time::timeout(TURN, &mut answering).await;
        drop(turn);
        let answer = match soon {
            Ok(answer) => Ok(answer),
            Err(_) => tokio::time::timeout(Duration::from_secs(seconds + 30), answering).await,
        };
        match answer {
            Ok(Ok(Answer::Loaded { .. })) => Ok(room),
            Ok(Ok(Answer::Ended(outcome))) => Err(fault(outcome, &room)),
            Ok(Ok(Answer::Refused { reason })) => Err(NotLoaded::Program(reason)),
            Ok(Ok(_)) => Err(NotLoaded::Program("its process said something else than was asked".to_owned())),
            // The whole sandbox, not the program alone: held down by its own limits, or ended from outside.
            Ok(Err(_)) if room.sandbox().is_ok_and(casement_sandbox::Sandbox::oom_killed) => {
                Err(NotLoaded::Program(OUT_OF_MEMORY.to_owned()))
            }
            Ok(Err(_)) => Err(host("its process broke off")),
            Err(_) => Err(host("its process was not loaded in time")),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_alive(room: &AppSandbox) -> bool {
    room.sandbox().is_ok_and(casement_sandbox::Sandbox::is_alive)
}
