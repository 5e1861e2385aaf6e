//! The port to the stored API keys.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::ApiKey;
use crate::ids::{ApiKeyId, OrganizationId};
use crate::page::{Listed, Page};
use crate::project::Project;
use crate::store_error::StoreError;

/// A key with the data that authentication needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWithHash {
    /// The key.
    pub key: ApiKey,
    /// True if the only project that the key opens is deleted; the key is then refused.
    pub project_deleted: bool,
    /// The project of requests that name none: the only project that the key opens, else the default project of the
    /// organization. It is read with the key, because nearly every request needs it; `None` if it was not read.
    pub home: Option<Project>,
}

/// The port to the stored keys.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ApiKeyRepository: Send + Sync {
    /// Stores a new key.
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// Returns the key with this id, in any status.
    async fn find(&self, id: ApiKeyId) -> Result<Option<KeyWithHash>, StoreError>;

    /// Returns the keys of an organization that are not deleted, newest first.
    async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<ApiKey>, StoreError>;

    /// Sets `deleted_at`; returns `false` if the organization has no such key, or if the key is deleted already.
    async fn delete(&self, organization: OrganizationId, id: ApiKeyId, at: OffsetDateTime) -> Result<bool, StoreError>;
}
