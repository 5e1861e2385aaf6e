//! A line whose browsers take a while to be leased, and whose tickets are held by one transaction at a time. A mock can only block its thread, which may be the one that is to notice something.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::{
    BrowserId, NodeId, PoolId, StoreError, TicketId,
    audit::AuditEntry,
    pool::{
        ImmediateLease, LeaseFrom, LeaseRequest, MockWaitQueue, QueueEntered, QueueEntry, TicketOutcome, WaitQueue,
    },
};
use time::OffsetDateTime;

pub(super) struct SlowLine {
    pub(super) line: MockWaitQueue,
    pub(super) takes: Duration,
    /// The row of a ticket: whoever looks at it holds it for a while.
    pub(super) row: tokio::sync::Mutex<()>,
}

impl SlowLine {
    async fn slowly(&self, taken: Result<ImmediateLease, StoreError>) -> Result<ImmediateLease, StoreError> {
        tokio::time::sleep(self.takes).await;
        taken
    }
}

#[async_trait]
impl WaitQueue for SlowLine {
    async fn take_now(
        &self,
        from: &LeaseFrom,
        lease: &LeaseRequest,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        let taken = self.line.take_now(from, lease, now).await;
        self.slowly(taken).await
    }

    async fn take_recorded(
        &self,
        from: &LeaseFrom,
        browser: BrowserId,
        lease: &LeaseRequest,
        record: &AuditEntry,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        let taken = self.line.take_recorded(from, browser, lease, record, now).await;
        self.slowly(taken).await
    }

    async fn enter(&self, place: &QueueEntry, now: OffsetDateTime) -> Result<QueueEntered, StoreError> {
        self.line.enter(place, now).await
    }

    async fn outcome(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError> {
        let _held = self.row.lock().await;
        let outcome = self.line.outcome(ticket).await;
        tokio::time::sleep(self.takes).await;
        outcome
    }

    async fn leave(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError> {
        let _held = self.row.lock().await;
        self.line.leave(ticket).await
    }

    async fn decided(&self, node: NodeId) -> Result<Vec<TicketId>, StoreError> {
        self.line.decided(node).await
    }

    async fn clear(&self, node: NodeId, now: OffsetDateTime) -> Result<(), StoreError> {
        self.line.clear(node, now).await
    }

    async fn lengths(&self) -> Result<Vec<(PoolId, u32, OffsetDateTime)>, StoreError> {
        self.line.lengths().await
    }
}
