//! The repository of pools.

use async_trait::async_trait;
use casement_domain::browser::{Browser, BrowserEvent, BrowserState};
use casement_domain::organization::{CapacityRequest, Limit, LimitExceeded};
use casement_domain::page::{Listed, Page};
use casement_domain::pool::{
    Generation, Growth, IdleBrowser, LeaderFence, Observed, Pool, PoolCounts, PoolDeleted, PoolFilter, PoolRepository,
    PoolStored, QueueLength,
};
use casement_domain::session::IdOrName;
use casement_domain::{BrowserId, NodeId, OrganizationId, PoolId, ProjectId, Replaced, StoreError};
use time::{Duration, OffsetDateTime};

use crate::state::State;
use crate::{Memory, contains};

fn matches(row: &Pool, filter: &PoolFilter) -> bool {
    let name = row.name.as_ref().map_or("", |name| name.as_str());
    let is_name = filter.name.as_ref().is_none_or(|wanted| name.to_lowercase() == wanted.to_lowercase());
    is_name && filter.query.as_ref().is_none_or(|query| contains(name, query))
}

/// Begins a new generation of the pool and marks its idle and warming browsers as ending.
fn discard(state: &mut State, id: PoolId, now: OffsetDateTime) -> Vec<BrowserId> {
    let of_pool = |row: &&Browser| row.pool == Some(id);
    let unleased = |row: &&Browser| matches!(row.state, BrowserState::Idle | BrowserState::Warming);
    let rows: Vec<_> = state.browsers.values().filter(of_pool).filter(unleased).cloned().collect();
    let idle = rows.iter().filter(|row| row.state == BrowserState::Idle).count();
    let flushed: Vec<_> = rows.iter().map(|row| row.id).collect();
    for browser in &flushed {
        state.browser_on(*browser, BrowserEvent::End);
    }
    if let Some(pool) = state.pools.get_mut(&id) {
        let fewer = u32::try_from(idle).unwrap_or(u32::MAX);
        pool.generation.0 += 1;
        pool.growth = Growth { allowance: pool.growth.allowance.saturating_sub(fewer), since: now };
    }
    flushed
}

#[async_trait]
impl PoolRepository for Memory {
    async fn create(
        &self,
        _organization: OrganizationId,
        pool: &Pool,
        max_pools: u32,
    ) -> Result<PoolStored, StoreError> {
        let mut state = self.state();
        if pool.name.is_some() && state.pools.values().any(|row| row.name == pool.name) {
            return Ok(PoolStored::NameTaken);
        }
        if let Err(limit) = state.admit(&self.caps, CapacityRequest::new_pool(pool.config.places())) {
            return Ok(PoolStored::LimitExceeded(limit));
        }
        let used = u32::try_from(state.pools.len()).unwrap_or(u32::MAX);
        if used >= max_pools {
            let limit = LimitExceeded { limit: Limit::ProjectPools, value: max_pools, used, requested: 1 };
            return Ok(PoolStored::LimitExceeded(limit));
        }
        state.pools.insert(pool.id, pool.clone());
        Ok(PoolStored::Yes)
    }

    async fn replace(
        &self,
        _organization: OrganizationId,
        current: &Pool,
        next: &Pool,
        discards: bool,
    ) -> Result<(PoolStored, Vec<BrowserId>), StoreError> {
        let mut state = self.state();
        let grown = CapacityRequest::resized(current.config.places(), next.config.places(), 0);
        if let Err(limit) = state.admit(&self.caps, grown) {
            return Ok((PoolStored::LimitExceeded(limit), Vec::new()));
        }
        match state.pools.get_mut(&current.id).filter(|row| row.updated_at == current.updated_at) {
            Some(row) => *row = Pool { generation: row.generation, ..next.clone() },
            None => return Ok((PoolStored::Gone, Vec::new())),
        }
        let discarded = if discards { discard(&mut state, next.id, next.updated_at) } else { Vec::new() };
        Ok((PoolStored::Yes, discarded))
    }

    async fn find(&self, project: ProjectId, which: &IdOrName<PoolId>) -> Result<Option<Pool>, StoreError> {
        let fits = |row: &&Pool| match which {
            IdOrName::Id(id) => row.id == *id,
            IdOrName::Name(name) => row.name.as_ref().is_some_and(|own| own.as_str() == name),
        };
        Ok(self.state().pools.values().filter(|row| row.project == project).find(fits).cloned())
    }

    async fn find_with_next(
        &self,
        project: ProjectId,
        which: &IdOrName<PoolId>,
        _node: NodeId,
    ) -> Result<Option<(Pool, Option<BrowserId>)>, StoreError> {
        let Some(pool) = PoolRepository::find(self, project, which).await? else { return Ok(None) };
        let state = self.state();
        let idle = state.browsers.values().filter(|row| row.pool == Some(pool.id) && row.state == BrowserState::Idle);
        let next = idle.min_by_key(|row| (row.created_at, row.id)).map(|row| row.id);
        Ok(Some((pool, next)))
    }

    async fn find_by_id(&self, id: PoolId) -> Result<Option<Pool>, StoreError> {
        Ok(self.state().pools.get(&id).cloned())
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &PoolFilter,
        page: Page,
    ) -> Result<Listed<(Pool, PoolCounts)>, StoreError> {
        let state = self.state();
        let counts = |id| PoolCounts {
            available: state.count(id, BrowserState::Idle),
            acquired: state.count(id, BrowserState::Leased),
        };
        let matching = state.pools.values().rev().filter(|row| row.project == project && matches(row, filter));
        let from = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let found = matching.skip(from).take(page.limit as usize + 1);
        Ok(page.cut(found.map(|row| (row.clone(), counts(row.id))).collect()))
    }

