//! The ports of credential providers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use time::{Duration, OffsetDateTime};
use url::Url;

use super::{CredentialProvider, ProviderChange, ProviderItem, ProviderVault};
use crate::credential::TotpSecret;
use crate::ids::{CredentialProviderId, OrganizationId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::store_error::StoreError;

/// The result of storing a provider.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderStored {
    /// Stored, with this priority.
    Yes(u32),
    /// Another provider of the organization has the name; nothing was stored.
    NameTaken,
    /// The organization has the maximum number of providers; nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The organization has no such project; nothing was stored.
    NoProject(ProjectId),
}

/// The result of changing a provider.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderUpdated {
    /// The changed provider.
    Yes(Box<CredentialProvider>),
    /// Another provider of the organization has the name; nothing was changed.
    NameTaken,
    /// The organization has no such project; nothing was changed.
    NoProject(ProjectId),
    /// There is no such provider.
    NotFound,
}

/// The result of deleting a provider.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderDeleted {
    /// Deleted.
    Yes,
    /// An auth connection uses it; nothing was changed.
    InUse,
    /// There is no such provider.
    NotFound,
}

/// The port to the stored providers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait CredentialProviderRepository: Send + Sync {
    /// Stores a new provider with a priority after all others, if the organization has fewer than `max`. The priority
    /// of `provider` is ignored.
    async fn create(&self, provider: &CredentialProvider, max: u32) -> Result<ProviderStored, StoreError>;

    /// Returns the organization's provider.
    async fn find(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
    ) -> Result<Option<CredentialProvider>, StoreError>;

    /// Returns the organization's provider with this name, regardless of case and accents.
    async fn named(&self, organization: OrganizationId, name: &str) -> Result<Option<CredentialProvider>, StoreError>;

    /// Returns the organization's providers by priority; with a `query` those whose name contains it in any case, or
    /// whose id it is.
    async fn list<'a>(
        &self,
        organization: OrganizationId,
        query: Option<&'a str>,
        page: Page,
    ) -> Result<Listed<CredentialProvider>, StoreError>;

    /// Returns the enabled providers by priority.
    async fn enabled(&self, organization: OrganizationId) -> Result<Vec<CredentialProvider>, StoreError>;

    /// Changes a provider atomically. Auth connections that refer to it by name refer to its new name.
    async fn update(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
        change: &ProviderChange,
        at: OffsetDateTime,
    ) -> Result<ProviderUpdated, StoreError>;

    /// Deletes a provider unless an auth connection uses it, by name or id.
    async fn delete(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
    ) -> Result<ProviderDeleted, StoreError>;

    /// Returns up to `max` tokens that are sealed with another key than `key`.
    async fn sealed_with_other_key(
        &self,
        key: KeyId,
        max: u32,
    ) -> Result<Vec<(CredentialProviderId, Vec<u8>)>, StoreError>;

    /// Replaces `current` by `next`, unless it was changed meanwhile.
    async fn reseal(&self, id: CredentialProviderId, current: &[u8], next: &[u8]) -> Result<(), StoreError>;

    /// Returns the keys that tokens are sealed with.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// The resolved location of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// The base URL of a 1Password Connect server.
    PasswordManager(Url),
    /// The name of a KeePass database in the configuration of this installation.
    Keepass(String),
}

/// A provider with its decrypted token, ready for requests.
#[derive(Clone)]
pub struct OpenProvider {
    /// The id.
    pub id: CredentialProviderId,
    /// The version, which changes with every change of the provider and invalidates its cache.
    pub version: OffsetDateTime,
    /// The location.
    pub place: StorePlace,
    /// The access token.
    pub token: SecretString,
    /// The time for which the list of items is cached.
    pub cache_ttl: Duration,
}

impl fmt::Debug for OpenProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenProvider").field("id", &self.id).field("place", &self.place).finish_non_exhaustive()
    }
}

/// The error of a provider. It contains no secret, and no text of the provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderFault {
    /// The provider refused the token or the password.
    #[error("the store refused the token")]
    Refused,
    /// The provider cannot be reached, or the file cannot be read.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The provider did not respond in time.
    #[error("the store did not answer in time")]
    Silent,
    /// The provider sent an unexpected response.
    #[error("the store answered something else than expected: {0}")]
    BadAnswer(String),
    /// The provider has no such item.
    #[error("the store has no such item")]
    NotFound,
    /// This installation is not configured for the provider any more.
    #[error("{0}")]
    NotConfigured(String),
    /// The provider failed recently and is in its backoff.
    #[error("the store failed; it is queried again in {seconds} s: {last}")]
    BackingOff {
        /// The remaining backoff, in seconds.
        seconds: u64,
        /// The last error.
        last: Box<ProviderFault>,
    },
}

/// The source of a one-time code.
#[derive(Clone, Debug)]
pub enum OneTime {
    /// A secret of which codes are computed.
    Secret(TotpSecret),
    /// A code that the provider has just computed.
    Code(SecretString),
}

/// The secrets of one item, just read. They are typed and then dropped.
#[derive(Clone, Default)]
pub struct ItemSecrets {
    /// The user name.
    pub username: Option<SecretString>,
    /// The password.
    pub password: Option<SecretString>,
    /// The source of one-time codes.
    pub one_time: Option<OneTime>,
    /// The other fields, by label.
    pub values: BTreeMap<String, SecretString>,
}

impl fmt::Debug for ItemSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ItemSecrets(…)")
    }
}

/// The port to the providers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait CredentialStore: Send + Sync {
    /// Returns the vaults that the token opens, without the cache.
    async fn vaults(&self, provider: &OpenProvider) -> Result<Vec<ProviderVault>, ProviderFault>;

    /// Returns the logins in the provider's order, from the cache for at most `cache_ttl`.
    async fn items(&self, provider: &OpenProvider) -> Result<Arc<Vec<ProviderItem>>, ProviderFault>;

    /// Returns the secrets of a login, without the cache.
    async fn secrets(&self, provider: &OpenProvider, item: &ProviderItem) -> Result<ItemSecrets, ProviderFault>;

    /// Removes a provider from the cache.
    fn forget(&self, id: CredentialProviderId);
}
