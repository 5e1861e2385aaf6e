//! Use cases of pools: create, list, get, update, delete, flush.

use std::sync::Arc;

use super::{
    Generation, Growth, Pool, PoolCounts, PoolDeleted, PoolFilter, PoolInput, PoolRepository, PoolStored,
    TicketNotifier, UpdatePool, WaitQueue,
};
use crate::access::{ProjectArchived, Scope};
use crate::browser::BrowserEngine;
use crate::clock::{Clock, IdSource, MonotonicClock};
use crate::extension::{ExtensionRef, ExtensionRepository, resolve};
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{ExtensionId, NodeId, PoolId, ProxyId};
use crate::name::SlugName;
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::profile::{LoadedProfile, ProfileRef, SessionProfiles};
use crate::proxy::ProxyRouting;
use crate::session::{
    EndSessionError, IdOrName, NotSupported, PoolWake, Refusal, SessionEvent, SessionRepository, Sessions,
};
use crate::store_error::StoreError;

/// What the use cases of pools stand on.
#[derive(Clone)]
pub struct PoolDeps {
    /// This node.
    pub node: NodeId,
    /// Where pools are kept.
    pub pools: Arc<dyn PoolRepository>,
    /// Where sessions are kept.
    pub sessions: Arc<dyn SessionRepository>,
    /// Who waits.
    pub line: Arc<dyn WaitQueue>,
    /// Where waiters are woken.
    pub tickets: Arc<dyn TicketNotifier>,
    /// What runs browsers.
    pub engine: Arc<dyn BrowserEngine>,
    /// Where extensions are kept.
    pub extensions: Arc<dyn ExtensionRepository>,
    /// What browsers are sent through.
    pub proxies: ProxyRouting,
    /// What browsers are started with.
    pub profiles: SessionProfiles,
    /// Who fills pools.
    pub wake: Arc<dyn PoolWake>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// How it passes.
    pub monotonic: Arc<dyn MonotonicClock>,
    /// Identifiers.
    pub ids: Arc<dyn IdSource>,
    /// How many pools a project may have.
    pub max_pools: u32,
}

