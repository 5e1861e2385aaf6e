//! What audit records need from outside.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AuditEntry, AuditFilter, AuditRange, AuditRecord, Position, PreparedRecord, RangeMeasurement};
use crate::ids::{AuditRecordId, NodeId, NodeRunId, OrganizationId};
use crate::store_error::StoreError;

/// One run of a node's server. What an earlier run of the node had begun, nobody completes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRun {
    /// The node; it outlives the process.
    pub node: NodeId,
    /// This process of it.
    pub run: NodeRunId,
}

/// A moment at which a record may be stored later. No export counts anything from this moment on as complete until this is dropped.
pub struct RecordTimestamp {
    at: OffsetDateTime,
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl RecordTimestamp {
    /// A moment that is held until `held` is dropped.
    #[must_use]
    pub fn held(at: OffsetDateTime, held: impl Any + Send + Sync) -> Self {
        Self { at, _held: Some(Box::new(held)) }
    }

    /// A moment that nobody holds.
    #[must_use]
    pub fn free(at: OffsetDateTime) -> Self {
        Self { at, _held: None }
    }

    /// The moment.
    #[must_use]
    pub fn at(&self) -> OffsetDateTime {
        self.at
    }
}

impl fmt::Debug for RecordTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stamp").field(&self.at).finish()
    }
}

/// Where records go while calls are answered.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditTrail: Send + Sync {
    /// Stores that this call begins, before it changes anything. If the server ends before the call's record is stored, the call is
    /// recorded with [`AuditEntry::UNKNOWN`]. Returns once that survives the server's end; what the call changes in the store afterwards
    /// is never durable without it.
    ///
    /// # Errors
    /// [`StoreError`]; the call must not go on.
    async fn begin(&self, entry: AuditEntry) -> Result<(), StoreError>;

    /// Returns once the record is durable. Several are written as one group. `early`: what may have stored it already, under the same
    /// moment and identifier.
    ///
    /// # Errors
    /// [`StoreError`]; the record may be there all the same.
    async fn keep(&self, entry: AuditEntry, early: Option<Arc<PreparedRecord>>) -> Result<(), StoreError>;

    /// Takes the record and returns at once; it is durable soon.
    fn note(&self, entry: AuditEntry, early: Option<Arc<PreparedRecord>>);

    /// Takes the record of a refused try, which changed nothing, and returns at once. Those that repeat are counted and recorded together, see
    /// [`RefusedAttempts`](super::RefusedAttempts); what is counted and not recorded yet goes with the server if it is killed.
    fn refused(&self, entry: AuditEntry);

    /// A moment, `now` or a little later, for a record that is stored by another way than through here.
    fn stamp(&self, now: OffsetDateTime) -> RecordTimestamp;

    /// Returns the last moment, `end` at most, before which every record of every node is stored and none will come any more. For an
    /// `end` that is past this is `end` itself. For a later one it is not before this was called, as far as this node's records go.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if that takes too long.
    async fn whole_until(&self, end: OffsetDateTime) -> Result<OffsetDateTime, StoreError>;
}

/// Where records are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditRepository: Send + Sync {
    /// Stores them all or none; durable on return. One that is stored already says from now on what came of its call as this one
    /// does, and one whose organization cannot be told is nobody's.
    /// What was stored of their beginning is gone with that.
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Stores that these calls begin. On return it survives the end of this server, and it is durable before anything that is stored later.
    async fn begin(&self, run: NodeRun, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Forgets that these calls began: they did not go on.
    async fn withdraw(&self, calls: &[AuditRecordId]) -> Result<(), StoreError>;

    /// Records with [`AuditEntry::UNKNOWN`], as of `at`, the calls that nobody completes any more: of earlier runs of this node, and of
    /// nodes that have been silent for [`Node::LOST_AFTER`](crate::node::Node::LOST_AFTER) by the store's clock. Returns how many there were.
    async fn recover(&self, run: NodeRun, at: OffsetDateTime) -> Result<u64, StoreError>;

    /// Tells the other nodes that this one stores no record any more that is from before `whole_until`.
    async fn mark(&self, node: NodeId, whole_until: OffsetDateTime) -> Result<(), StoreError>;

    /// The least of what the other nodes told with [`mark`](Self::mark) that are heard of, as in [`recover`](Self::recover); none if there are none.
    async fn whole_elsewhere(&self, node: NodeId) -> Result<Option<OffsetDateTime>, StoreError>;

    /// The records of the stretch that match, newest first, `limit` at most.
    async fn page(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        stretch: AuditRange,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// How many records of the stretch match, `limit` at most; the first and the last of these; and whether there are more.
    async fn measure(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        stretch: AuditRange,
        limit: u32,
    ) -> Result<RangeMeasurement, StoreError>;

    /// The place of the record that is so many behind `after`, matching or not, in the filter's span of time; none if there are fewer.
    async fn far_behind(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
        count: u32,
    ) -> Result<Option<Position>, StoreError>;

    /// Makes room for records up to some months from `now` on, and drops those whose months ended before `oldest`.
    async fn tidy(&self, now: OffsetDateTime, oldest: OffsetDateTime) -> Result<(), StoreError>;
}
