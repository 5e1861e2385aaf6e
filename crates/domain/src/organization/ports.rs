//! The ports of the organization.

use async_trait::async_trait;

use super::{Caps, FirstStart, Organization};
use crate::ids::{OrganizationId, UserId};
use crate::store_error::StoreError;

/// The port to the stored organizations.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait OrganizationRepository: Send + Sync {
    /// Returns the organization.
    async fn find(&self, id: OrganizationId) -> Result<Option<Organization>, StoreError>;

    /// Returns the organization of this installation: the oldest one.
    async fn first(&self) -> Result<Option<Organization>, StoreError>;

    /// Returns the owner of an organization: its oldest user.
    async fn owner(&self, id: OrganizationId) -> Result<Option<UserId>, StoreError>;

    /// Sets the limits. Resources that exceed them remain.
    async fn set_caps(&self, id: OrganizationId, caps: Caps) -> Result<(), StoreError>;

    /// Stores `start` in one transaction if there is no organization yet; else returns `false` and changes nothing. If
    /// two servers start at the same time, only one stores it.
    async fn begin(&self, start: &FirstStart) -> Result<bool, StoreError>;
}
