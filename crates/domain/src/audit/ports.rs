//! What audit records need from outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AuditEntry, AuditFilter, AuditRecord, Measured, Position, Stretch};
use crate::ids::OrganizationId;
use crate::store_error::StoreError;

/// Where records go while calls are answered.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditTrail: Send + Sync {
    /// Returns once the record is durable. Several are written as one group.
    ///
    /// # Errors
    /// [`StoreError`]; the record may be there all the same.
    async fn keep(&self, entry: AuditEntry) -> Result<(), StoreError>;

    /// Takes the record and returns at once; it is durable soon.
    fn note(&self, entry: AuditEntry);

    /// Returns once none of the records that came here waits to be written that is from before `end`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if that takes too long.
    async fn written_until(&self, end: OffsetDateTime) -> Result<(), StoreError>;
}

/// Where records are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditRepository: Send + Sync {
    /// Stores them all or none; durable on return. One that is stored already says from now on what came of its call as this one
    /// does, and one whose organization cannot be told is nobody's.
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// The records of the stretch that match, newest first, `limit` at most.
    async fn page(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        stretch: Stretch,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// How many records of the stretch match, `limit` at most; the first and the last of these; and whether there are more.
    async fn measure(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        stretch: Stretch,
        limit: u32,
    ) -> Result<Measured, StoreError>;

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