/// A pool was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreatePoolError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// This installation cannot do it.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
    /// The project takes nothing new.
    #[error(transparent)]
    Archived(#[from] ProjectArchived),
    /// Another pool bears the name.
    #[error("a pool named {0} exists already")]
    NameTaken(SlugName),
    /// It would go over a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The project is gone.
    #[error("the project was deleted")]
    ProjectGone,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A pool was not changed.
#[derive(Debug, thiserror::Error)]
pub enum UpdatePoolError {
    /// The project has no such pool.
    #[error("browser pool {0} not found")]
    NotFound(String),
    /// What a create may meet, too.
    #[error(transparent)]
    Input(#[from] CreatePoolError),
}

/// A pool was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeletePoolError {
    /// The project has no such pool.
    #[error("browser pool {0} not found")]
    NotFound(String),
    /// Browsers are leased.
    #[error("{leased} browsers of the pool are leased; release them, or delete the pool with force")]
    InUse {
        /// How many.
        leased: u32,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A pool was not flushed.
#[derive(Debug, thiserror::Error)]
pub enum FlushPoolError {
    /// The project takes nothing new.
    #[error(transparent)]
    Archived(#[from] ProjectArchived),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Refusal> for CreatePoolError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(invalid) => invalid.into(),
            Refusal::NotSupported(unsupported) => unsupported.into(),
        }
    }
}

/// The use cases.
#[derive(Clone)]
pub struct Pools {
    deps: PoolDeps,
    sessions: Sessions,
}

impl Pools {
    /// How many pools a project may have, unless configured.
    pub const DEFAULT_MAX_POOLS: u32 = 100;

    /// The use cases on these ports.
    #[must_use]
    pub fn new(deps: PoolDeps, sessions: Sessions) -> Self {
        Self { deps, sessions }
    }

    /// Creates a pool; its browsers are started at once.
    ///
    /// # Errors
    /// See [`CreatePoolError`].
    pub async fn create(&self, scope: &Scope, input: PoolInput) -> Result<(Pool, PoolCounts), CreatePoolError> {
        scope.writable()?;
        let asked = input.extensions.clone().unwrap_or_default();
        let proxy = input.proxy.clone();
        let profile = input.asked_profile().cloned();
        let (name, mut config) = input.parse()?;
        config.shape.extensions = self.extensions(scope, &asked).await?;
        config.shape.proxy = self.proxy(scope, proxy.as_deref().unwrap_or_default()).await?;
        config.shape.profile = self.profile(scope, profile.as_ref()).await?;
        let now = self.deps.clock.now();
        let pool = Pool {
            id: PoolId::mint(self.deps.ids.as_ref()),
            project: scope.project_id(),
            name,
            growth: Growth { allowance: config.size, since: now },
            generation: Generation::default(),
            config,
            created_at: now,
            updated_at: now,
        };
        let stored = self.deps.pools.create(scope.organization(), &pool, self.deps.max_pools).await?;
        self.stored(stored, &pool)?;
        self.deps.wake.wake(pool.id);
        Ok((pool, PoolCounts::default()))
    }

    async fn extensions(&self, scope: &Scope, asked: &[ExtensionRef]) -> Result<Vec<ExtensionId>, CreatePoolError> {
        resolve(&*self.deps.extensions, scope.project_id(), asked).await
    }

    async fn proxy(&self, scope: &Scope, asked: &str) -> Result<Option<ProxyId>, CreatePoolError> {
        if asked.is_empty() {
            return Ok(None);
        }
        self.deps.proxies.resolve(scope.project_id(), asked).await.map(Some)
    }

    async fn profile(
        &self,
        scope: &Scope,
        asked: Option<&ProfileRef>,
    ) -> Result<Option<LoadedProfile>, CreatePoolError> {
        let Some(asked) = asked else { return Ok(None) };
        let found = self.deps.profiles.resolve::<CreatePoolError>(scope, asked).await?;
        Ok(Some(LoadedProfile { id: found.id, version: None, save_changes: false }))
    }

    fn stored(&self, stored: PoolStored, pool: &Pool) -> Result<(), CreatePoolError> {
        match (stored, &pool.name) {
            (PoolStored::Yes, _) => Ok(()),
            (PoolStored::NameTaken, Some(name)) => Err(CreatePoolError::NameTaken(name.clone())),
            (PoolStored::NameTaken, None) => unreachable!("a pool without a name takes none"),
            (PoolStored::LimitExceeded(limit), _) => Err(limit.into()),
            (PoolStored::ExtensionGone, _) => {
                let bad = InvalidValue::new(FieldCode::ReferenceNotFound, "an extension was deleted meanwhile");
                Err(InvalidInput::of("extensions", bad).into())
            }
            (PoolStored::ProxyGone, _) => {
                let bad = InvalidValue::new(FieldCode::ReferenceNotFound, "the proxy was deleted meanwhile");
                Err(InvalidInput::of("proxy_id", bad).into())
            }
            (PoolStored::ProfileGone, _) => {
                let bad = InvalidValue::new(FieldCode::ReferenceNotFound, "the profile was deleted meanwhile");
                Err(InvalidInput::of("profile", bad).into())
            }
            (PoolStored::Gone, _) => Err(CreatePoolError::ProjectGone),
        }
    }

    async fn find(&self, scope: &Scope, which: &str) -> Result<Option<Pool>, StoreError> {
        self.deps.pools.find(scope.project_id(), &IdOrName::parse(which)).await
    }

    /// The project's pool and what it has; `None` if there is none.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<Option<(Pool, PoolCounts)>, StoreError> {
        let Some(pool) = self.find(scope, which).await? else { return Ok(None) };
        let counts = self.deps.pools.counts(pool.id).await?;
        Ok(Some((pool, counts)))
    }

    /// The project's pools, newest first.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn list(
        &self,
        scope: &Scope,
        filter: &PoolFilter,
        page: Page,
    ) -> Result<Listed<(Pool, PoolCounts)>, StoreError> {
        self.deps.pools.list(scope.project_id(), filter, page).await
    }

    /// Changes a pool. Browsers that it has, and those that are being started, keep the old configuration unless all are to be discarded.
    ///
    /// # Errors
    /// See [`UpdatePoolError`].
    pub async fn update(
        &self,
        scope: &Scope,
        which: &str,
        update: UpdatePool,
    ) -> Result<(Pool, PoolCounts), UpdatePoolError> {
        scope.writable().map_err(CreatePoolError::from)?;
        // Ends: each lost race means that another change came through.
        loop {
            let found = self.find(scope, which).await.map_err(CreatePoolError::from)?;
            let current = found.ok_or_else(|| UpdatePoolError::NotFound(which.to_owned()))?;
            let (name, mut config) = update.input.clone().parse_onto(&current.config).map_err(CreatePoolError::from)?;
            if let Some(asked) = &update.input.extensions {
                config.shape.extensions = self.extensions(scope, asked).await?;
            }
            if let Some(asked) = &update.input.proxy {
                config.shape.proxy = self.proxy(scope, asked).await?;
            }
            if update.input.profile.is_some() {
                config.shape.profile = self.profile(scope, update.input.asked_profile()).await?;
            }
            let now = self.deps.clock.now();
            let growth = Growth {
                allowance: current.growth.allowance.min(config.size),
                since: if config.size > current.config.size { now } else { current.growth.since },
            };
            let next = Pool {
                name: name.or_else(|| current.name.clone()),
                config,
                growth,
                updated_at: now,
                ..current.clone()
            };
            match self.deps.pools.replace(scope.organization(), &current, &next).await.map_err(CreatePoolError::from)? {
                PoolStored::Gone => continue,
                other => self.stored(other, &next)?,
            }
            if update.discard_all_idle {
                self.flush_pool(next.id).await.map_err(|error| CreatePoolError::from(error.half_done()))?;
            }
            self.deps.wake.wake(next.id);
            let counts = self.deps.pools.counts(next.id).await;
            return Ok((next, counts.map_err(|error| CreatePoolError::from(error.half_done()))?));
        }
    }

    /// Deletes a pool. With `force` the sessions leased from it end. Its other browsers are marked as ending, and the
    /// housekeeping of their nodes buries them ([`Sessions::clean_up_pending`]). Once the pool is deleted the call does not
    /// fail: the housekeeping also ends sessions that could not be ended here ([`Sessions::check`]).
    ///
    /// # Errors
    /// See [`DeletePoolError`].
    pub async fn delete(&self, scope: &Scope, which: &str, force: bool) -> Result<(), DeletePoolError> {
        let pool = self.find(scope, which).await?.ok_or_else(|| DeletePoolError::NotFound(which.to_owned()))?;
        match self.deps.pools.delete(pool.id, force).await? {
            PoolDeleted::InUse(leased) => return Err(DeletePoolError::InUse { leased }),
            PoolDeleted::NotFound => return Err(DeletePoolError::NotFound(which.to_owned())),
            PoolDeleted::Yes => {}
        }
        // It is deleted: what fails from here on, the housekeeping of the nodes does.
        let _ = self.end_all(pool.id).await;
        self.deps.wake.wake(pool.id);
        Ok(())
    }

    async fn end_all(&self, pool: PoolId) -> Result<(), StoreError> {
        for session in self.deps.sessions.of_pool(pool).await? {
            match self.sessions.end(session.id, SessionEvent::Delete).await {
                Err(EndSessionError::Store(error)) => return Err(error),
                _ => continue,
            }
        }
        self.sessions.clean_up_pending().await
    }

    /// Ends the browsers of a pool that nobody has, also those that are being started; fresh ones come at its fill rate in place of those that
    /// were idle. What is leased from the pool from then on was started afterwards. `false` if there is no such pool.
    ///
    /// # Errors
    /// See [`FlushPoolError`].
    pub async fn flush(&self, scope: &Scope, which: &str) -> Result<bool, FlushPoolError> {
        scope.writable()?;
        let Some(pool) = self.find(scope, which).await? else { return Ok(false) };
        self.flush_pool(pool.id).await?;
        Ok(true)
    }

    async fn flush_pool(&self, pool: PoolId) -> Result<(), StoreError> {
        let discarded = self.deps.pools.flush(pool, self.deps.clock.now()).await?;
        for browser in discarded {
            // It is stored as ending: what fails here, the housekeeping does.
            let _ = self.sessions.bury_own(browser).await;
        }
        self.deps.wake.wake(pool);
        Ok(())
    }
}
