//! The stored rows, and the operations on several of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use casement_domain::browser::{Browser, BrowserEvent, BrowserState};
use casement_domain::organization::{CapacityRequest, Caps, LimitExceeded, Usage, admit};
use casement_domain::pool::{LeaseRequest, Pool, QueueEntry};
use casement_domain::session::{PoolRef, Session, SessionState};
use casement_domain::{BrowserId, PoolId, SessionId, TicketId};
use time::OffsetDateTime;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) ignored_fields: BTreeMap<SessionId, Vec<String>>,
    pub(crate) browsers: BTreeMap<BrowserId, Browser>,
    pub(crate) pools: BTreeMap<PoolId, Pool>,
    /// The waiters of all pools, in order of arrival.
    pub(crate) queue: VecDeque<QueueEntry>,
    /// The time at which each ticket entered the queue.
    pub(crate) queued_at: BTreeMap<TicketId, OffsetDateTime>,
    /// The sessions that are leased to waiters but not fetched yet.
    pub(crate) granted: BTreeMap<TicketId, Session>,
    pub(crate) waiters: BTreeMap<TicketId, Arc<Notify>>,
}

impl State {
    /// Changes the state of a browser. Returns `false` if the browser does not exist or the event is invalid in its
    /// state.
    pub(crate) fn browser_on(&mut self, id: BrowserId, event: BrowserEvent) -> bool {
        let Some(next) = self.browsers.get(&id).and_then(|row| row.on(event).ok()) else { return false };
        self.browsers.insert(id, next);
        true
    }

    pub(crate) fn count(&self, pool: PoolId, state: BrowserState) -> u32 {
        let of_pool = self.browsers.values().filter(|row| row.pool == Some(pool) && row.state == state);
        u32::try_from(of_pool.count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_taken(&self, session: &Session) -> bool {
        let others = self.sessions.values().filter(|row| row.ended_at.is_none() && row.id != session.id);
        session.name.is_some() && others.into_iter().any(|row| row.name == session.name)
    }

    /// Leases an idle browser of the pool, if there is one.
    pub(crate) fn lease(&mut self, pool: PoolId, lease: &LeaseRequest, now: OffsetDateTime) -> Option<Session> {
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

    /// Leases idle browsers to the first waiters of the pool.
    pub(crate) fn grant(&mut self, pool: PoolId, now: OffsetDateTime) {
        while let Some(index) = self.queue.iter().position(|place| place.pool == pool) {
            let place = self.queue[index].clone();
            let Some(session) = self.lease(pool, &place.lease, now) else { return };
            self.queue.remove(index);
            self.queued_at.remove(&place.ticket);
            self.granted.insert(place.ticket, session);
            if let Some(waiter) = self.waiters.get(&place.ticket) {
                waiter.notify_one();
            }
        }
    }

    /// Checks the project's limits.
    pub(crate) fn admit(&self, caps: &Caps, ask: CapacityRequest) -> Result<(), LimitExceeded> {
        let on_demand = self.sessions.values().filter(|row| row.ended_at.is_none() && row.pool.is_none());
        let on_demand = on_demand.map(|row| row.shape.places()).sum();
        let pooled = self.pools.values().map(|pool| pool.config.places()).sum();
        let usage = Usage { on_demand, pooled, ..Usage::default() };
        admit((caps, usage), (&Caps::default(), usage), ask)
    }
}
