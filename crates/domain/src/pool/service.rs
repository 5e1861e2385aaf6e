//! The use cases of pools: create, list, get, update, delete, flush.

use std::sync::Arc;

use super::{
    Generation, Growth, Pool, PoolConfig, PoolCounts, PoolDeleted, PoolFilter, PoolRepository, PoolRequest, PoolStored,
    PoolUpdateRequest, TicketNotifier, WaitQueue,
};
use crate::access::Scope;
use crate::browser::{BrowserEngine, Installation, Memory};
use crate::clock::{Clock, IdSource, MonotonicClock};
use crate::error::{NameTaken, NotFound, SpecificError, UseCaseError};
use crate::extension::{ExtensionRepository, resolve};
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{ExtensionId, NodeId, PoolId, ProxyId};
use crate::network::{Network, NewNetwork, StaleNetwork};
use crate::page::{Listed, Page};
use crate::profile::{LoadedProfile, SessionProfiles};
use crate::proxy::ProxyRouting;
use crate::reference::Reference;
use crate::session::{IdOrName, NotSupported, PoolWake, SessionEvent, SessionRepository, Sessions, check_start_url};
use crate::store_error::StoreError;

/// The ports of the use cases of pools.
#[derive(Clone)]
pub struct PoolDeps {
    /// This node.
    pub node: NodeId,
    /// What the operator sets for all browsers.
    pub installation: Installation,
    /// The stored pools.
    pub pools: Arc<dyn PoolRepository>,
    /// The stored sessions.
    pub sessions: Arc<dyn SessionRepository>,
    /// The wait queue.
    pub wait_queue: Arc<dyn WaitQueue>,
    /// The notification of waiters.
    pub tickets: Arc<dyn TicketNotifier>,
    /// The browser engine.
    pub engine: Arc<dyn BrowserEngine>,
    /// The stored extensions.
    pub extensions: Arc<dyn ExtensionRepository>,
    /// The routing of browsers through proxies.
    pub proxies: ProxyRouting,
    /// The profiles of browsers.
    pub profiles: SessionProfiles,
    /// The waker of the pool filler.
    pub wake: Arc<dyn PoolWake>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The monotonic clock.
    pub monotonic: Arc<dyn MonotonicClock>,
    /// The source of new identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The maximum of pools of a project.
    pub max_pools: u32,
}

/// The error of changing a pool.
pub type UpdatePoolError = UseCaseError<StaleNetwork>;

impl SpecificError for StaleNetwork {}

/// The error of deleting a pool.
pub type DeletePoolError = UseCaseError<BrowsersLeased>;

/// The error of deleting a pool of which browsers are leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{leased} browsers of the pool are leased; release them, or delete the pool with force")]
pub struct BrowsersLeased {
    /// The number of leased browsers.
    pub leased: u32,
}

impl SpecificError for BrowsersLeased {}

/// The use cases.
#[derive(Clone)]
pub struct Pools {
    deps: PoolDeps,
    sessions: Sessions,
}

impl Pools {
    /// The default maximum of pools of a project.
    pub const DEFAULT_MAX_POOLS: u32 = 100;

    /// Creates the use cases on these ports.
    #[must_use]
    pub fn new(deps: PoolDeps, sessions: Sessions) -> Self {
        Self { deps, sessions }
    }

    /// Creates a pool and starts its browsers at once.
    ///
    /// # Errors
    /// See [`UseCaseError`].
    pub async fn create(&self, scope: &Scope, mut input: PoolRequest) -> Result<(Pool, PoolCounts), UseCaseError> {
        scope.writable()?;
        self.sessions.find_destination(scope, &mut input.telemetry).await?;
        let requested = input.extensions.clone().unwrap_or_default();
        let proxy = input.proxy.clone();
        let profile = input.requested_profile().cloned();
        let (region, memory) = (input.requested_region(), input.requested_memory());
        let network = input.requested_network();
        let (name, mut config) = input.parse(self.sessions.engines())?;
        self.deps.installation.check_region(region)?;
        self.set_memory(&mut config, memory)?;
        config.shape.extensions = self.extensions(scope, &requested).await?;
        config.shape.proxy = self.proxy(scope, proxy.as_deref().unwrap_or_default()).await?;
        config.shape.profile = self.profile(scope, profile.as_ref()).await?;
        config.shape.network = self.network(scope, network?).await?;
        check_start_url(&config.shape, config.start_url.as_ref())?;
        let now = self.deps.clock.now();
        let pool = Pool {
            id: PoolId::mint(self.deps.ids.as_ref()),
            project: scope.project_id(),
            name,
            growth: Growth { allowance: config.size, since: now },
            generation: Generation::default(),
            config,
            blocked_reason: None,
            created_at: now,
            updated_at: now,
        };
        let stored = self.deps.pools.create(scope.organization(), &pool, self.deps.max_pools).await?;
        self.stored(stored, &pool)?;
        self.deps.wake.wake(pool.id);
        Ok((pool, PoolCounts::default()))
    }

