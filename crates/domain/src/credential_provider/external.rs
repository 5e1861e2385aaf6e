//! The credential providers as the port of the login flows.

use async_trait::async_trait;

use super::{CredentialProviders, ItemSecrets, Lookup, OneTime};
use crate::auth_connection::{ExternalCredentials, ExternalLogin, ExternalWanted, ProviderScope};
use crate::credential::Sites;
use crate::store_error::StoreError;

#[async_trait]
impl ExternalCredentials for CredentialProviders {
    async fn known<'a>(&self, scope: ProviderScope, provider: Option<&'a str>) -> Result<bool, StoreError> {
        let Some(provider) = provider else {
            return Ok(!self.enabled(scope).await?.is_empty());
        };
        let found = self.named(scope, provider).await?;
        Ok(found.is_some_and(|provider| provider.enabled))
    }

    async fn fetch<'a>(
        &self,
        scope: ProviderScope,
        provider: Option<&'a str>,
        wanted: ExternalWanted<'a>,
    ) -> Result<Option<ExternalLogin>, String> {
        let what = match wanted {
            ExternalWanted::Path(path) => Lookup::Path(path),
            ExternalWanted::Domain(domain) => Lookup::Domain(domain),
        };
        let found = self.find(scope, provider, what).await.map_err(|error| error.to_string())?;
        Ok(found.map(|login| given(login.secrets, login.item.sites)))
    }
}

/// Converts the secrets of an item into the fields of a login flow.
fn given(secrets: ItemSecrets, sites: Sites) -> ExternalLogin {
    let ItemSecrets { username, password, one_time, mut values } = secrets;
    let named = [("username", username), ("password", password)];
    values.extend(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    let (totp, totp_code) = match one_time {
        Some(OneTime::Secret(secret)) => (Some(secret), None),
        Some(OneTime::Code(code)) => (None, Some(code)),
        None => (None, None),
    };
    ExternalLogin { values, totp, totp_code, sites }
}
