//! The wait queues of pools.

use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::pool::{
    ImmediateLease, LeaseRequest, QueueEntered, QueueEntry, TicketNotifier, TicketOutcome, WaitQueue, Waiter,
    WaiterEvent,
};
use casement_domain::{MonotonicTime, NodeId, PoolId, StoreError, TicketId};
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::Memory;

#[async_trait]
impl WaitQueue for Memory {
    async fn take_now(
        &self,
        pool: PoolId,
        lease: &LeaseRequest,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        let mut state = self.state();
        if !state.pools.contains_key(&pool) {
            return Ok(ImmediateLease::PoolGone);
        }
        if state.queue.iter().any(|place| place.pool == pool) {
            return Ok(ImmediateLease::Busy);
        }
        Ok(state
            .lease(pool, lease, now)
            .map_or(ImmediateLease::Busy, |session| ImmediateLease::Leased(Box::new(session))))
    }

    async fn enter(&self, place: &QueueEntry, now: OffsetDateTime) -> Result<QueueEntered, StoreError> {
        let mut state = self.state();
        if !state.pools.contains_key(&place.pool) {
            return Ok(QueueEntered::PoolGone);
        }
        // A ticket that enters again was the first of the queue, so it is the first again.
        match place.position {
            Some(_) => state.queue.push_front(place.clone()),
            None => state.queue.push_back(place.clone()),
        }
        state.queued_at.insert(place.ticket, now);
        state.grant(place.pool, now);
        Ok(QueueEntered::Yes(0))
    }

    async fn outcome(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError> {
        let mut state = self.state();
        Ok(match state.granted.remove(&ticket) {
            Some(session) => TicketOutcome::Granted(Box::new(session)),
            None if state.queue.iter().any(|place| place.ticket == ticket) => TicketOutcome::Waiting,
            None => TicketOutcome::Gone,
        })
    }

    async fn leave(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError> {
        let mut state = self.state();
        state.queue.retain(|place| place.ticket != ticket);
        state.queued_at.remove(&ticket);
        Ok(state
            .granted
            .remove(&ticket)
            .map_or(TicketOutcome::Gone, |session| TicketOutcome::Granted(Box::new(session))))
    }

    async fn decided(&self, _node: NodeId) -> Result<Vec<TicketId>, StoreError> {
        Ok(self.state().granted.keys().copied().collect())
    }

    async fn clear(&self, _node: NodeId, _now: OffsetDateTime) -> Result<(), StoreError> {
        let mut state = self.state();
        state.queue.clear();
        state.queued_at.clear();
        Ok(())
    }
}

impl TicketNotifier for Memory {
    fn expect(&self, ticket: TicketId) -> Box<dyn Waiter> {
        let notify = Arc::new(Notify::new());
        self.state().waiters.insert(ticket, notify.clone());
        Box::new(LocalWaiter { notify, ticket, memory: self.clone() })
    }

    fn wake(&self, ticket: TicketId) -> bool {
        let state = self.state();
        let notify = state.waiters.get(&ticket);
        notify.inspect(|notify| notify.notify_one()).is_some()
    }
}

struct LocalWaiter {
    notify: Arc<Notify>,
    ticket: TicketId,
    memory: Memory,
}

impl Drop for LocalWaiter {
    fn drop(&mut self) {
        self.memory.state().waiters.remove(&self.ticket);
    }
}

#[async_trait]
impl Waiter for LocalWaiter {
    async fn wait(&mut self, until: MonotonicTime) -> WaiterEvent {
        let left = until - self.memory.clock.monotonic_now();
        let left = std::time::Duration::try_from(left).unwrap_or_default();
        match tokio::time::timeout(left, self.notify.notified()).await {
            Ok(()) => WaiterEvent::Look,
            Err(_) => WaiterEvent::TimeUp,
        }
    }
}
