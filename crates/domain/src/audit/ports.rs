//! The ports of audit records.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AuditEntry, AuditFilter, AuditRange, AuditRecord, Position, PreparedRecord, RangeMeasurement};
use crate::ids::{AuditRecordId, NodeId, NodeRunId, OrganizationId};
use crate::store_error::StoreError;

/// One run of a node's server process. Calls that an earlier run of the node began never complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRun {
    /// The node, which outlives the process.
    pub node: NodeId,
    /// The process.
    pub run: NodeRunId,
}

/// The time of a record that may be stored later. Until this is dropped, exports end before the time.
pub struct RecordTimestamp {
    at: OffsetDateTime,
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl RecordTimestamp {
    /// Creates a time that blocks exports until `held` is dropped.
    #[must_use]
    pub fn held(at: OffsetDateTime, held: impl Any + Send + Sync) -> Self {
        Self { at, _held: Some(Box::new(held)) }
    }

    /// Creates a time that blocks no export.
    #[must_use]
    pub fn free(at: OffsetDateTime) -> Self {
        Self { at, _held: None }
    }

    /// Returns the time.
    #[must_use]
    pub fn at(&self) -> OffsetDateTime {
        self.at
    }
}

impl fmt::Debug for RecordTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecordTimestamp").field(&self.at).finish()
    }
}

/// The port that records calls while they are answered.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditTrail: Send + Sync {
    /// Stores the audit intent of a call before the call changes anything. If the server ends before it stores the
    /// record, the call is recorded with [`AuditEntry::UNKNOWN`]. Returns once the intent survives the end of the
    /// server; no later change of the call to the store is durable without the intent. While the store is unavailable, the
    /// intent of a call with a session's token may be stored on the disk of this node, since it can change the session alone.
    ///
    /// # Errors
    /// [`StoreError`]; the call must not proceed.
    async fn begin(&self, entry: AuditEntry) -> Result<(), StoreError>;

    /// Stores the record; returns once it is durable. Records are written in groups. `early` is the prepared record
    /// that may have been stored already, with the same time and id.
    ///
    /// # Errors
    /// [`StoreError`]; the record may have been stored nevertheless.
    async fn keep(&self, entry: AuditEntry, early: Option<Arc<PreparedRecord>>) -> Result<(), StoreError>;

    /// Queues the record and returns at once; the record becomes durable soon.
    fn note(&self, entry: AuditEntry, early: Option<Arc<PreparedRecord>>);

    /// Queues the record of a refused attempt, which changed nothing, and returns at once. Repeated attempts are
    /// counted and recorded together, see [`RefusedAttempts`](super::RefusedAttempts); counts that are not recorded yet
    /// are lost if the server is killed.
    fn refused(&self, entry: AuditEntry);

    /// Returns a time, `now` or a little later, for a record that is not stored through this port.
    fn stamp(&self, now: OffsetDateTime) -> RecordTimestamp;

    /// Returns the latest time up to `end` before which every record of every node is stored. For an `end` in the past
    /// it is `end` itself; for a later `end`, the records of this node never make it earlier than this call.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if records take too long to be stored.
    async fn whole_until(&self, end: OffsetDateTime) -> Result<OffsetDateTime, StoreError>;
}

/// The port to the stored records.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditRepository: Send + Sync {
    /// Stores all of the records or none; they are durable on return. A record that is stored already gets the result
    /// of the new one. A record whose organization is unknown is visible to no organization. Removes the audit intents
    /// of the calls.
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Stores the audit intents of calls. On return they survive the end of this server, and they are durable before
    /// anything that is stored later.
    async fn begin(&self, run: NodeRun, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Returns which of these calls have a record from `since` or later.
    async fn recorded(&self, calls: &[AuditRecordId], since: OffsetDateTime) -> Result<Vec<AuditRecordId>, StoreError>;

    /// Removes the audit intents of calls that did not proceed.
    async fn withdraw(&self, calls: &[AuditRecordId]) -> Result<(), StoreError>;

    /// Records with [`AuditEntry::UNKNOWN`], as of `at`, the calls that never complete: those of earlier runs of this
    /// node, and of nodes that have been silent for [`Node::LOST_AFTER`](crate::node::Node::LOST_AFTER) by the store's
    /// clock. Returns the number of these calls.
    async fn recover(&self, run: NodeRun, at: OffsetDateTime) -> Result<u64, StoreError>;

    /// Returns `None` if the node has reported its progress with [`mark`](Self::mark) a short time ago. Otherwise
    /// returns the time up to which [`complete`](Self::complete) has taken the records of all nodes to be complete;
    /// [`append`](Self::append) refuses earlier ones from this node.
    async fn fence(&self, node: NodeId) -> Result<Option<OffsetDateTime>, StoreError>;

    /// Reports to the other nodes that this node stores no more records from before `whole_until`. Returns `false` and
    /// stores nothing if the node was silent and `whole_until` is before the time that [`fence`](Self::fence) returns.
    async fn mark(&self, node: NodeId, whole_until: OffsetDateTime) -> Result<bool, StoreError>;

    /// Returns the time up to which the records of all nodes are complete, if those of `node` are up to `own`: the
    /// earliest of `own` and the times that the other nodes reported. Nodes that have been silent for
    /// [`Node::LOST_AFTER`](crate::node::Node::LOST_AFTER) by the store's clock are ignored; from now on they store no
    /// records from before the returned time.
    async fn complete(&self, node: NodeId, own: OffsetDateTime) -> Result<OffsetDateTime, StoreError>;

    /// Returns up to `limit` matching records of the range, newest first.
    async fn page(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        range: AuditRange,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// Counts up to `limit` matching records of the range.
    async fn measure(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        range: AuditRange,
        limit: u32,
    ) -> Result<RangeMeasurement, StoreError>;

    /// Returns up to `limit` records of the organization after one position and before another, both exclusive, oldest
    /// first.
    async fn following(
        &self,
        organization: OrganizationId,
        after: Position,
        before: Position,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// Returns the position of the record that is `count` records behind `after` in the filter's time span, matching or
    /// not; `None` if there are fewer records.
    async fn position_after(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
        count: u32,
    ) -> Result<Option<Position>, StoreError>;

    /// Creates the partitions of the months after `now`, and drops those of months that ended before `oldest`.
    async fn tidy(&self, now: OffsetDateTime, oldest: OffsetDateTime) -> Result<(), StoreError>;
}
