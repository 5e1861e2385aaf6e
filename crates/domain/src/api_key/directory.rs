//! API keys with their creators and projects, and the port with which administrators list and change them.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::ApiKey;
use crate::ids::{ApiKeyId, OrganizationId};
use crate::name::LabelName;
use crate::organization::User;
use crate::page::{Listed, Page};
use crate::session::StatusFilter;
use crate::store_error::StoreError;

/// A key with its creator and the name of its project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: ApiKey,
    /// The user that created the key.
    pub created_by: User,
    /// The name of the only project that the key opens.
    pub project_name: Option<String>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// By the time of creation.
    #[default]
    CreatedAt,
    /// By name.
    Name,
    /// By the time of expiry; keys that never expire count as the latest.
    ExpiresAt,
}

/// The filter and the order of a list of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// Active keys (including expired ones), deleted keys, or both.
    pub status: StatusFilter,
    /// The whole name, regardless of case and accents.
    pub name: Option<String>,
    /// A part of the name of the key, the e-mail address or name of its creator, or the name of its project; or a
    /// prefix of the id or of the masked key.
    pub query: Option<String>,
    /// The order.
    pub order: KeyOrder,
    /// True for ascending order.
    pub ascending: bool,
}

/// The port that lists and changes keys for administrators.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ApiKeyDirectory: Send + Sync {
    /// Returns the organization's key with this id, in any status.
    async fn find(&self, organization: OrganizationId, id: ApiKeyId) -> Result<Option<KeyEntry>, StoreError>;

    /// Returns the keys of the organization that match the filter.
    async fn list(
        &self,
        organization: OrganizationId,
        filter: &KeyFilter,
        page: Page,
    ) -> Result<Listed<KeyEntry>, StoreError>;

    /// Renames a key that is not deleted; returns `false` if there is none.
    async fn rename(&self, organization: OrganizationId, id: ApiKeyId, name: &LabelName) -> Result<bool, StoreError>;

    /// Stores `next` and limits the lifetime of the key with this id to `expires_at`, in one transaction. Returns
    /// `false` and stores nothing if that key does not exist or is deleted.
    async fn rotate(&self, id: ApiKeyId, expires_at: OffsetDateTime, next: &ApiKey) -> Result<bool, StoreError>;
}