    /// Sets the memory of the pool's browsers, if a request names one.
    fn set_memory(&self, config: &mut PoolConfig, requested: Option<Memory>) -> Result<(), NotSupported> {
        if let Some(requested) = requested {
            config.shape.memory = Some(self.deps.installation.memory.reserve(requested)?);
        }
        Ok(())
    }

    /// Returns the memory of the browsers that a pool starts.
    fn memory_of(&self, config: &PoolConfig) -> Memory {
        config.shape.memory.map_or(self.deps.installation.memory.default, |memory| memory.limit)
    }

    async fn extensions(&self, scope: &Scope, requested: &[Reference]) -> Result<Vec<ExtensionId>, UseCaseError> {
        resolve(&*self.deps.extensions, scope, requested).await
    }

    async fn proxy(&self, scope: &Scope, requested: &str) -> Result<Option<ProxyId>, UseCaseError> {
        if requested.is_empty() {
            return Ok(None);
        }
        self.deps.proxies.resolve(scope, requested).await.map(Some)
    }

    async fn network(&self, scope: &Scope, requested: Option<NewNetwork>) -> Result<Option<Network>, UseCaseError> {
        let Some(requested) = requested else { return Ok(None) };
        self.deps.proxies.resolve_network(scope, &requested).await
    }

    async fn profile(
        &self,
        scope: &Scope,
        requested: Option<&Reference>,
    ) -> Result<Option<LoadedProfile>, UseCaseError> {
        let Some(requested) = requested else { return Ok(None) };
        let found = self.deps.profiles.resolve::<UseCaseError>(scope, requested).await?;
        Ok(Some(LoadedProfile { id: found.id, version: None, save_changes: false }))
    }

    fn stored(&self, stored: PoolStored, pool: &Pool) -> Result<(), UseCaseError> {
        match (stored, &pool.name) {
            (PoolStored::Yes, _) => Ok(()),
            (PoolStored::NameTaken, Some(name)) => Err(NameTaken::new("a pool", name.as_str()).into()),
            (PoolStored::NameTaken, None) => unreachable!("a pool without a name takes none"),
            (PoolStored::LimitExceeded(limit), _) => Err(limit.into()),
            (PoolStored::ExtensionGone, _) => {
                let bad =
                    InvalidValue::new(FieldCode::ReferenceNotFound, "an extension was deleted during the request");
                Err(InvalidInput::of("extensions", bad).into())
            }
            (PoolStored::ProxyGone, _) => {
                let bad = InvalidValue::new(FieldCode::ReferenceNotFound, "the proxy was deleted during the request");
                Err(InvalidInput::of("proxy_id", bad).into())
            }
            (PoolStored::ProfileGone, _) => {
                let bad = InvalidValue::new(FieldCode::ReferenceNotFound, "the profile was deleted during the request");
                Err(InvalidInput::of("profile", bad).into())
            }
            (PoolStored::Gone, _) => Err(UseCaseError::ProjectDeleted),
        }
    }

