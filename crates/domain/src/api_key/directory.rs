//! Keys as an administrator sees them: who made them, what they open, and a port that keeps them in that form.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::ApiKey;
use crate::ids::{ApiKeyId, OrganizationId};
use crate::name::LabelName;
use crate::organization::User;
use crate::page::{Listed, Page};
use crate::session::StatusFilter;
use crate::store_error::StoreError;

/// A key with what its references mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: ApiKey,
    /// Who made it.
    pub created_by: User,
    /// The name of the project that it opens.
    pub project_name: Option<String>,
}

/// What a list is ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// When they were made.
    #[default]
    CreatedAt,
    /// Their names.
    Name,
    /// When they expire; those that never do are the latest.
    ExpiresAt,
}

/// Which keys a list shows, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// Active ones (expired ones among them), deleted ones, or both.
    pub status: StatusFilter,
    /// Exactly this name, whatever the case and the accents.
    pub name: Option<String>,
    /// Part of the name, of its maker's address or name, or of its project's name; or the beginning of the id or of the masked key.
    pub query: Option<String>,
    /// What it is ordered by.
    pub order: KeyOrder,
    /// Smallest first.
    pub ascending: bool,
}

/// Where keys are looked through and changed.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ApiKeyDirectory: Send + Sync {
    /// The organization's key of that id, whatever its status.
    async fn find(&self, organization: OrganizationId, id: ApiKeyId) -> Result<Option<KeyEntry>, StoreError>;

    /// The keys that match.
    async fn list(
        &self,
        organization: OrganizationId,
        filter: &KeyFilter,
        page: Page,
    ) -> Result<Listed<KeyEntry>, StoreError>;

    /// Sets the name of a key that is not deleted; `false` if there is none.
    async fn rename(&self, organization: OrganizationId, id: ApiKeyId, name: &LabelName) -> Result<bool, StoreError>;

    /// Stores `next`, and lets the key of that id expire at `expires_at` if it does not before, in one transaction; `false` if that
    /// key is deleted or not there, and then nothing is stored.
    async fn rotate(&self, id: ApiKeyId, expires_at: OffsetDateTime, next: &ApiKey) -> Result<bool, StoreError>;
}
