//! The use cases of audit destinations.

use std::sync::Arc;

use bytes::Bytes;
use time::{Duration, OffsetDateTime};
use ulid::Ulid;

use super::{
    AuditBuckets, AuditDestination, AuditDestinationRepository, AuditDestinationRequest, AuditDestinationStored,
    AuditDestinationUpdateRequest, AuditExportStatus, AuditExportWaker, BucketFault, ExportHealth,
};
use crate::audit::Position;
use crate::clock::{Clock, IdSource};
use crate::error::{NotFound, UseCaseError};
use crate::ids::{AuditDestinationId, AuditRecordId, OrganizationId};
use crate::page::{Listed, Page};
use crate::store_error::StoreError;

/// The kind in errors.
const KIND: &str = "audit export destination";
/// The content of the object that a test writes.
const TEST_CONTENT: &[u8] = b"a test of an audit export destination\n";

/// What the operator offers for the export of audit records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditExportOffer {
    /// The names of the buckets.
    pub buckets: Vec<String>,
    /// The role of the operator's keys, which is the only one that callers may name.
    pub role: String,
}

/// The dependencies of the use cases of audit destinations.
#[derive(Clone)]
pub struct AuditDestinationDeps {
    /// The stored destinations.
    pub destinations: Arc<dyn AuditDestinationRepository>,
    /// The buckets of the operator.
    pub buckets: Arc<dyn AuditBuckets>,
    /// What the operator offers; `None`: nothing.
    pub offer: Option<AuditExportOffer>,
    /// Starts an export.
    pub waker: Arc<dyn AuditExportWaker>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// The use cases of audit destinations.
#[derive(Clone)]
pub struct AuditDestinations {
    deps: AuditDestinationDeps,
}

impl AuditDestinations {
    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: AuditDestinationDeps) -> Self {
        Self { deps }
    }

    /// Returns the role of the operator's keys; empty if the operator offers nothing.
    #[must_use]
    pub fn role(&self) -> &str {
        self.deps.offer.as_ref().map_or("", |offer| &offer.role)
    }

    /// Stores a new destination, which is paused.
    ///
    /// # Errors
    /// See [`UseCaseError`]; then nothing is stored.
    pub async fn create(
        &self,
        organization: OrganizationId,
        request: AuditDestinationRequest,
    ) -> Result<AuditDestination, UseCaseError> {
        let target = request.parse(self.offer()?)?;
        let now = self.deps.clock.now();
        let destination = AuditDestination {
            id: AuditDestinationId::mint(self.deps.ids.as_ref()),
            organization,
            target,
            status: AuditExportStatus::Paused,
            created_at: now,
            updated_at: now,
            exported: None,
            planned: None,
            health: ExportHealth::default(),
        };
        match self.deps.destinations.create(&destination, AuditDestination::MAX).await? {
            AuditDestinationStored::Yes => Ok(destination),
            AuditDestinationStored::LimitExceeded(limit) => Err(limit.into()),
        }
    }

    /// Returns the organization's destination with this identifier.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, organization: OrganizationId, id: &str) -> Result<AuditDestination, UseCaseError> {
        let missing = || NotFound::new(KIND, id);
        let parsed = id.parse().map_err(|_| missing())?;
        Ok(self.deps.destinations.find(organization, parsed).await?.ok_or_else(missing)?)
    }

    /// Returns the organization's destinations, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<AuditDestination>, StoreError> {
        self.deps.destinations.list(organization, page).await
    }

    /// Changes a destination. The export begins with the records of calls that are answered after the first activation;
    /// after a pause it continues where it was.
    ///
    /// # Errors
    /// See [`UseCaseError`]; then nothing is changed.
    pub async fn update(
        &self,
        organization: OrganizationId,
        id: &str,
        update: AuditDestinationUpdateRequest,
    ) -> Result<AuditDestination, UseCaseError> {
        // This loop ends: each lost race means that another change succeeded.
        loop {
            let current = self.get(organization, id).await?;
            let next = self.changed(&current, update.clone())?;
            if self.deps.destinations.replace(&current, &next).await? {
                self.deps.waker.wake();
                return Ok(next);
            }
        }
    }

    /// Deletes a destination. An object that is being written may still appear.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn delete(&self, organization: OrganizationId, id: &str) -> Result<(), UseCaseError> {
        let found = self.get(organization, id).await?.id;
        if self.deps.destinations.delete(organization, found).await? {
            return Ok(());
        }
        Err(NotFound::new(KIND, id).into())
    }

    /// Writes a small object to the destination and removes it. The inner result is that of writing; keys that may not
    /// remove objects leave it there.
    ///
    /// # Errors
    /// See [`UseCaseError`]; then nothing was written.
    pub async fn test(&self, organization: OrganizationId, id: &str) -> Result<Result<(), BucketFault>, UseCaseError> {
        let destination = self.get(organization, id).await?;
        self.offer()?;
        let (target, name) = (&destination.target, destination.test_name());
        let written = self.deps.buckets.put(target, &name, Bytes::from_static(TEST_CONTENT)).await;
        if written.is_ok() {
            // An export needs no permission to remove objects, and the next test replaces this one.
            self.deps.buckets.remove(target, &name).await.ok();
        }
        Ok(written)
    }

    fn offer(&self) -> Result<&AuditExportOffer, UseCaseError> {
        Ok(self.deps.offer.as_ref().ok_or_else(AuditExportOffer::missing)?)
    }

    fn changed(
        &self,
        current: &AuditDestination,
        update: AuditDestinationUpdateRequest,
    ) -> Result<AuditDestination, UseCaseError> {
        let mut next = current.clone();
        if update.only_pauses() {
            // Also possible without an offer, so that an export can always be stopped.
            next.status = AuditExportStatus::Paused;
        } else {
            let changes = update.parse(current.target.clone(), self.offer()?)?;
            next.target = changes.target;
            next.status = changes.status.unwrap_or(current.status);
        }
        let now = self.deps.clock.now();
        if next.status == AuditExportStatus::Active {
            next.exported = current.exported.or(Some(beginning(now)));
        }
        next.health.next_attempt_at = None;
        // Later than before, whatever the clock says, because changes compare the times.
        next.updated_at = now.max(current.updated_at + Duration::MICROSECOND);
        Ok(next)
    }
}

/// Returns the position before all records from `now` on.
fn beginning(now: OffsetDateTime) -> Position {
    let at = now.replace_nanosecond(now.microsecond() * 1000).unwrap_or(now);
    Position { at, id: AuditRecordId::from_ulid(Ulid(0)) }
}
