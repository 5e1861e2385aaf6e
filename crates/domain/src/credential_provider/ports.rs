//! What credential providers need from outside.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use time::{Duration, OffsetDateTime};
use url::Url;

use super::{CredentialProvider, OneTimeSecret, ProviderChange, ProviderItem, ProviderVault};
use crate::ids::{CredentialProviderId, OrganizationId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::store_error::StoreError;

/// What became of a provider that was to be stored.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderStored {
    /// It is stored, with this priority.
    Yes(u32),
    /// Another provider of the organization bears the name. Nothing was stored.
    NameTaken,
    /// The organization has as many as it may have. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The organization has no such project to lend it to. Nothing was stored.
    NoProject(ProjectId),
}

/// What became of a provider that was to be changed.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderUpdated {
    /// As it is now.
    Yes(Box<CredentialProvider>),
    /// Another provider of the organization bears the name. Nothing was changed.
    NameTaken,
    /// The organization has no such project to lend it to. Nothing was changed.
    NoProject(ProjectId),
    /// There is no such provider.
    NotFound,
}

/// What became of a provider that was to be deleted.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderDeleted {
    /// It is gone.
    Yes,
    /// An auth connection names it. Nothing was changed.
    InUse,
    /// There is no such provider.
    NotFound,
}

/// Where providers are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait CredentialProviderRepository: Send + Sync {
    /// Stores a new provider behind all others, if the organization has fewer than `most`. Its own priority is not looked at.
    async fn create(&self, provider: &CredentialProvider, most: u32) -> Result<ProviderStored, StoreError>;

    /// The organization's provider.
    async fn find(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
    ) -> Result<Option<CredentialProvider>, StoreError>;

    /// The organization's provider of that name, compared without case and accents.
    async fn named(&self, organization: OrganizationId, name: &str) -> Result<Option<CredentialProvider>, StoreError>;

    /// The organization's providers in the order in which they are asked; those whose name holds `query`, without case, or whose
    /// identifier it is.
    async fn list<'a>(
        &self,
        organization: OrganizationId,
        query: Option<&'a str>,
        page: Page,
    ) -> Result<Listed<CredentialProvider>, StoreError>;

    /// All of them that are to be asked, in that order.
    async fn enabled(&self, organization: OrganizationId) -> Result<Vec<CredentialProvider>, StoreError>;

    /// Changes it, whole or not at all. Auth connections that name it name it as it is called from now on.
    async fn update(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
        change: &ProviderChange,
        at: OffsetDateTime,
    ) -> Result<ProviderUpdated, StoreError>;

    /// Deletes it, unless an auth connection names it, by its name or identifier.
    async fn delete(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
    ) -> Result<ProviderDeleted, StoreError>;

    /// Up to `most` tokens that are not sealed under `key`.
    async fn sealed_with_other_key(
        &self,
        key: KeyId,
        most: u32,
    ) -> Result<Vec<(CredentialProviderId, Vec<u8>)>, StoreError>;

    /// Puts `next` in the place of `current`, unless that was changed meanwhile.
    async fn reseal(&self, id: CredentialProviderId, current: &[u8], next: &[u8]) -> Result<(), StoreError>;

    /// The keys that tokens are sealed under.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// Where a store really is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// The base address of a 1Password Connect server.
    PasswordManager(Url),
    /// A KeePass database, by the name that this installation's configuration has for its file.
    Keepass(String),
}

/// A provider with its token in clear, for whoever asks it.
#[derive(Clone)]
pub struct OpenProvider {
    /// Which one.
    pub id: CredentialProviderId,
    /// Changes whenever anything of the provider does: what was known of an older one is not believed.
    pub version: OffsetDateTime,
    /// Where it is.
    pub place: StorePlace,
    /// What opens it.
    pub token: SecretString,
    /// For how long its list of items is believed.
    pub cache_ttl: Duration,
}

impl fmt::Debug for OpenProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenProvider").field("id", &self.id).field("place", &self.place).finish_non_exhaustive()
    }
}

/// A store did not answer as it should. It says nothing of any secret, and nothing that the store wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderFault {
    /// The token, or the password of the file.
    #[error("the store refused the token")]
    Refused,
    /// The rules, or nobody there, or the file.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// It took too long.
    #[error("the store did not answer in time")]
    Silent,
    /// It answered something else.
    #[error("the store answered something else than expected: {0}")]
    BadAnswer(String),
    /// It has no such item, or no longer.
    #[error("the store has no such item")]
    NotFound,
    /// This installation is not configured for it any more.
    #[error("{0}")]
    NotConfigured(String),
    /// It failed a moment ago, and is let alone for a while.
    #[error("the store failed and is not asked again for {seconds} s: {last}")]
    Resting {
        /// For how long.
        seconds: u64,
        /// What happened last.
        last: Box<ProviderFault>,
    },
}

/// What a one-time code comes from.
#[derive(Clone, Debug)]
pub enum OneTime {
    /// Codes can be made.
    Secret(OneTimeSecret),
    /// The store made this one a moment ago.
    Code(SecretString),
}

/// The secrets of one item, just read. Whoever has them types them and lets them go.
#[derive(Clone, Default)]
pub struct ItemSecrets {
    /// The user name.
    pub username: Option<SecretString>,
    /// The password.
    pub password: Option<SecretString>,
    /// Where one-time codes come from.
    pub one_time: Option<OneTime>,
    /// Its other fields, by their labels.
    pub values: BTreeMap<String, SecretString>,
}

impl fmt::Debug for ItemSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ItemSecrets(…)")
    }
}

/// Asks stores.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait CredentialStore: Send + Sync {
    /// Its vaults that the token opens; asks the store, whatever is known of it.
    async fn vaults(&self, provider: &OpenProvider) -> Result<Vec<ProviderVault>, ProviderFault>;

    /// Its logins, in the store's order; as known for at most the provider's `cache_ttl`.
    async fn items(&self, provider: &OpenProvider) -> Result<Arc<Vec<ProviderItem>>, ProviderFault>;

    /// The secrets of one of them; asks the store.
    async fn secrets(&self, provider: &OpenProvider, item: &ProviderItem) -> Result<ItemSecrets, ProviderFault>;

    /// Forgets what is known of a provider.
    fn forget(&self, id: CredentialProviderId);
}
