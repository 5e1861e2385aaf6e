//! What audit records need from outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AuditEntry, AuditFilter, AuditRecord, Position};
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
}

/// Where records are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditRepository: Send + Sync {
    /// Stores them all or none; durable on return. One that is stored already is left as it is, and one whose organization cannot be
    /// told is nobody's.
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// The records that match, newest first, from behind `after` on, `limit` at most.
    async fn page(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// How many records match from behind `after` on, `limit` at most; the last of these; and whether there are more.
    async fn measure(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(u32, Option<Position>, bool), StoreError>;

    /// Makes room for records up to some months from `now` on, and drops those whose months ended before `oldest`.
    async fn tidy(&self, now: OffsetDateTime, oldest: OffsetDateTime) -> Result<(), StoreError>;
}
