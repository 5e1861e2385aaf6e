//! Keeps pools full: one look at a pool, and what follows from it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::{Duration, OffsetDateTime};

use super::{Growth, LeaderFence, Plan, Pool, PoolDeps, plan};
use crate::browser::{Browser, BrowserRepository, BrowserState, EngineError, Launch, Shape};
use crate::clock::{FirstSeen, MonotonicTime};
use crate::ids::{BrowserId, PoolId, ProjectId};
use crate::session::Sessions;
use crate::store_error::{Replaced, StoreError};

/// How it goes with filling a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillStatus {
    /// Starts that failed in a row.
    pub failures: u32,
    /// Why the last one failed.
    pub reason: Option<String>,
    /// No start before this.
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

/// What one look at a pool found to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillRound {
    /// Browsers to start, each by [`PoolFiller::warm`].
    pub launches: Vec<Launch>,
    /// Browsers of this node to bury, each by [`Sessions::clean_up`].
    pub discarded: Vec<BrowserId>,
    /// Whose pool it is, for the turns of starting.
    pub project: Option<ProjectId>,
    /// When to look again if nothing happens before.
    pub again_at: Option<MonotonicTime>,
}

/// Fills pools of which this node is the leader.
#[derive(Clone)]
pub struct PoolFiller {
    deps: PoolDeps,
    browsers: Arc<dyn BrowserRepository>,
    sessions: Sessions,
    status: Arc<Mutex<HashMap<PoolId, FillStatus>>>,
    /// The browsers that this node is to start, or starts.
    starting: Arc<Mutex<HashSet<BrowserId>>>,
    /// Rows of browsers that nobody starts or runs.
    lost: Arc<Mutex<FirstSeen<BrowserId>>>,
    growing: Arc<Mutex<HashMap<PoolId, Growing>>>,
}

/// How the growth of a pool counts in this process: as it was stored last, and at which moment it had been growing for nothing yet.
#[derive(Clone, Copy, Debug)]
struct Growing {
    growth: Growth,
    since: MonotonicTime,
}

impl PoolFiller {
    /// How long a lead lasts unless it is renewed.
    pub const LEAD: Duration = Duration::seconds(20);
    /// A browser that was to be stored may be stored this much later still.
    const LATE: Duration = Duration::minutes(1);

    /// The use case on these ports.
    #[must_use]
    pub fn new(deps: PoolDeps, browsers: Arc<dyn BrowserRepository>, sessions: Sessions) -> Self {
        Self {
            deps,
            browsers,
            sessions,
            status: Arc::default(),
            starting: Arc::default(),
            lost: Arc::default(),
            growing: Arc::default(),
        }
    }

    fn statuses(&self) -> MutexGuard<'_, HashMap<PoolId, FillStatus>> {
        // Entries are replaced as a whole, so a panic elsewhere leaves no half-made one.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn starting(&self) -> MutexGuard<'_, HashSet<BrowserId>> {
        // Every change is one call, so a panic elsewhere leaves nothing half-made.
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it goes with filling the pool.
    #[must_use]
    pub fn status(&self, pool: PoolId) -> FillStatus {
        self.statuses().get(&pool).cloned().unwrap_or_default()
    }

