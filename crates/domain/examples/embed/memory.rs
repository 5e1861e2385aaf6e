//! Everything that is kept, in one memory behind one lock: what is a transaction in a database is one lock here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use casement_domain::browser::{Browser, BrowserEvent, BrowserRepository, BrowserState, Viewport};
use casement_domain::organization::{Ask, Caps, Usage, admit};
use casement_domain::page::{Listed, Page};
use casement_domain::pool::{
    Entered, Fence, Generation, Growth, IdleBrowser, LeaseFrom, LeaseRequest, Observed, Outcome, Place, Pool,
    PoolCounts, PoolDeleted, PoolFilter, PoolRepository, PoolStored, TakenNow, Turn, TurnEvent, Turns, WaitingLine,
};
use casement_domain::profile::LoadedProfile;
use casement_domain::session::{
    Created, EndReason, IdOrName, PoolRef, Session, SessionChanges, SessionFilter, SessionRepository, SessionState,
};
use casement_domain::telemetry::Capture;
use casement_domain::{
    BrowserId, InvocationId, MonotonicTime, NodeId, OrganizationId, PoolId, ProjectId, ProxyId, Replaced, SessionId,
    StoreError, TicketId,
};
use time::{Duration, OffsetDateTime};
use tokio::sync::Notify;

#[derive(Default)]
struct State {
    sessions: BTreeMap<SessionId, Session>,
    browsers: BTreeMap<BrowserId, Browser>,
    pools: BTreeMap<PoolId, Pool>,
    line: VecDeque<Place>,
    granted: BTreeMap<TicketId, Session>,
    ears: BTreeMap<TicketId, Arc<Notify>>,
}

/// The repositories of sessions, browsers and pools, and the line.
pub(crate) struct Memory {
    caps: Caps,
    state: Mutex<State>,
}

impl Memory {
    pub(crate) fn new(caps: Caps) -> Self {
        Self { caps, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, state: &State, ask: Ask) -> Option<casement_domain::organization::LimitExceeded> {
        let on_demand = state.sessions.values().filter(|row| row.ended_at.is_none() && row.pool.is_none()).count();
        let pooled = state.pools.values().map(|pool| pool.config.size).sum();
        let usage = Usage { on_demand: u32::try_from(on_demand).unwrap_or(u32::MAX), pooled, ..Usage::default() };
        admit((&self.caps, usage), (&Caps::default(), usage), ask).err()
    }
}

impl State {
    /// Moves a browser if its transition allows it.
    fn browser_on(&mut self, id: BrowserId, event: BrowserEvent) -> bool {
        let Some(next) = self.browsers.get(&id).and_then(|row| row.on(event).ok()) else { return false };
        self.browsers.insert(id, next);
        true
    }

    fn count(&self, pool: PoolId, state: BrowserState) -> u32 {
        let of_pool = self.browsers.values().filter(|row| row.pool == Some(pool) && row.state == state);
        u32::try_from(of_pool.count()).unwrap_or(u32::MAX)
    }

    fn is_taken(&self, session: &Session) -> bool {
        let others = self.sessions.values().filter(|row| row.ended_at.is_none() && row.id != session.id);
        session.name.is_some() && others.into_iter().any(|row| row.name == session.name)
    }

    /// Leases an idle browser of the pool, if there is one.
    fn lease(&mut self, pool: PoolId, lease: &LeaseRequest, now: OffsetDateTime) -> Option<Session> {
        let pool = self.pools.get(&pool)?.clone();
        let idle = self.browsers.values().find(|row| row.pool == Some(pool.id) && row.state == BrowserState::Idle)?;
        let session = Session {
            id: lease.session,
            project: pool.project,
            node: idle.node,
            browser: Some(idle.id),
            pool: Some(PoolRef { id: pool.id, name: pool.name }),
            shape: idle.shape.clone(),
            name: lease.name.clone(),
            timeout_seconds: pool.config.timeout_seconds,
            start_url: lease.start_url.clone().or(pool.config.start_url),
            tags: lease.tags.clone(),
            telemetry: lease.telemetry.clone(),
            invocation: None,
            for_login: false,
            state: SessionState::Active,
            created_at: now,
            last_active_at: now,
            ended_at: None,
        };
        let browser = idle.id;
        self.browser_on(browser, BrowserEvent::Lease(session.id));
        self.sessions.insert(session.id, session.clone());
        Some(session)
    }

