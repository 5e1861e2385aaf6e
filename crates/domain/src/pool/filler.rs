//! Fills pools: plans the steps of one pool and starts its browsers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use time::{Duration, OffsetDateTime};

use super::model::MAX_BLOCKED_REASON;
use super::{Growth, LeaderFence, NodeBrowsers, Observed, Plan, Pool, PoolDeps, plan};
use crate::browser::{Browser, BrowserRepository, BrowserState, EngineError, Launch, Shape};
use crate::clock::{FirstSeen, MonotonicTime};
use crate::ids::{BrowserId, NodeId, PoolId, ProjectId};
use crate::session::Sessions;
use crate::store_error::{Replaced, StoreError};

/// The failures of filling a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillStatus {
    /// The number of consecutive failed starts.
    pub failures: u32,
    /// The reason of the last failure.
    pub reason: Option<String>,
    /// The time before which no start is tried.
    pub retry_at: Option<MonotonicTime>,
}

impl FillStatus {
    const FIRST_BACKOFF: Duration = Duration::seconds(1);
    const MAX_BACKOFF: Duration = Duration::minutes(5);

    fn failed(&self, reason: String, now: MonotonicTime) -> Self {
        let pause = Self::FIRST_BACKOFF * 2_i32.pow(self.failures.min(10));
        Self {
            failures: self.failures.saturating_add(1),
            reason: Some(reason),
            retry_at: Some(now + pause.min(Self::MAX_BACKOFF)),
        }
    }
}

/// The work found by one look at a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillRound {
    /// Browsers to start, each by [`PoolFiller::warm`].
    pub launches: Vec<Launch>,
    /// Browsers of this node to clean up, each by [`Sessions::clean_up`].
    pub discarded: Vec<BrowserId>,
    /// The project of the pool, for the fair order of starts.
    pub project: Option<ProjectId>,
    /// The time of the next look if nothing wakes the filler earlier.
    pub again_at: Option<MonotonicTime>,
    /// Other nodes to inform that they have browsers of the pool to start or to end.
    pub inform: Vec<NodeId>,
}

/// Fills this node's share of each pool. The leader of a pool also stores its growth.
#[derive(Clone)]
pub struct PoolFiller {
    deps: PoolDeps,
    browsers: Arc<dyn BrowserRepository>,
    sessions: Sessions,
    status: Arc<Mutex<HashMap<PoolId, FillStatus>>>,
    /// The browsers that this node starts or will start.
    starting: Arc<Mutex<HashSet<BrowserId>>>,
    /// The pools with a stored reason why they cannot be filled, as this node knows.
    blocked: Arc<Mutex<HashSet<PoolId>>>,
    /// Rows of browsers that are neither starting nor running.
    lost: Arc<Mutex<FirstSeen<BrowserId>>>,
    growth_clocks: Arc<Mutex<HashMap<PoolId, GrowthClock>>>,
    /// The work of other nodes that they were informed of. It is not reported again until they have done some of it.
    informed: Arc<Mutex<HashMap<PoolId, NodeWork>>>,
}

/// What other nodes have, and the number of browsers that they have to start or to end.
type NodeWork = Vec<(NodeBrowsers, u32)>;

/// The growth of a pool on the monotonic clock: the stored growth, and the moment from which it counts.
#[derive(Clone, Copy, Debug)]
struct GrowthClock {
    growth: Growth,
    since: MonotonicTime,
}

impl PoolFiller {
    /// The duration of a lead that is not renewed.
    pub const LEAD: Duration = Duration::seconds(30);
    /// The time within which a write with a lost answer may still take effect.
    const LATE_WRITE_TIMEOUT: Duration = Duration::minutes(1);

    /// The use case on these ports.
    #[must_use]
    pub fn new(deps: PoolDeps, browsers: Arc<dyn BrowserRepository>, sessions: Sessions) -> Self {
        Self {
            deps,
            browsers,
            sessions,
            status: Arc::default(),
            starting: Arc::default(),
            blocked: Arc::default(),
            lost: Arc::default(),
            growth_clocks: Arc::default(),
            informed: Arc::default(),
        }
    }