    /// Returns what the operator sets for all browsers.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.deps.installation
    }

    async fn find(&self, scope: &Scope, which: &str) -> Result<Option<Pool>, StoreError> {
        self.deps.pools.find(scope.project_id(), &IdOrName::parse(which)).await
    }

    /// Returns the project's pool with its counts; `None` if there is none.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<Option<(Pool, PoolCounts)>, StoreError> {
        let Some(pool) = self.find(scope, which).await? else { return Ok(None) };
        let counts = self.deps.pools.counts(pool.id).await?;
        Ok(Some((pool, counts)))
    }

    /// Returns the project's pools, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        scope: &Scope,
        filter: &PoolFilter,
        page: Page,
    ) -> Result<Listed<(Pool, PoolCounts)>, StoreError> {
        if !self.deps.installation.has_region(filter.region) {
            return Ok(Listed { items: Vec::new(), next_offset: None });
        }
        self.deps.pools.list(scope.project_id(), filter, page).await
    }

    /// Changes a pool. Its present and starting browsers keep the old configuration unless `discard_all_idle` is set or
    /// their engine, their memory or the allowed hosts change. Leased browsers always keep it.
    ///
    /// # Errors
    /// See [`UpdatePoolError`].
    pub async fn update(
        &self,
        scope: &Scope,
        which: &str,
        mut update: PoolUpdateRequest,
    ) -> Result<(Pool, PoolCounts), UpdatePoolError> {
        scope.writable()?;
        self.sessions.find_destination(scope, &mut update.input.telemetry).await?;
        // This loop ends: each lost race means that another change succeeded.
        loop {
            let found = self.find(scope, which).await?;
            let current = found.ok_or_else(|| not_found(which))?;
            update.check_expected(current.config.shape.network.as_ref())?;
            let (name, mut config) = update.input.clone().parse_onto(&current.config, self.sessions.engines())?;
            self.deps.installation.check_region(update.input.requested_region())?;
            self.set_memory(&mut config, update.input.requested_memory())?;
            let is_resized = self.memory_of(&config) != self.memory_of(&current.config);
            if let Some(requested) = &update.input.extensions {
                config.shape.extensions = self.extensions(scope, requested).await?;
            }
            if let Some(requested) = &update.input.proxy {
                config.shape.proxy = self.proxy(scope, requested).await?;
            }
            if update.input.profile.is_some() {
                config.shape.profile = self.profile(scope, update.input.requested_profile()).await?;
            }
            if let Some(requested) = update.input.requested_network()? {
                config.shape.network = self.network(scope, Some(requested)).await?;
            }
            check_start_url(&config.shape, config.start_url.as_ref())?;
            let now = self.deps.clock.now();
            let growth = Growth {
                allowance: current.growth.allowance.min(config.size),
                since: if config.size > current.config.size { now } else { current.growth.since },
            };
            let next = Pool {
                name: name.or_else(|| current.name.clone()),
                config,
                growth,
                blocked_reason: None,
                updated_at: now,
                ..current.clone()
            };
            let allowlist = |pool: &Pool| pool.config.shape.network.as_ref().and_then(|one| one.allowlist.clone());
            let is_moved = next.config.shape.engine != current.config.shape.engine;
            // A lease never gets a browser of another engine, of another size or with other allowed hosts than the pool's.
            let discards = update.discard_all_idle || is_moved || is_resized || allowlist(&next) != allowlist(&current);
            match self.deps.pools.replace(scope.organization(), &current, &next, discards).await? {
                (PoolStored::Gone, _) => continue,
                (stored, discarded) => {
                    self.stored(stored, &next)?;
                    self.sessions.clean_up_discarded(discarded).await;
                }
            }
            self.deps.wake.wake(next.id);
            let counts = self.deps.pools.counts(next.id).await;
            return Ok((next, counts.map_err(|error| error.with_maybe_done(true))?));
        }
    }

    /// Deletes a pool. With `force` the sessions leased from it end. Its other browsers are marked as ending, and the
    /// housekeeping of their nodes removes them ([`Sessions::clean_up_pending`]). Once the pool is deleted the call
    /// does not fail: the housekeeping also ends sessions that could not be ended here ([`Sessions::check`]).
    ///
    /// # Errors
    /// See [`DeletePoolError`].
    pub async fn delete(&self, scope: &Scope, which: &str, force: bool) -> Result<(), DeletePoolError> {
        let pool = self.find(scope, which).await?.ok_or_else(|| not_found(which))?;
        match self.deps.pools.delete(pool.id, force).await? {
            PoolDeleted::InUse(leased) => return Err(BrowsersLeased { leased }.into()),
            PoolDeleted::NotFound => return Err(not_found(which).into()),
            PoolDeleted::Yes => {}
        }
        // The pool is deleted: the housekeeping of the nodes retries failures from here on.
        let _ = self.end_all(pool.id).await;
        self.deps.wake.wake(pool.id);
        Ok(())
    }

    async fn end_all(&self, pool: PoolId) -> Result<(), StoreError> {
        let leased = self.deps.sessions.of_pool(pool).await?;
        self.sessions.end_each(leased, SessionEvent::Delete).await?;
        self.sessions.clean_up_pending().await
    }

    /// Ends the idle and the starting browsers of a pool; new ones replace the idle ones at the fill rate. Every later
    /// lease gets a browser that was started afterwards. Returns `false` if there is no such pool.
    ///
    /// # Errors
    /// See [`UseCaseError`].
    pub async fn flush(&self, scope: &Scope, which: &str) -> Result<bool, UseCaseError> {
        scope.writable()?;
        let Some(pool) = self.find(scope, which).await? else { return Ok(false) };
        self.flush_pool(pool.id).await?;
        Ok(true)
    }

    async fn flush_pool(&self, pool: PoolId) -> Result<(), StoreError> {
        let discarded = self.deps.pools.flush(pool, self.deps.clock.now()).await?;
        self.sessions.clean_up_discarded(discarded).await;
        self.deps.wake.wake(pool);
        Ok(())
    }
}

pub(super) fn not_found(which: &str) -> NotFound {
    NotFound::new("browser pool", which)
}