    /// Gives idle browsers to the first in line.
    fn grant(&mut self, pool: PoolId, now: OffsetDateTime) {
        while let Some(index) = self.line.iter().position(|place| place.pool == pool) {
            let place = self.line[index].clone();
            let Some(session) = self.lease(pool, &place.lease, now) else { return };
            self.line.remove(index);
            self.granted.insert(place.ticket, session);
            if let Some(ear) = self.ears.get(&place.ticket) {
                ear.notify_one();
            }
        }
    }
}

#[async_trait]
impl SessionRepository for Memory {
    async fn create(
        &self,
        _organization: OrganizationId,
        session: &Session,
        browser: Option<Browser>,
    ) -> Result<Created, StoreError> {
        let mut state = self.state();
        if state.is_taken(session) {
            return Ok(Created::NameTaken);
        }
        if let Some(limit) = self.admit(&state, Ask::Session) {
            return Ok(Created::LimitExceeded(limit));
        }
        state.sessions.insert(session.id, session.clone());
        state.browsers.extend(browser.map(|row| (row.id, row)));
        Ok(Created::Yes)
    }

    async fn activate(&self, current: &Session, next: &Session, browser: &Browser) -> Result<Replaced, StoreError> {
        let mut state = self.state();
        match state.sessions.get_mut(&current.id).filter(|row| row.state == current.state) {
            Some(row) => *row = next.clone(),
            None => return Ok(Replaced::LostRace),
        }
        state.browsers.insert(browser.id, browser.clone());
        Ok(Replaced::Yes)
    }

    async fn end(&self, current: &Session, next: &Session) -> Result<Replaced, StoreError> {
        let mut state = self.state();
        match state.sessions.get_mut(&current.id).filter(|row| row.state == current.state) {
            Some(row) => *row = next.clone(),
            None => return Ok(Replaced::LostRace),
        }
        let undelivered = next.state == SessionState::Ended(EndReason::Undelivered);
        match (next.browser, &next.pool, next.ended_at) {
            (Some(browser), Some(pool), Some(now)) if undelivered => {
                state.browser_on(browser, BrowserEvent::GiveBack);
                state.grant(pool.id, now);
            }
            (Some(browser), _, _) => {
                state.browser_on(browser, BrowserEvent::End);
            }
            _ => {}
        }
        Ok(Replaced::Yes)
    }

    async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        Ok(self.state().sessions.get(&id).cloned())
    }

    async fn find_in_project(
        &self,
        project: ProjectId,
        which: &IdOrName<SessionId>,
        include_ended: bool,
    ) -> Result<Option<Session>, StoreError> {
        let fits = |row: &&Session| {
            let named = match which {
                IdOrName::Id(id) => row.id == *id,
                IdOrName::Name(name) => row.name.as_ref().is_some_and(|own| own.as_str() == name),
            };
            named && row.project == project && (row.is_active() || include_ended)
        };
        Ok(self.state().sessions.values().rev().find(fits).cloned())
    }

    async fn of_browser(&self, browser: BrowserId) -> Result<Option<Session>, StoreError> {
        let state = self.state();
        Ok(state.sessions.values().find(|row| row.browser == Some(browser) && row.ended_at.is_none()).cloned())
    }

    async fn of_node(&self, node: NodeId) -> Result<Vec<Session>, StoreError> {
        let state = self.state();
        Ok(state.sessions.values().filter(|row| row.node == node && row.ended_at.is_none()).cloned().collect())
    }

    async fn of_invocation(&self, invocation: InvocationId) -> Result<Vec<Session>, StoreError> {
        let of_it = |row: &&Session| row.ended_at.is_none() && row.invocation == Some(invocation);
        Ok(self.state().sessions.values().filter(of_it).cloned().collect())
    }

    async fn of_pool(&self, pool: PoolId) -> Result<Vec<Session>, StoreError> {
        let leased = |row: &&Session| row.is_active() && row.pool.as_ref().is_some_and(|from| from.id == pool);
        Ok(self.state().sessions.values().filter(leased).cloned().collect())
    }

    async fn of_deleted_pools(&self, node: NodeId) -> Result<Vec<Session>, StoreError> {
        let state = self.state();
        let of_node = state.sessions.values().filter(|row| row.is_active() && row.node == node);
        let orphans = of_node.filter(|row| row.pool.as_ref().is_some_and(|from| !state.pools.contains_key(&from.id)));
        Ok(orphans.cloned().collect())
    }

    async fn list(
        &self,
        project: ProjectId,
        _filter: &SessionFilter,
        page: Page,
    ) -> Result<Listed<Session>, StoreError> {
        let state = self.state();
        let active = state.sessions.values().rev().filter(|row| row.project == project && row.is_active());
        let from = usize::try_from(page.offset).unwrap_or(usize::MAX);
        Ok(page.cut(active.skip(from).take(page.limit as usize + 1).cloned().collect()))
    }

