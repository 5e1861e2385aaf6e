//! The ports of the organization.

use async_trait::async_trait;

use super::{Caps, FirstStart, Organization};
use crate::ids::{OrganizationId, UserId};
use crate::store_error::StoreError;

/// Where organizations are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait OrganizationRepository: Send + Sync {
    /// The organization.
    async fn find(&self, id: OrganizationId) -> Result<Option<Organization>, StoreError>;

    /// The organization of this installation: the oldest one.
    async fn first(&self) -> Result<Option<Organization>, StoreError>;

    /// Its owner: its oldest user.
    async fn owner(&self, id: OrganizationId) -> Result<Option<UserId>, StoreError>;

    /// Gives it other limits; what is in use beyond them goes on.
    async fn set_caps(&self, id: OrganizationId, caps: Caps) -> Result<(), StoreError>;

    /// Stores everything of `start` in one transaction if there is no organization yet; `false` if there was one, and
    /// then nothing is changed. Two servers that start at once: one of them makes it.
    async fn begin(&self, start: &FirstStart) -> Result<bool, StoreError>;
}
