//! Keeps this node's pools full: checks a pool when it changes, and starts missing browsers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::browser::{EngineError, EngineFault, Launch};
use casement_domain::node::{OwnState, PeerNotice, Peers};
use casement_domain::pool::{FairQueue, FillRound, PoolFiller, PoolRepository, WarmError};
use casement_domain::session::{PoolWake, Sessions};
use casement_domain::{MonotonicClock as _, MonotonicTime, PoolId, ProjectId};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::pool_gauges::PoolGauges;
use super::{Job, NodeWaker, StartSlots};
use crate::system::System;

/// The interval at which the leads are renewed, well below the time that they last.
const RENEW_INTERVAL: Duration = Duration::from_secs(12);
/// The interval between checks of all pools, which find what was not notified.
const CHECK_INTERVAL: Duration = Duration::from_secs(24);
/// The number of checks after which a pool is looked at even if nothing about it seems to have changed.
const CHECKS_PER_LOOK: u32 = 12;

/// The changed pools, which the job checks next.
#[derive(Clone, Default)]
pub(crate) struct PoolWaker {
    signalled: Arc<Mutex<Signalled>>,
    notify: Arc<Notify>,
}

#[derive(Default)]
struct Signalled {
    pools: HashSet<PoolId>,
    all: bool,
}

impl PoolWaker {
    /// Checks all pools.
    pub(crate) fn wake_all(&self) {
        self.signalled.lock().all = true;
        self.notify.notify_one();
    }

    fn answer(&self) -> Signalled {
        std::mem::take(&mut *self.signalled.lock())
    }
}

impl PoolWake for PoolWaker {
    fn wake(&self, pool: PoolId) {
        self.signalled.lock().pools.insert(pool);
        self.notify.notify_one();
    }
}

/// The services and state of the job.
pub(crate) struct PoolFillJob {
    pub(crate) own: OwnState,
    pub(crate) node_waker: NodeWaker,
    pub(crate) filler: PoolFiller,
    pub(crate) pools: Arc<dyn PoolRepository>,
    pub(crate) sessions: Sessions,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) waker: PoolWaker,
    pub(crate) slots: StartSlots,
    pub(crate) figures: PoolGauges,
    /// Receives each checked pool.
    pub(crate) checked_pools: mpsc::UnboundedSender<PoolId>,
}

fn reason_code(error: &EngineError) -> &'static str {
    match error {
        EngineError::Failed { fault, .. } | EngineError::Lost { fault, .. } => match fault {
            EngineFault::BrowserCrashed => "browser_crashed",
            EngineFault::BrowserHung => "browser_hung",
            EngineFault::AgentError => "agent_error",
            EngineFault::DisplayError => "display_error",
            EngineFault::ProxyError => "proxy_error",
            EngineFault::RemoteError => "engine_error",
        },
        EngineError::NotRunning(_) => "not_running",
        EngineError::Timeout { .. } => "timeout",
        EngineError::Full(_) | EngineError::NoRoom(_) => "no_room",
        EngineError::OutOfRange(_) => "out_of_range",
        EngineError::Waits(_) => "waits",
        EngineError::Extension(_) => "extension",
        EngineError::Profile(_) => "profile",
        EngineError::Unavailable(_) => "unavailable",
        EngineError::Location(_) => "location",
    }
}

#[async_trait]
impl Job for PoolFillJob {
    fn name(&self) -> &'static str {
        "pools"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Runs until `stop`. Unfinished starts end with the process, and the next process of the node cleans them up.
    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        fill_pools(self, stop).await;
        Ok(())
    }
}

async fn fill_pools(context: &PoolFillJob, stop: &CancellationToken) {
    let mut queue: FairQueue<ProjectId, (PoolId, Launch)> = FairQueue::default();
    let mut later: BTreeMap<PoolId, MonotonicTime> = BTreeMap::new();
    let mut round = tokio::time::interval(CHECK_INTERVAL);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut renewal = tokio::time::interval(RENEW_INTERVAL);
    renewal.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut own_changes = context.node_waker.changes();
    let mut settled = Settled::default();
    loop {
        let mut due = HashSet::new();
        let next = later.values().min().copied();
        tokio::select! {
            () = stop.cancelled() => return,
            () = context.waker.notify.notified() => due = signalled_pools(context).await,
            // This node has read only now whether it takes browsers.
            () = own_changes.next() => due = every_pool(context).await,
            _ = round.tick() => due = settled.changed_pools(context).await,
            _ = renewal.tick() => renew_leads(context).await,
            () = until(next) => {}
            permit = context.slots.take(), if !queue.is_empty() => {
                if let Some((pool, launch)) = queue.pop() {
                    start(context, (pool, launch), permit, stop.clone());
                }
                continue;
            }
        }
        // A node that drains has no share, but informs others of what it leaves to them.
        if context.own.answers().is_err() {
            later.clear();
            continue;
        }
        let now = System.monotonic_now();
        due.extend(later.iter().filter(|(_, at)| **at <= now).map(|(pool, _)| *pool));
        for pool in due {
            later.remove(&pool);
            match context.filler.look(pool).await {
                Ok(found) => {
                    settled.note(pool, &found);
                    later.extend(found.again_at.map(|at| (pool, at)));
                    enqueue_launches(context, &mut queue, pool, found);
                    let _ = context.checked_pools.send(pool);
                }
                Err(error) => {
                    warn!(%pool, %error, "cannot check a pool");
                    later.insert(pool, now + time::Duration::seconds(1));
                }
            }
        }
    }
}

