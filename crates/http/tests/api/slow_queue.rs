//! A wait queue whose leases take a while, and whose tickets are locked by one transaction at a time. A mock could only
//! block its thread, which may be the thread under test.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::{
    NodeId, PoolId, StoreError, TicketId,
    audit::AuditEntry,
    pool::{
        ImmediateLease, KnownBrowser, LeaseRequest, MockWaitQueue, QueueEntered, QueueEntry, TicketOutcome, WaitQueue,
    },
};
use time::OffsetDateTime;

pub(super) struct SlowQueue {
    pub(super) queue: MockWaitQueue,
    pub(super) delay: Duration,
    /// The lock of a ticket's row, which a reader holds during `delay`.
    pub(super) row: tokio::sync::Mutex<()>,
}

impl SlowQueue {
    async fn delayed(&self, result: Result<ImmediateLease, StoreError>) -> Result<ImmediateLease, StoreError> {
        tokio::time::sleep(self.delay).await;
        result
    }
}

#[async_trait]
impl WaitQueue for SlowQueue {
    async fn take_now(
        &self,
        pool: PoolId,
        lease: &LeaseRequest,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        let result = self.queue.take_now(pool, lease, now).await;
        self.delayed(result).await
    }

    async fn take_recorded(
        &self,
        known: &KnownBrowser,
        lease: &LeaseRequest,
        record: &AuditEntry,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        let result = self.queue.take_recorded(known, lease, record, now).await;
        self.delayed(result).await
    }

    async fn enter(&self, place: &QueueEntry, now: OffsetDateTime) -> Result<QueueEntered, StoreError> {
        self.queue.enter(place, now).await
    }

    async fn outcome(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError> {
        let _lock = self.row.lock().await;
        let outcome = self.queue.outcome(ticket).await;
        tokio::time::sleep(self.delay).await;
        outcome
    }

    async fn leave(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError> {
        let _lock = self.row.lock().await;
        self.queue.leave(ticket).await
    }

    async fn decided(&self, node: NodeId) -> Result<Vec<TicketId>, StoreError> {
        self.queue.decided(node).await
    }

    async fn clear(&self, node: NodeId, now: OffsetDateTime) -> Result<(), StoreError> {
        self.queue.clear(node, now).await
    }
}