    async fn change(&self, id: SessionId, changes: &SessionChanges) -> Result<Option<Created>, StoreError> {
        let mut state = self.state();
        let Some(mut row) = state.sessions.get(&id).filter(|row| row.is_active()).cloned() else { return Ok(None) };
        row.name = changes.name.clone().unwrap_or(row.name);
        row.tags = changes.tags.clone().unwrap_or(row.tags);
        if state.is_taken(&row) {
            return Ok(Some(Created::NameTaken));
        }
        state.sessions.insert(id, row);
        Ok(Some(Created::Yes))
    }

    async fn set_viewport(&self, id: SessionId, viewport: Viewport) -> Result<(), StoreError> {
        if let Some(row) = self.state().sessions.get_mut(&id) {
            row.shape.viewport = viewport;
        }
        Ok(())
    }

    async fn set_proxy(&self, id: SessionId, proxy: Option<ProxyId>) -> Result<bool, StoreError> {
        let mut state = self.state();
        let row = state.sessions.get_mut(&id).filter(|row| row.is_active());
        Ok(row.map(|row| row.shape.proxy = proxy).is_some())
    }

    async fn set_profile(&self, id: SessionId, profile: LoadedProfile) -> Result<bool, StoreError> {
        let mut state = self.state();
        let row = state.sessions.get_mut(&id).filter(|row| row.is_active() && row.shape.profile.is_none());
        Ok(row.map(|row| row.shape.profile = Some(profile)).is_some())
    }

    async fn set_telemetry(&self, id: SessionId, telemetry: Option<Capture>) -> Result<bool, StoreError> {
        let mut state = self.state();
        let row = state.sessions.get_mut(&id).filter(|row| row.is_active());
        Ok(row.map(|row| row.telemetry = telemetry).is_some())
    }

