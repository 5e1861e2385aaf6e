//! The use cases of credential providers.

use std::collections::BTreeSet;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use time::Duration;
use url::Url;

use super::input::unknown_project;
use super::{
    CredentialProvider, CredentialProviderRepository, CredentialStore, OpenProvider, ProviderDeleted, ProviderFault,
    ProviderItem, ProviderPlace, ProviderRequest, ProviderStored, ProviderUpdateRequest, ProviderUpdated,
    ProviderVault, StorePlace,
};
use crate::clock::{Clock, IdSource};
use crate::error::{InUse, NameTaken, NotFound, SpecificError, UseCaseError};
use crate::ids::{CredentialProviderId, OrganizationId};
use crate::page::{Listed, Page};
use crate::sealing::{Resealed, SealError, Sealer};
use crate::store_error::StoreError;

/// The error of a use case of credential providers.
pub type ProviderError = UseCaseError<ProviderFault>;

impl SpecificError for ProviderFault {}

/// The configuration of this installation.
#[derive(Clone, Debug, Default)]
pub struct ProviderSettings {
    /// The URL of the 1Password Connect server of providers that name none.
    pub server_url: Option<Url>,
    /// The names of the KeePass databases that providers may name.
    pub vaults: BTreeSet<String>,
}

/// The dependencies of the use cases of credential providers.
#[derive(Clone)]
pub struct ProviderDeps {
    /// The repository of credential providers.
    pub providers: Arc<dyn CredentialProviderRepository>,
    /// The port to the providers.
    pub store: Arc<dyn CredentialStore>,
    /// Seals the tokens of providers.
    pub sealer: Arc<dyn Sealer>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The configuration.
    pub settings: ProviderSettings,
    /// The maximum number of providers of an organization.
    pub max: u32,
}

/// The result of testing a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderTest {
    /// The vaults that the token opens, or the error of the provider.
    pub vaults: Result<Vec<ProviderVault>, ProviderFault>,
}

/// The use cases of credential providers.
#[derive(Clone)]
pub struct CredentialProviders {
    pub(super) deps: ProviderDeps,
}

