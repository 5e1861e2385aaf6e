//! The ports of telemetry destinations.

use async_trait::async_trait;
use time::OffsetDateTime;
use url::Url;

use super::{DestinationFilter, TelemetryDestination};
use crate::ids::{OrganizationId, TelemetryDestinationId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::store_error::StoreError;

/// The result of storing a destination.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationStored {
    /// Stored.
    Yes,
    /// Another destination of the organization has the name; nothing was stored.
    NameTaken,
    /// The organization has the maximum number of destinations; nothing was stored.
    LimitExceeded(LimitExceeded),
    /// A session or a pool uses the destination, so it keeps its name; nothing was stored.
    InUse,
    /// The destination was changed or deleted meanwhile; nothing was stored.
    LostRace,
}

/// The result of deleting a destination.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationDeleted {
    /// Deleted.
    Yes,
    /// A session or a pool uses it; nothing was changed.
    InUse,
    /// There is no such destination.
    NotFound,
}

/// The port to the stored destinations.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait TelemetryDestinationRepository: Send + Sync {
    /// Stores a new destination if the organization has fewer than `max`.
    async fn create(&self, destination: &TelemetryDestination, max: u32) -> Result<DestinationStored, StoreError>;

    /// Returns the organization's destination.
    async fn find(
        &self,
        organization: OrganizationId,
        id: TelemetryDestinationId,
    ) -> Result<Option<TelemetryDestination>, StoreError>;

    /// Returns the organization's destination with this name, compared without case and accents.
    async fn named(&self, organization: OrganizationId, name: &str)
    -> Result<Option<TelemetryDestination>, StoreError>;

    /// Returns the destination of any organization, for an export.
    async fn find_any(&self, id: TelemetryDestinationId) -> Result<Option<TelemetryDestination>, StoreError>;

    /// Returns the organization's destinations, newest first.
    async fn list(
        &self,
        organization: OrganizationId,
        filter: &DestinationFilter,
        page: Page,
    ) -> Result<Listed<TelemetryDestination>, StoreError>;

    /// Replaces `current` by `next` if it is still stored. The health is not changed. A destination that an active
    /// session or a pool uses keeps its name.
    async fn replace(
        &self,
        current: &TelemetryDestination,
        next: &TelemetryDestination,
    ) -> Result<DestinationStored, StoreError>;

    /// Deletes a destination that no active session and no pool uses.
    async fn delete(
        &self,
        organization: OrganizationId,
        id: TelemetryDestinationId,
    ) -> Result<DestinationDeleted, StoreError>;

    /// Stores a successful export.
    async fn note_success(&self, id: TelemetryDestinationId, at: OffsetDateTime) -> Result<(), StoreError>;

    /// Stores a failed export, and counts it.
    async fn note_failure(&self, id: TelemetryDestinationId, error: &str, at: OffsetDateTime)
    -> Result<(), StoreError>;

    /// Returns up to `max` sealed headers that are not sealed with `key`.
    async fn sealed_with_other_key(
        &self,
        key: KeyId,
        max: u32,
    ) -> Result<Vec<(TelemetryDestinationId, Vec<u8>)>, StoreError>;

    /// Replaces `current` by `next`, unless it was changed meanwhile.
    async fn reseal(&self, id: TelemetryDestinationId, current: &[u8], next: &[u8]) -> Result<(), StoreError>;

    /// Returns the keys that headers are sealed with.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// Whether a host may be contacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressVerdict {
    /// The host is known, and the rules of this installation allow its address.
    Allowed,
    /// The host is unknown, or its address is not allowed. Both are one, so that callers cannot explore the network of
    /// this machine.
    Refused,
}

/// The port that checks the address of an endpoint under the egress rules. The rules are applied again for each export.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait DestinationAddresses: Send + Sync {
    /// Resolves the host and checks its address.
    async fn check(&self, endpoint: &Url) -> AddressVerdict;
}

/// A repository without destinations, for embedders that do not use them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTelemetryDestinations;

#[async_trait]
impl TelemetryDestinationRepository for NoTelemetryDestinations {
    async fn create(&self, _: &TelemetryDestination, _: u32) -> Result<DestinationStored, StoreError> {
        let limit = crate::organization::Limit::OrganizationTelemetryDestinations;
        Ok(DestinationStored::LimitExceeded(LimitExceeded { limit, value: 0, used: 0, requested: 1 }))
    }

    async fn find(
        &self,
        _: OrganizationId,
        _: TelemetryDestinationId,
    ) -> Result<Option<TelemetryDestination>, StoreError> {
        Ok(None)
    }

    async fn named(&self, _: OrganizationId, _: &str) -> Result<Option<TelemetryDestination>, StoreError> {
        Ok(None)
    }

    async fn find_any(&self, _: TelemetryDestinationId) -> Result<Option<TelemetryDestination>, StoreError> {
        Ok(None)
    }

    async fn list(
        &self,
        _: OrganizationId,
        _: &DestinationFilter,
        page: Page,
    ) -> Result<Listed<TelemetryDestination>, StoreError> {
        Ok(page.cut(Vec::new()))
    }

    async fn replace(
        &self,
        _: &TelemetryDestination,
        _: &TelemetryDestination,
    ) -> Result<DestinationStored, StoreError> {
        Ok(DestinationStored::LostRace)
    }

    async fn delete(&self, _: OrganizationId, _: TelemetryDestinationId) -> Result<DestinationDeleted, StoreError> {
        Ok(DestinationDeleted::NotFound)
    }

    async fn note_success(&self, _: TelemetryDestinationId, _: OffsetDateTime) -> Result<(), StoreError> {
        Ok(())
    }

    async fn note_failure(&self, _: TelemetryDestinationId, _: &str, _: OffsetDateTime) -> Result<(), StoreError> {
        Ok(())
    }

    async fn sealed_with_other_key(
        &self,
        _: KeyId,
        _: u32,
    ) -> Result<Vec<(TelemetryDestinationId, Vec<u8>)>, StoreError> {
        Ok(Vec::new())
    }

    async fn reseal(&self, _: TelemetryDestinationId, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        Ok(Vec::new())
    }
}