    /// Looks at a pool: takes or renews the lead, and says what is to be done. A pool that is gone, or that another
    /// node leads, gives nothing to do.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn look(&self, id: PoolId) -> Result<FillRound, StoreError> {
        let Some(fence) = self.deps.pools.lead(id, self.deps.node, Self::LEAD).await? else {
            self.statuses().remove(&id);
            self.growing().remove(&id);
            return Ok(FillRound::default());
        };
        let Some(pool) = self.deps.pools.find_by_id(id).await? else { return Ok(FillRound::default()) };
        let observed = self.deps.pools.observe(id).await?;
        let now = self.deps.monotonic.monotonic_now();
        let grown_until = self.grown_until(&pool, now);
        let steps = plan(&pool, &observed, grown_until);
        if steps.growth != pool.growth {
            let _ = self.deps.pools.grow(&pool, fence, steps.growth).await?;
            let since = now - (grown_until - steps.growth.since);
            self.growing().insert(id, Growing { growth: steps.growth, since });
        }
        let again_at = steps.again_at.map(|at| now + (at - grown_until));
        let mut round = FillRound { project: Some(pool.project), again_at, ..FillRound::default() };
        for browser in &steps.discard {
            let row = self.browsers.find(*browser).await?;
            if self.browsers.discard(*browser).await? && row.is_some_and(|row| row.node == self.deps.node) {
                round.discarded.push(*browser);
            }
        }
        let status = self.status(id);
        match status.retry_at.filter(|at| *at > now && steps.start > 0) {
            Some(at) => round.again_at = Some(round.again_at.map_or(at, |other| other.min(at))),
            None => self.start(&pool, fence, &steps, &status, &mut round).await?,
        }
        Ok(round)
    }

    fn growing(&self) -> MutexGuard<'_, HashMap<PoolId, Growing>> {
        // Entries are replaced as a whole, so a panic elsewhere leaves no half-made one.
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to which moment a pool has been growing, on the clock by which its growth is stored. That clock is asked once for each growth
    /// that somebody else stored, and one that was set back since counts for nothing; from then on it is how time passes here.
    fn grown_until(&self, pool: &Pool, now: MonotonicTime) -> OffsetDateTime {
        let mut growing = self.growing();
        let known = growing.get(&pool.id).filter(|known| known.growth == pool.growth).copied();
        let counted = known.unwrap_or_else(|| {
            let grown = (self.deps.clock.now() - pool.growth.since).max(Duration::ZERO);
            Growing { growth: pool.growth, since: now - grown }
        });
        growing.insert(pool.id, counted);
        pool.growth.since + (now - counted.since)
    }

    async fn start(
        &self,
        pool: &Pool,
        fence: LeaderFence,
        steps: &Plan,
        status: &FillStatus,
        round: &mut FillRound,
    ) -> Result<(), StoreError> {
        let shape = Shape {
            profile: self.deps.profiles.current(pool.config.shape.profile).await?,
            ..pool.config.shape.clone()
        };
        // After a failure one start at a time is tried, so that a pool that cannot fill costs little.
        let most = if status.failures > 0 { 1 } else { u32::MAX };
        for _ in 0..steps.start.min(most) {
            let browser = Browser {
                id: BrowserId::mint(self.deps.ids.as_ref()),
                node: self.deps.node,
                pool: Some(pool.id),
                shape: shape.clone(),
                state: BrowserState::Warming,
                session: None,
                created_at: self.deps.clock.now(),
            };
            match self.deps.pools.warm(&browser, fence, pool.generation).await {
                Ok(Replaced::Yes) => {}
                Ok(Replaced::LostRace) => break,
                // Those before are stored, and are to be started all the same.
                Err(_) if !round.launches.is_empty() => break,
                Err(error) => return Err(error),
            }
            self.starting().insert(browser.id);
            round.launches.push(Launch {
                id: browser.id,
                shape: browser.shape,
                abandoned_after_seconds: pool.config.timeout_seconds,
            });
        }
        Ok(())
    }

    /// Starts one browser of a round and puts it into its pool, where the first in line gets it.
    ///
    /// # Errors
    /// Why it was not put there; nothing of it is left then.
    pub async fn warm(&self, pool: PoolId, launch: &Launch) -> Result<(), WarmError> {
        let warmed = self.warm_quietly(launch).await;
        let done = self.warmed(pool, launch, warmed).await;
        self.starting().remove(&launch.id);
        done
    }

    async fn warmed(&self, pool: PoolId, launch: &Launch, warmed: Result<(), WarmError>) -> Result<(), WarmError> {
        match warmed {
            Ok(()) => {
                self.statuses().remove(&pool);
                Ok(())
            }
            Err(error) => {
                // A start that somebody ended on purpose, by a flush or with the pool, has not failed.
                let wanted = self.browsers.discard(launch.id).await.unwrap_or(true);
                self.sessions.clean_up(launch.id).await;
                let error = match error {
                    WarmError::Engine(engine) if wanted => {
                        let next = self.status(pool).failed(engine.to_string(), self.deps.monotonic.monotonic_now());
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

    /// Takes the places of browsers that nobody starts: they were stored, or could not be given up, while the answers of the store were
    /// lost.
    ///
    /// # Errors
    /// The store's failure; what is not done is done at the next call.
    pub async fn clear_lost(&self) -> Result<(), StoreError> {
        // Before the rows are read: one that is started in between is ready, and not lost.
        let starting = self.starting().clone();
        let mut lost = self.browsers.of_node(self.deps.node).await?;
        lost.retain(|browser| match browser.state {
            BrowserState::Warming => !starting.contains(&browser.id),
            // It was given up after it had been stored as ready.
            BrowserState::Idle => !self.deps.engine.is_known(browser.id),
            BrowserState::Leased | BrowserState::Ending => false,
        });
        let for_long = self.lost_for_long(lost.iter().map(|browser| browser.id).collect());
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

    fn lost_for_long(&self, lost: Vec<BrowserId>) -> Vec<BrowserId> {
        let mut seen = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        seen.seen_for(lost, Self::LATE, self.deps.monotonic.monotonic_now())
    }

    async fn warm_quietly(&self, launch: &Launch) -> Result<(), WarmError> {
        // It may have waited for its turn, and not be wanted any more.
        let row = self.browsers.find(launch.id).await?;
        if row.is_none_or(|row| row.state != BrowserState::Warming) {
            return Err(WarmError::NotWanted);
        }
        if launch.shape.proxy.is_some() {
            self.deps.proxies.send(launch.id, launch.shape.proxy).await.map_err(EngineError::from)?;
        }
        self.deps.engine.start(launch).await?;
        match self.deps.pools.ready(launch.id, self.deps.clock.now()).await? {
            Replaced::Yes => Ok(()),
            Replaced::LostRace => Err(WarmError::NotWanted),
        }
    }
}

/// A browser was not put into its pool.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// It could not be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The pool does not want it any more.
    #[error("the pool is gone or was changed")]
    NotWanted,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