impl CredentialProviders {
    /// The default maximum number of providers of an organization.
    pub const DEFAULT_MAX: u32 = 100;

    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: ProviderDeps) -> Self {
        Self { deps }
    }

    /// Stores a new provider with a priority after all others. The provider is not contacted.
    ///
    /// # Errors
    /// See [`ProviderError`]; then nothing is stored.
    pub async fn create(
        &self,
        organization: OrganizationId,
        request: ProviderRequest,
    ) -> Result<CredentialProvider, ProviderError> {
        let new = request.parse(&self.deps.settings)?;
        let id = CredentialProviderId::mint(self.deps.ids.as_ref());
        let now = self.deps.clock.now();
        let mut provider = CredentialProvider {
            id,
            organization,
            name: new.name,
            place: new.place,
            is_onepassword: new.is_onepassword,
            token: self.seal(id, &new.token)?,
            cache_ttl_seconds: new.cache_ttl_seconds,
            enabled: true,
            priority: 0,
            projects: new.projects,
            created_at: now,
            updated_at: now,
        };
        match self.deps.providers.create(&provider, self.deps.max).await? {
            ProviderStored::Yes(priority) => {
                provider.priority = priority;
                Ok(provider)
            }
            ProviderStored::NameTaken => Err(name_taken(provider.name.as_str()).into()),
            ProviderStored::LimitExceeded(limit) => Err(limit.into()),
            ProviderStored::NoProject(project) => Err(unknown_project(project).into()),
        }
    }

    /// Returns the organization's provider.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, organization: OrganizationId, which: &str) -> Result<CredentialProvider, ProviderError> {
        let missing = || NotFound::new("credential provider", which);
        let id = which.parse().map_err(|_| missing())?;
        self.deps.providers.find(organization, id).await?.ok_or_else(|| missing().into())
    }

    /// Returns the organization's providers by priority.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        organization: OrganizationId,
        query: Option<&str>,
        page: Page,
    ) -> Result<Listed<CredentialProvider>, StoreError> {
        self.deps.providers.list(organization, query, page).await
    }

    /// Changes a provider.
    ///
    /// # Errors
    /// See [`ProviderError`]; then nothing is changed.
    pub async fn update(
        &self,
        organization: OrganizationId,
        which: &str,
        update: ProviderUpdateRequest,
    ) -> Result<CredentialProvider, ProviderError> {
        let current = self.get(organization, which).await?;
        let (mut change, token) = update.parse(&current, &self.deps.settings)?;
        change.token = token.as_ref().map(|token| self.seal(current.id, token)).transpose()?;
        let now = self.deps.clock.now();
        match self.deps.providers.update(organization, current.id, &change, now).await? {
            ProviderUpdated::Yes(provider) => {
                self.deps.store.forget(current.id);
                Ok(*provider)
            }
            ProviderUpdated::NameTaken => {
                Err(name_taken(change.name.as_ref().map(|name| name.as_str()).unwrap_or_default()).into())
            }
            ProviderUpdated::NoProject(project) => Err(unknown_project(project).into()),
            ProviderUpdated::NotFound => Err(NotFound::new("credential provider", which).into()),
        }
    }

    /// Deletes a provider that no auth connection uses.
    ///
    /// # Errors
    /// See [`ProviderError`].
    pub async fn delete(&self, organization: OrganizationId, which: &str) -> Result<(), ProviderError> {
        let missing = || NotFound::new("credential provider", which);
        let id = which.parse().map_err(|_| missing())?;
        match self.deps.providers.delete(organization, id).await? {
            ProviderDeleted::Yes => {
                self.deps.store.forget(id);
                Ok(())
            }
            ProviderDeleted::InUse => {
                let usage = "used by an auth connection; change its credential first";
                Err(InUse { kind: "credential provider", which: which.to_owned(), usage }.into())
            }
            ProviderDeleted::NotFound => Err(missing().into()),
        }
    }

    /// Returns the logins of a provider, without their secrets.
    ///
    /// # Errors
    /// See [`ProviderError`].
    pub async fn items(
        &self,
        organization: OrganizationId,
        which: &str,
    ) -> Result<Arc<Vec<ProviderItem>>, ProviderError> {
        let provider = self.get(organization, which).await?;
        Ok(self.deps.store.items(&self.open(&provider)?).await?)
    }

    /// Tests a provider: requests the vaults that its token opens.
    ///
    /// # Errors
    /// See [`ProviderError`]. An error of the provider itself is part of the result.
    pub async fn test(&self, organization: OrganizationId, which: &str) -> Result<ProviderTest, ProviderError> {
        let provider = self.get(organization, which).await?;
        let open = match self.open(&provider) {
            Err(ProviderError::Specific(fault)) => return Ok(ProviderTest { vaults: Err(fault) }),
            open => open?,
        };
        Ok(ProviderTest { vaults: self.deps.store.vaults(&open).await })
    }

    /// Reseals the tokens that are not sealed with the current master key. Tokens that cannot be opened are unchanged.
    ///
    /// # Errors
    /// See [`ProviderError`]; tokens that were resealed before the error stay resealed.
    pub async fn reseal(&self) -> Result<Resealed, ProviderError> {
        let (sealer, mut resealed) = (&*self.deps.sealer, Resealed::default());
        loop {
            let processed = resealed.processed();
            for (id, sealed) in &self.deps.providers.sealed_with_other_key(sealer.current()?, resealed.batch()).await? {
                if let Some(next) = resealed.reseal_value(sealer, CredentialProvider::seal_place(*id), sealed)? {
                    self.deps.providers.reseal(*id, sealed, &next).await?;
                    resealed.done += 1;
                }
            }
            if resealed.processed() == processed {
                return Ok(resealed);
            }
        }
    }

    fn seal(&self, id: CredentialProviderId, token: &SecretString) -> Result<Vec<u8>, SealError> {
        self.deps.sealer.seal(&CredentialProvider::seal_place(id), token.expose_secret().as_bytes())
    }

    /// Returns the provider with its resolved location and its decrypted token.
    pub(super) fn open(&self, provider: &CredentialProvider) -> Result<OpenProvider, ProviderError> {
        let place = match &provider.place {
            ProviderPlace::PasswordManager(url) => {
                let url = url.clone().or_else(|| self.deps.settings.server_url.clone());
                let missing = || ProviderFault::NotConfigured("no server_url is set, here or in the server".to_owned());
                StorePlace::PasswordManager(url.ok_or_else(missing)?)
            }
            ProviderPlace::Keepass(vault) if self.deps.settings.vaults.contains(vault) => {
                StorePlace::Keepass(vault.clone())
            }
            ProviderPlace::Keepass(_) => {
                let gone = "the server is no longer configured with this vault".to_owned();
                return Err(ProviderFault::NotConfigured(gone).into());
            }
        };
        let clear = self.deps.sealer.open(&CredentialProvider::seal_place(provider.id), &provider.token)?;
        let token = std::str::from_utf8(clear.expose_secret()).map_err(|_| SealError::Damaged)?;
        Ok(OpenProvider {
            id: provider.id,
            version: provider.updated_at,
            place,
            token: token.to_owned().into(),
            cache_ttl: Duration::seconds(i64::from(provider.cache_ttl_seconds)),
        })
    }
}

fn name_taken(name: &str) -> NameTaken {
    NameTaken::new("a credential provider", name)
}