    fn statuses(&self) -> MutexGuard<'_, HashMap<PoolId, FillStatus>> {
        self.status.lock()
    }

    fn starting(&self) -> MutexGuard<'_, HashSet<BrowserId>> {
        self.starting.lock()
    }

    /// Returns the failures of filling the pool.
    #[must_use]
    pub fn status(&self, pool: PoolId) -> FillStatus {
        self.statuses().get(&pool).cloned().unwrap_or_default()
    }

    /// Takes or renews the lead of a pool, unless this node takes no browsers, and returns the work to do on this node. A
    /// deleted pool has none.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn look(&self, id: PoolId) -> Result<FillRound, StoreError> {
        let observed = self.deps.pools.observe(id, self.deps.node).await?;
        let fence = match observed.takes_none {
            // It may stop soon.
            true => None,
            false => self.deps.pools.lead(id, self.deps.node, Self::LEAD).await?,
        };
        let Some(pool) = self.deps.pools.find_by_id(id).await? else {
            self.forget(id);
            return Ok(FillRound::default());
        };
        let now = self.deps.monotonic.monotonic_now();
        let (steps, again_at) = match fence {
            Some(fence) => self.lead_growth(&pool, &observed, fence, now).await?,
            None => {
                self.growth_clocks().remove(&id);
                (plan(&pool, &observed, self.deps.node, pool.growth.since), None)
            }
        };
        let inform = self.to_inform(id, &observed, &steps);
        let is_full = fence.is_some() && steps.start == 0 && steps.others.is_empty() && !observed.has_warming();
        self.note_blocked(&pool, is_full).await?;
        let mut round = FillRound { project: Some(pool.project), again_at, inform, ..FillRound::default() };
        for browser in &steps.discard {
            if self.browsers.discard(*browser).await? {
                round.discarded.push(*browser);
            }
        }
        if !round.discarded.is_empty() {
            // The next look finds which nodes have room now.
            self.deps.wake.wake(id);
        }
        let status = self.status(id);
        match status.retry_at.filter(|at| *at > now && steps.start > 0) {
            Some(at) => round.again_at = Some(round.again_at.map_or(at, |other| other.min(at))),
            None => self.start(&pool, &steps, &status, &mut round).await?,
        }
        Ok(round)
    }

    /// Notes whether a reason is stored why the pool cannot be filled, and removes it from a pool that is full: its last
    /// browser may have been started by a node that did not know of the reason.
    async fn note_blocked(&self, pool: &Pool, is_full: bool) -> Result<(), StoreError> {
        if pool.blocked_reason.is_none() {
            self.blocked.lock().remove(&pool.id);
        } else if is_full {
            self.set_blocked(pool.id, None).await?;
        } else {
            self.blocked.lock().insert(pool.id);
        }
        Ok(())
    }

    /// Stores why the pool cannot be filled, or that a browser was started.
    async fn set_blocked(&self, pool: PoolId, reason: Option<&str>) -> Result<(), StoreError> {
        let is_blocked = reason.is_some();
        let reason = reason.map(|text| text.chars().take(MAX_BLOCKED_REASON).collect());
        self.deps.pools.set_blocked(pool, reason).await?;
        let mut blocked = self.blocked.lock();
        if is_blocked {
            blocked.insert(pool);
        } else {
            blocked.remove(&pool);
        }
        Ok(())
    }

    /// Plans the steps of a pool that this node leads, and stores its growth. Also returns the time of the next growth.
    async fn lead_growth(
        &self,
        pool: &Pool,
        observed: &Observed,
        fence: LeaderFence,
        now: MonotonicTime,
    ) -> Result<(Plan, Option<MonotonicTime>), StoreError> {
        let grown_until = self.grown_until(pool, now);
        let steps = plan(pool, observed, self.deps.node, grown_until);
        if steps.growth != pool.growth {
            let _ = self.deps.pools.grow(pool, fence, steps.growth).await?;
            let since = now - (grown_until - steps.growth.since);
            self.growth_clocks().insert(pool.id, GrowthClock { growth: steps.growth, since });
        }
        let again_at = steps.again_at.map(|at| now + (at - grown_until));
        Ok((steps, again_at))
    }

    /// Returns the other nodes whose browsers or work have changed since they were informed.
    fn to_inform(&self, pool: PoolId, observed: &Observed, steps: &Plan) -> Vec<NodeId> {
        let work_of = |one: &NodeBrowsers| {
            let work = steps.others.iter().find(|(node, _)| *node == one.node);
            work.map(|(_, number)| (*one, *number))
        };
        let work: NodeWork = observed.others.iter().filter_map(work_of).collect();
        let before = self.informed.lock().insert(pool, work.clone()).unwrap_or_default();
        work.into_iter().filter(|one| !before.contains(one)).map(|(one, _)| one.node).collect()
    }

    fn forget(&self, pool: PoolId) {
        self.statuses().remove(&pool);
        self.growth_clocks().remove(&pool);
        self.informed.lock().remove(&pool);
        self.blocked.lock().remove(&pool);
    }

    fn growth_clocks(&self) -> MutexGuard<'_, HashMap<PoolId, GrowthClock>> {
        self.growth_clocks.lock()
    }

    /// Returns the moment up to which a pool has grown, on the wall clock of its stored growth. The wall clock is read
    /// once for each growth that another node stored, and never counts backwards; from then on the monotonic clock
    /// counts.
    fn grown_until(&self, pool: &Pool, now: MonotonicTime) -> OffsetDateTime {
        let mut growth_clocks = self.growth_clocks();
        let known = growth_clocks.get(&pool.id).filter(|known| known.growth == pool.growth).copied();
        let counted = known.unwrap_or_else(|| {
            let grown = (self.deps.clock.now() - pool.growth.since).max(Duration::ZERO);
            GrowthClock { growth: pool.growth, since: now - grown }
        });
        growth_clocks.insert(pool.id, counted);
        pool.growth.since + (now - counted.since)
    }

    async fn start(
        &self,
        pool: &Pool,
        steps: &Plan,
        status: &FillStatus,
        round: &mut FillRound,
    ) -> Result<(), StoreError> {
        let has_limit = self.sessions.has_memory_limit(&pool.config.shape);
        let memory = has_limit.then(|| self.deps.installation.memory.reserve_default());
        let shape = Shape {
            memory: pool.config.shape.memory.or(memory),
            profile: self.deps.profiles.current(pool.config.shape.profile).await?,
            ..pool.config.shape.clone()
        };
        // After a failure only one start is tried at a time, so that a pool that cannot fill costs little.
        let max_starts = if status.failures > 0 { 1 } else { u32::MAX };
        for _ in 0..steps.start.min(max_starts) {
            let browser = Browser {
                id: BrowserId::mint(self.deps.ids.as_ref()),
                node: self.deps.node,
                pool: Some(pool.id),
                shape: shape.clone(),
                state: BrowserState::Warming,
                session: None,
                created_at: self.deps.clock.now(),
            };
            match self.deps.pools.warm(&browser, pool.generation).await {
                Ok(Replaced::Yes) => {}
                Ok(Replaced::LostRace) => break,
                // The rows before are stored, so their browsers are started.
                Err(_) if !round.launches.is_empty() => break,
                Err(error) => return Err(error),
            }
            self.starting().insert(browser.id);
            round.launches.push(Launch::new(browser.id, browser.shape, pool.config.timeout_seconds));
        }
        Ok(())
    }

    /// Starts one browser and puts it into its pool, where the first waiter gets it.
    ///
    /// # Errors
    /// Returns why it was not added; nothing of it remains then.
    pub async fn warm(&self, pool: PoolId, launch: &Launch) -> Result<(), WarmError> {
        let finish_warming = self.start_and_add(launch).await;
        let done = self.finish_warming(pool, launch, finish_warming).await;
        self.starting().remove(&launch.id);
        done
    }

    async fn finish_warming(
        &self,
        pool: PoolId,
        launch: &Launch,
        finish_warming: Result<(), WarmError>,
    ) -> Result<(), WarmError> {
        match finish_warming {
            Ok(()) => {
                self.statuses().remove(&pool);
                let was_blocked = self.blocked.lock().contains(&pool);
                if was_blocked {
                    // The browser is in its pool whether or not this fails; the next look tries again.
                    let _ = self.set_blocked(pool, None).await;
                }
                Ok(())
            }
            Err(error) => {
                // A start that a flush or the deletion of the pool ended has not failed.
                let wanted = self.browsers.discard(launch.id).await.unwrap_or(true);
                self.sessions.clean_up(launch.id).await;
                let error = match error {
                    WarmError::Engine(engine) if wanted => {
                        let reason = engine.to_string();
                        // If this fails, the next failed start stores its reason.
                        let _ = self.set_blocked(pool, Some(&reason)).await;
                        let next = self.status(pool).failed(reason, self.deps.monotonic.monotonic_now());
                        self.statuses().insert(pool, next);
                        WarmError::Engine(engine)
                    }
                    WarmError::Engine(_) => WarmError::NotWanted,
                    other => other,
                };
                self.deps.wake.wake(pool);
                Err(error)
            }
        }
    }

    /// Discards rows of browsers that are not running: rows that were stored, or could not be removed, because an
    /// answer of the store was lost.
    ///
    /// # Errors
    /// Returns the error of the store; the next call does the rest.
    pub async fn clear_lost(&self) -> Result<(), StoreError> {
        // Read before the rows: a browser that becomes ready in between is not lost.
        let starting = self.starting().clone();
        let mut lost = self.browsers.of_node(self.deps.node).await?;
        lost.retain(|browser| match browser.state {
            BrowserState::Warming => !starting.contains(&browser.id),
            // The start was abandoned after the browser had been stored as ready.
            BrowserState::Idle => !self.deps.engine.is_known(browser.id),
            BrowserState::Leased | BrowserState::Ending => false,
        });
        let for_long = self.lost_long_enough(lost.iter().map(|browser| browser.id).collect());
        for browser in lost.into_iter().filter(|browser| for_long.contains(&browser.id)) {
            if !self.browsers.discard(browser.id).await? {
                continue;
            }
            self.sessions.clean_up(browser.id).await;
            if let Some(pool) = browser.pool {
                self.deps.wake.wake(pool);
            }
        }
        Ok(())
    }

    fn lost_long_enough(&self, lost: Vec<BrowserId>) -> Vec<BrowserId> {
        let mut seen = self.lost.lock();
        seen.seen_for(lost, Self::LATE_WRITE_TIMEOUT, self.deps.monotonic.monotonic_now())
    }

    async fn start_and_add(&self, launch: &Launch) -> Result<(), WarmError> {
        // The pool may have changed while the start was queued.
        let row = self.browsers.find(launch.id).await?;
        if row.is_none_or(|row| row.state != BrowserState::Warming) {
            return Err(WarmError::NotWanted);
        }
        if launch.shape.directs_traffic() {
            self.deps.proxies.send(launch.id, &launch.shape).await.map_err(EngineError::from)?;
        }
        self.deps.engine.start(launch).await?;
        match self.deps.pools.ready(launch.id, self.deps.clock.now()).await? {
            Replaced::Yes => Ok(()),
            Replaced::LostRace => Err(WarmError::NotWanted),
        }
    }
}

/// The error of warming a browser.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// It could not be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The pool does not need it any more.
    #[error("the pool was deleted or changed")]
    NotWanted,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
