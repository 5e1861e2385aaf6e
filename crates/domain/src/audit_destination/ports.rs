//! The ports of audit destinations.

use async_trait::async_trait;
use bytes::Bytes;
use time::OffsetDateTime;

use super::{AuditDestination, BucketTarget, ExportHealth};
use crate::audit::Position;
use crate::ids::{AuditDestinationId, NodeId, OrganizationId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::store_error::StoreError;

/// The result of storing a new destination.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditDestinationStored {
    /// Stored.
    Yes,
    /// The organization has the maximum number of destinations; nothing was stored.
    LimitExceeded(LimitExceeded),
}

/// The port to the stored destinations.
///
/// The progress of an export is changed only from the state that the change started from. So two nodes that export to
/// the same destination write the same objects, and none skips a record.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditDestinationRepository: Send + Sync {
    /// Stores a new destination if the organization has fewer than `max`.
    async fn create(&self, destination: &AuditDestination, max: u32) -> Result<AuditDestinationStored, StoreError>;

    /// Returns the organization's destination.
    async fn find(
        &self,
        organization: OrganizationId,
        id: AuditDestinationId,
    ) -> Result<Option<AuditDestination>, StoreError>;

    /// Returns the organization's destinations, newest first.
    async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<AuditDestination>, StoreError>;

    /// Replaces the target and the status of `current` by those of `next`, unless a caller changed or deleted the
    /// destination meanwhile: then returns `false`. Stores the beginning of the export if none is stored. The next
    /// attempt is due at once.
    async fn replace(&self, current: &AuditDestination, next: &AuditDestination) -> Result<bool, StoreError>;

    /// Deletes the organization's destination. Returns `false` if there is none.
    async fn delete(&self, organization: OrganizationId, id: AuditDestinationId) -> Result<bool, StoreError>;

    /// Returns the active destinations whose next attempt is due at `now`, except those that another node has claimed.
    /// They belong to this node until `until`, or until it releases them.
    async fn claim(
        &self,
        node: NodeId,
        now: OffsetDateTime,
        until: OffsetDateTime,
    ) -> Result<Vec<AuditDestination>, StoreError>;

    /// Stores the last record of the next object, and extends the claim, if the destination is active, `after` is its
    /// last exported record, and no object is planned. Otherwise returns `false`.
    async fn plan(
        &self,
        id: AuditDestinationId,
        after: Position,
        through: Position,
        until: OffsetDateTime,
    ) -> Result<bool, StoreError>;

    /// Stores that the planned object, whose last record is `through`, is written. Returns the destination; `None` if
    /// that object is not planned, because another node has written it or the destination was deleted.
    async fn advance(
        &self,
        id: AuditDestinationId,
        through: Position,
        at: OffsetDateTime,
    ) -> Result<Option<AuditDestination>, StoreError>;

    /// Stores the health after a failure.
    async fn note_failure(&self, id: AuditDestinationId, health: &ExportHealth) -> Result<(), StoreError>;

    /// Ends the claims of this node on these destinations.
    async fn release(&self, node: NodeId, ids: &[AuditDestinationId]) -> Result<(), StoreError>;
}

/// Why an object could not be written. Its text contains no address, no secret and no text of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketFault {
    /// The operator does not offer the bucket any more.
    #[error("the operator does not offer the bucket any more")]
    NotOffered,
    /// The host is unknown or does not answer, or its certificate is not trusted.
    #[error("the store cannot be reached")]
    Unreachable,
    /// The response did not come in time.
    #[error("no answer in time")]
    Silent,
    /// The store refused the request.
    #[error("the store answers {status}{}", shown(code))]
    Refused {
        /// The status of the response.
        status: u16,
        /// The error code of the store, such as `AccessDenied`: ASCII letters and digits, at most 64.
        code: Option<String>,
    },
    /// Another failure.
    #[error("the request could not be made")]
    Other,
}

fn shown(code: &Option<String>) -> String {
    code.as_ref().map(|code| format!(" {code}")).unwrap_or_default()
}

/// The port to the buckets of the operator.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuditBuckets: Send + Sync {
    /// Writes an object, and replaces one of the same name. On return it is durable.
    async fn put(&self, target: &BucketTarget, name: &str, content: Bytes) -> Result<(), BucketFault>;

    /// Removes an object.
    async fn remove(&self, target: &BucketTarget, name: &str) -> Result<(), BucketFault>;
}

/// The port that starts an export before its time.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait AuditExportWaker: Send + Sync {
    /// Exports soon, because a caller has changed a destination.
    fn wake(&self);
}
