//! What credentials need from outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Credential, CredentialChange, CredentialSecret, SealedSecrets};
use crate::ids::{CredentialId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::session::IdOrName;
use crate::store_error::StoreError;

/// What became of a credential that was to be stored.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialStored {
    /// It is stored.
    Yes,
    /// Another credential of the project bears the name. Nothing was stored.
    NameTaken,
    /// The project has as many as it may have. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project is gone. Nothing was stored.
    ProjectGone,
}

/// What became of a credential that was to be changed.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialUpdated {
    /// As it is now.
    Yes(Box<Credential>),
    /// Another credential of the project bears the name. Nothing was changed.
    NameTaken,
    /// It would hold more values than it may. Nothing was changed.
    TooManyValues,
    /// There is no such credential.
    NotFound,
}

/// One secret as it is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecret {
    /// Whose.
    pub credential: CredentialId,
    /// Which one.
    pub secret: CredentialSecret,
    /// Sealed in [`Credential::place`].
    pub sealed: Vec<u8>,
}

/// Which credentials a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFilter {
    /// Exactly, in lower case.
    pub domain: Option<String>,
    /// Substring of name or domain, without case; or a whole identifier.
    pub query: Option<String>,
}

/// Where credentials are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait CredentialRepository: Send + Sync {
    /// Stores a new credential with its secrets, if the project has fewer than `most`.
    async fn create(
        &self,
        credential: &Credential,
        secrets: &SealedSecrets,
        most: u32,
    ) -> Result<CredentialStored, StoreError>;

    /// The project's credential.
    async fn find(&self, project: ProjectId, which: &IdOrName<CredentialId>) -> Result<Option<Credential>, StoreError>;

    /// Its secrets, as they are sealed.
    async fn secrets(&self, id: CredentialId) -> Result<Option<SealedSecrets>, StoreError>;

    /// The project's credentials, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &CredentialFilter,
        page: Page,
    ) -> Result<Listed<Credential>, StoreError>;

    /// Changes it, whole or not at all. Auth connections that name it name it as it is called from now on.
    async fn update(
        &self,
        id: CredentialId,
        change: &CredentialChange,
        at: OffsetDateTime,
    ) -> Result<CredentialUpdated, StoreError>;

    /// Deletes it with its secrets; whether it was there.
    async fn delete(&self, id: CredentialId) -> Result<bool, StoreError>;

    /// Up to `most` secrets that are not sealed under `key`.
    async fn sealed_with_other_key(&self, key: KeyId, most: u32) -> Result<Vec<SealedSecret>, StoreError>;

    /// Puts `next` in the place of `current`, unless that was changed meanwhile.
    async fn reseal(&self, current: &SealedSecret, next: &[u8]) -> Result<(), StoreError>;

    /// The keys that secrets are sealed under.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}
