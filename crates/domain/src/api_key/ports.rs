//! What keys need from outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::ApiKey;
use crate::ids::{ApiKeyId, OrganizationId};
use crate::page::{Listed, Page};
use crate::project::Project;
use crate::store_error::StoreError;

/// A key as found for authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWithHash {
    /// The key.
    pub key: ApiKey,
    /// Whether the project it opens is deleted, so that it opens nothing.
    pub project_deleted: bool,
    /// The project that a request with it is about unless it names another: the one that the key opens, else its
    /// organization's default. Read together with the key, since nearly every request needs it; `None` if it was not.
    pub home: Option<Project>,
}

/// Where keys are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ApiKeyRepository: Send + Sync {
    /// Stores a new key.
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// The key of that id, whatever its status.
    async fn find(&self, id: ApiKeyId) -> Result<Option<KeyWithHash>, StoreError>;

    /// The keys of an organization that are not deleted, newest first.
    async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<ApiKey>, StoreError>;

    /// Sets `deleted_at` unless it is set; `false` if the organization has no such key or it was deleted before.
    async fn delete(&self, organization: OrganizationId, id: ApiKeyId, at: OffsetDateTime) -> Result<bool, StoreError>;
}
