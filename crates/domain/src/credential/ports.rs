//! The port to the stored credentials.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Credential, CredentialChange, CredentialSecret, SealedSecrets};
use crate::ids::{CredentialId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::session::IdOrName;
use crate::store_error::StoreError;

/// The result of storing a credential.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialStored {
    /// The credential is stored.
    Yes,
    /// Another credential of the project has the name; nothing was stored.
    NameTaken,
    /// The project has the maximum number of credentials; nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted; nothing was stored.
    ProjectGone,
}

/// The result of changing a credential.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialUpdated {
    /// The changed credential.
    Yes(Box<Credential>),
    /// Another credential of the project has the name; nothing was changed.
    NameTaken,
    /// The credential would have too many values; nothing was changed.
    TooManyValues,
    /// There is no such credential.
    NotFound,
}

/// One sealed secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecret {
    /// The credential.
    pub credential: CredentialId,
    /// The kind of the secret, with the name of a value.
    pub secret: CredentialSecret,
    /// The secret, sealed for [`Credential::place`].
    pub sealed: Vec<u8>,
}

/// The filter of a list of credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFilter {
    /// The whole domain, in lower case.
    pub domain: Option<String>,
    /// A part of the name or domain, in any case; or a whole identifier.
    pub query: Option<String>,
}

/// The port to the stored credentials.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait CredentialRepository: Send + Sync {
    /// Stores a new credential with its secrets, if the project has fewer than `max`.
    async fn create(
        &self,
        credential: &Credential,
        secrets: &SealedSecrets,
        max: u32,
    ) -> Result<CredentialStored, StoreError>;

    /// Returns the project's credential.
    async fn find(&self, project: ProjectId, which: &IdOrName<CredentialId>) -> Result<Option<Credential>, StoreError>;

    /// Returns the sealed secrets of a credential.
    async fn secrets(&self, id: CredentialId) -> Result<Option<SealedSecrets>, StoreError>;

    /// Returns the project's credentials, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &CredentialFilter,
        page: Page,
    ) -> Result<Listed<Credential>, StoreError>;

    /// Changes a credential atomically. Auth connections that refer to it by name refer to its new name.
    async fn update(
        &self,
        id: CredentialId,
        change: &CredentialChange,
        at: OffsetDateTime,
    ) -> Result<CredentialUpdated, StoreError>;

    /// Deletes a credential with its secrets; returns whether it existed.
    async fn delete(&self, id: CredentialId) -> Result<bool, StoreError>;

    /// Returns up to `max` secrets that are sealed with another key than `key`.
    async fn sealed_with_other_key(&self, key: KeyId, max: u32) -> Result<Vec<SealedSecret>, StoreError>;

    /// Replaces `current` by `next`, unless it was changed meanwhile.
    async fn reseal(&self, current: &SealedSecret, next: &[u8]) -> Result<(), StoreError>;

    /// Returns the keys that secrets are sealed with.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}