    async fn counts(&self, id: PoolId) -> Result<PoolCounts, StoreError> {
        let state = self.state();
        let (available, acquired) = (state.count(id, BrowserState::Idle), state.count(id, BrowserState::Leased));
        Ok(PoolCounts { available, acquired })
    }

    async fn all_counts(&self) -> Result<Vec<(PoolId, PoolCounts, Option<QueueLength>)>, StoreError> {
        let state = self.state();
        let queue = |id: PoolId| {
            let waiting = state.queue.iter().filter(|place| place.pool == id);
            let since: Vec<_> = waiting.filter_map(|place| state.queued_at.get(&place.ticket).copied()).collect();
            let callers = u32::try_from(since.len()).unwrap_or(u32::MAX);
            since.into_iter().min().map(|since| QueueLength { callers, since })
        };
        let counts = |id: PoolId| PoolCounts {
            available: state.count(id, BrowserState::Idle),
            acquired: state.count(id, BrowserState::Leased),
        };
        Ok(state.pools.keys().map(|id| (*id, counts(*id), queue(*id))).collect())
    }

    async fn all(&self) -> Result<Vec<PoolId>, StoreError> {
        Ok(self.state().pools.keys().copied().collect())
    }

    async fn all_conditions(&self, _node: NodeId) -> Result<Vec<(PoolId, String)>, StoreError> {
        let state = self.state();
        let condition = |pool: &Pool| {
            let browsers: Vec<&Browser> = state.browsers.values().filter(|row| row.pool == Some(pool.id)).collect();
            format!("{pool:?} {browsers:?}")
        };
        Ok(state.pools.iter().map(|(id, pool)| (*id, condition(pool))).collect())
    }

    async fn delete(&self, id: PoolId, force: bool) -> Result<PoolDeleted, StoreError> {
        let mut state = self.state();
        let leased = state.count(id, BrowserState::Leased);
        if leased > 0 && !force {
            return Ok(PoolDeleted::InUse(leased));
        }
        if state.pools.remove(&id).is_none() {
            return Ok(PoolDeleted::NotFound);
        }
        state.queue.retain(|place| place.pool != id);
        state.waiters.values().for_each(|waiter| waiter.notify_one());
        let own = |row: &&Browser| row.pool == Some(id) && row.state != BrowserState::Leased;
        let idle: Vec<_> = state.browsers.values().filter(own).map(|row| row.id).collect();
        for browser in idle {
            state.browser_on(browser, BrowserEvent::End);
        }
        Ok(PoolDeleted::Yes)
    }

    async fn flush(&self, id: PoolId, now: OffsetDateTime) -> Result<Vec<BrowserId>, StoreError> {
        Ok(discard(&mut self.state(), id, now))
    }

    async fn lead(&self, id: PoolId, _node: NodeId, _lasts: Duration) -> Result<Option<LeaderFence>, StoreError> {
        // This node is the only one, so it leads every pool.
        Ok(self.state().pools.contains_key(&id).then_some(LeaderFence(1)))
    }

    async fn renew_leads(&self, _node: NodeId, _lasts: Duration) -> Result<(), StoreError> {
        Ok(())
    }

    async fn observe(&self, id: PoolId, _node: NodeId) -> Result<Observed, StoreError> {
        let state = self.state();
        let idle = state.browsers.values().filter(|row| row.pool == Some(id) && row.state == BrowserState::Idle);
        Ok(Observed {
            warming: state.count(id, BrowserState::Warming),
            idle: idle.map(|row| IdleBrowser { id: row.id, created_at: row.created_at, outdated: false }).collect(),
            leased: state.count(id, BrowserState::Leased),
            ..Observed::default()
        })
    }

    async fn grow(&self, pool: &Pool, _fence: LeaderFence, growth: Growth) -> Result<Replaced, StoreError> {
        match self.state().pools.get_mut(&pool.id).filter(|row| row.updated_at == pool.updated_at) {
            Some(row) => row.growth = growth,
            None => return Ok(Replaced::LostRace),
        }
        Ok(Replaced::Yes)
    }

    async fn set_blocked(&self, id: PoolId, reason: Option<String>) -> Result<(), StoreError> {
        if let Some(row) = self.state().pools.get_mut(&id) {
            row.blocked_reason = reason;
        }
        Ok(())
    }

    async fn warm(&self, browser: &Browser, generation: Generation) -> Result<Replaced, StoreError> {
        let mut state = self.state();
        let pool = browser.pool.and_then(|pool| state.pools.get(&pool));
        if pool.is_none_or(|pool| pool.generation != generation) {
            return Ok(Replaced::LostRace);
        }
        state.browsers.insert(browser.id, browser.clone());
        Ok(Replaced::Yes)
    }

    async fn ready(&self, browser: BrowserId, now: OffsetDateTime) -> Result<Replaced, StoreError> {
        let mut state = self.state();
        let pool = state.browsers.get(&browser).and_then(|row| row.pool);
        match pool {
            Some(pool) if state.browser_on(browser, BrowserEvent::Ready) => state.grant(pool, now),
            _ => return Ok(Replaced::LostRace),
        }
        Ok(Replaced::Yes)
    }
}