/// The conditions of the pools at the checks that found nothing to do. They need no look until the condition is another one.
#[derive(Default)]
struct Settled {
    conditions: HashMap<PoolId, String>,
    /// The conditions that the last check has read, of the pools that it found changed.
    read: HashMap<PoolId, String>,
    checks: u32,
}

impl Settled {
    /// Returns the pools of which something has changed, and now and then all.
    async fn changed_pools(&mut self, context: &PoolFillJob) -> HashSet<PoolId> {
        let mut all: HashMap<_, _> = match context.pools.all_conditions(context.own.id()).await {
            Ok(all) => all.into_iter().collect(),
            Err(error) => {
                warn!(%error, "cannot list the pools");
                return HashSet::new();
            }
        };
        // A pool that was deleted is looked at once more.
        let gone: Vec<_> =
            self.conditions.extract_if(|pool, _| !all.contains_key(pool)).map(|(pool, _)| pool).collect();
        if !self.checks.is_multiple_of(CHECKS_PER_LOOK) {
            all.retain(|pool, condition| self.conditions.get(pool) != Some(condition));
        }
        self.checks = self.checks.wrapping_add(1);
        self.read = all;
        self.read.keys().copied().chain(gone).collect()
    }

    /// Notes the result of a look.
    fn note(&mut self, pool: PoolId, found: &FillRound) {
        self.conditions.remove(&pool);
        let is_idle = found.launches.is_empty() && found.discarded.is_empty() && found.inform.is_empty();
        if let Some(condition) = self.read.remove(&pool).filter(|_| is_idle && found.again_at.is_none()) {
            self.conditions.insert(pool, condition);
        }
    }
}

async fn signalled_pools(context: &PoolFillJob) -> HashSet<PoolId> {
    let Signalled { mut pools, all } = context.waker.answer();
    if all {
        pools.extend(every_pool(context).await);
    }
    pools
}

async fn every_pool(context: &PoolFillJob) -> HashSet<PoolId> {
    match context.pools.all().await {
        Ok(pools) => pools.into_iter().collect(),
        Err(error) => {
            warn!(%error, "cannot list the pools");
            HashSet::new()
        }
    }
}

/// Renews the leads of this node, unless it may stop soon.
async fn renew_leads(context: &PoolFillJob) {
    if context.own.takes_sessions()
        && let Err(error) = context.pools.renew_leads(context.own.id(), PoolFiller::LEAD).await
    {
        // The next check of each pool leads it again.
        debug!(%error, "cannot renew the leads of pools");
    }
}

async fn until(moment: Option<MonotonicTime>) {
    match moment {
        Some(moment) => {
            let left = Duration::try_from(moment - System.monotonic_now()).unwrap_or(Duration::ZERO);
            // Prevents a busy loop.
            tokio::time::sleep(left.max(Duration::from_millis(20))).await;
        }
        None => std::future::pending().await,
    }
}

fn enqueue_launches(
    context: &PoolFillJob,
    queue: &mut FairQueue<ProjectId, (PoolId, Launch)>,
    pool: PoolId,
    found: FillRound,
) {
    for node in found.inform {
        let peers = context.peers.clone();
        // A node that does not receive the notice finds its work at its next check of all pools.
        tokio::spawn(async move { peers.inform(node, PeerNotice::Pool(pool)).await });
    }
    for browser in found.discarded {
        let sessions = context.sessions.clone();
        tokio::spawn(async move { sessions.clean_up(browser).await });
    }
    if let Some(project) = found.project {
        found.launches.into_iter().for_each(|launch| queue.push(project, (pool, launch)));
    }
}

fn start(
    context: &PoolFillJob,
    (pool, launch): (PoolId, Launch),
    permit: tokio::sync::OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    let filler = context.filler.clone();
    let figures = context.figures.clone();
    let waker = context.waker.clone();
    tokio::spawn(async move {
        let result = filler.warm(pool, &launch).await;
        drop(permit);
        let status = filler.status(pool);
        match result {
            Ok(()) => {
                figures.started(pool);
                info!(%pool, browser = %launch.id, "a browser is ready in its pool");
                waker.wake(pool);
            }
            Err(error) if stop.is_cancelled() => {
                debug!(%pool, browser = %launch.id, %error, "the stop of the server ended a start");
            }
            Err(WarmError::Engine(error)) => {
                figures.failed(pool, status.failures, reason_code(&error));
                let retry_in_ms = status.retry_at.map(|at| (at - System.monotonic_now()).whole_milliseconds());
                let failures = status.failures;
                warn!(%pool, %error, failures, retry_in_ms, "a pool cannot fill");
            }
            Err(error) => debug!(%pool, browser = %launch.id, %error, "a started browser is not needed any more"),
        }
    });
}