    async fn note_activity(&self, news: &[(SessionId, OffsetDateTime)]) -> Result<(), StoreError> {
        let mut state = self.state();
        for (id, at) in news {
            if let Some(row) = state.sessions.get_mut(id) {
                row.last_active_at = row.last_active_at.max(*at);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl BrowserRepository for Memory {
    async fn find(&self, id: BrowserId) -> Result<Option<Browser>, StoreError> {
        Ok(self.state().browsers.get(&id).cloned())
    }

    async fn of_node(&self, node: NodeId) -> Result<Vec<Browser>, StoreError> {
        Ok(self.state().browsers.values().filter(|row| row.node == node).cloned().collect())
    }

    async fn discard(&self, id: BrowserId) -> Result<bool, StoreError> {
        let mut state = self.state();
        let leased = state.browsers.get(&id).is_some_and(|row| row.state == BrowserState::Leased);
        Ok(!leased && state.browser_on(id, BrowserEvent::End))
    }

    async fn forget(&self, id: BrowserId) -> Result<(), StoreError> {
        self.state().browsers.remove(&id);
        Ok(())
    }
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
        if state.pools.len() >= max_pools as usize || state.pools.values().any(|row| row.name == pool.name) {
            return Ok(PoolStored::NameTaken);
        }
        if let Some(limit) = self.admit(&state, Ask::new_pool(pool.config.size)) {
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
    ) -> Result<PoolStored, StoreError> {
        let mut state = self.state();
        let grown = Ask::resized(current.config.size, next.config.size, 0);
        if let Some(limit) = self.admit(&state, grown) {
            return Ok(PoolStored::LimitExceeded(limit));
        }
        match state.pools.get_mut(&current.id).filter(|row| row.updated_at == current.updated_at) {
            Some(row) => *row = next.clone(),
            None => return Ok(PoolStored::Gone),
        }
        Ok(PoolStored::Yes)
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
        _filter: &PoolFilter,
        page: Page,
    ) -> Result<Listed<(Pool, PoolCounts)>, StoreError> {
        let state = self.state();
        let counts = |id| PoolCounts {
            available: state.count(id, BrowserState::Idle),
            acquired: state.count(id, BrowserState::Leased),
        };
        let own = state.pools.values().rev().filter(|row| row.project == project);
        Ok(page.cut(own.map(|row| (row.clone(), counts(row.id))).collect()))
    }

    async fn counts(&self, id: PoolId) -> Result<PoolCounts, StoreError> {
        let state = self.state();
        let (available, acquired) = (state.count(id, BrowserState::Idle), state.count(id, BrowserState::Leased));
        Ok(PoolCounts { available, acquired })
    }

    async fn all(&self) -> Result<Vec<PoolId>, StoreError> {
        Ok(self.state().pools.keys().copied().collect())
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
        state.line.retain(|place| place.pool != id);
        state.ears.values().for_each(|ear| ear.notify_one());
        let own = |row: &&Browser| row.pool == Some(id) && row.state != BrowserState::Leased;
        let idle: Vec<_> = state.browsers.values().filter(own).map(|row| row.id).collect();
        for browser in idle {
            state.browser_on(browser, BrowserEvent::End);
        }
        Ok(PoolDeleted::Yes)
    }

    async fn flush(&self, id: PoolId, now: OffsetDateTime) -> Result<Vec<BrowserId>, StoreError> {
        let mut state = self.state();
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
        Ok(flushed)
    }

    async fn lead(&self, id: PoolId, _node: NodeId, _lasts: Duration) -> Result<Option<Fence>, StoreError> {
        // There is one node only, so it leads whatever there is.
        Ok(self.state().pools.contains_key(&id).then_some(Fence(1)))
    }

    async fn observe(&self, id: PoolId) -> Result<Observed, StoreError> {
        let state = self.state();
        let idle = state.browsers.values().filter(|row| row.pool == Some(id) && row.state == BrowserState::Idle);
        Ok(Observed {
            warming: state.count(id, BrowserState::Warming),
            idle: idle.map(|row| IdleBrowser { id: row.id, created_at: row.created_at, outdated: false }).collect(),
            leased: state.count(id, BrowserState::Leased),
        })
    }

    async fn grow(&self, pool: &Pool, _fence: Fence, growth: Growth) -> Result<Replaced, StoreError> {
        match self.state().pools.get_mut(&pool.id).filter(|row| row.updated_at == pool.updated_at) {
            Some(row) => row.growth = growth,
            None => return Ok(Replaced::LostRace),
        }
        Ok(Replaced::Yes)
    }

    async fn warm(&self, browser: &Browser, _fence: Fence, generation: Generation) -> Result<Replaced, StoreError> {
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

#[async_trait]
impl WaitingLine for Memory {
    async fn take_now(
        &self,
        from: &LeaseFrom,
        lease: &LeaseRequest,
        now: OffsetDateTime,
    ) -> Result<TakenNow, StoreError> {
        let pool = from.pool;
        let mut state = self.state();
        if !state.pools.contains_key(&pool) {
            return Ok(TakenNow::PoolGone);
        }
        if state.line.iter().any(|place| place.pool == pool) {
            return Ok(TakenNow::Busy);
        }
        Ok(state.lease(pool, lease, now).map_or(TakenNow::Busy, |session| TakenNow::Leased(Box::new(session))))
    }

    async fn enter(&self, place: &Place, now: OffsetDateTime) -> Result<Entered, StoreError> {
        let mut state = self.state();
        if !state.pools.contains_key(&place.pool) {
            return Ok(Entered::PoolGone);
        }
        // One who comes back goes to the front: nobody before it is waiting any more.
        match place.position {
            Some(_) => state.line.push_front(place.clone()),
            None => state.line.push_back(place.clone()),
        }
        state.grant(place.pool, now);
        Ok(Entered::Yes(0))
    }

    async fn outcome(&self, ticket: TicketId) -> Result<Outcome, StoreError> {
        let mut state = self.state();
        Ok(match state.granted.remove(&ticket) {
            Some(session) => Outcome::Granted(Box::new(session)),
            None if state.line.iter().any(|place| place.ticket == ticket) => Outcome::Waiting,
            None => Outcome::Gone,
        })
    }

    async fn leave(&self, ticket: TicketId) -> Result<Outcome, StoreError> {
        let mut state = self.state();
        state.line.retain(|place| place.ticket != ticket);
        Ok(state.granted.remove(&ticket).map_or(Outcome::Gone, |session| Outcome::Granted(Box::new(session))))
    }

    async fn decided(&self, _node: NodeId) -> Result<Vec<TicketId>, StoreError> {
        Ok(self.state().granted.keys().copied().collect())
    }

    async fn clear(&self, _node: NodeId, _now: OffsetDateTime) -> Result<(), StoreError> {
        self.state().line.clear();
        Ok(())
    }

    async fn lengths(&self) -> Result<Vec<(PoolId, u32, OffsetDateTime)>, StoreError> {
        Ok(Vec::new())
    }
}

impl Turns for Memory {
    fn expect(&self, ticket: TicketId) -> Box<dyn Turn> {
        let ear = Arc::new(Notify::new());
        self.state().ears.insert(ticket, ear.clone());
        Box::new(Ear(ear))
    }
}

struct Ear(Arc<Notify>);

#[async_trait]
impl Turn for Ear {
    async fn wait(&mut self, _until: MonotonicTime) -> TurnEvent {
        // Time stands still here. A server waits until `until` at most, and then says `TimeUp`.
        self.0.notified().await;
        TurnEvent::Look
    }
}
