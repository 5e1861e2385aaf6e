//! Wires credential providers: their rows, their tokens, and the access to their servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::credential_provider::{
    CredentialProviderRepository, CredentialProviders, ProviderDeps, ProviderSettings,
};
use casement_egress::{Allow, Egress, FetchError, Limits, Rules, SystemResolver};
use casement_vaults::{Connect, Keepass, NoAnswer, Reader, Stores, Web, WebAnswer};
use secrecy::SecretString;
use url::Url;

use crate::settings::ServeSettings;
use crate::system::System;
use casement_sealing::MasterKeys;

/// An HTTP client under the egress rules of sessions, with additional exceptions: a provider may be at an address that
/// pages need not reach.
struct RestrictedHttpClient(Egress);

#[async_trait]
impl Web for RestrictedHttpClient {
    async fn get(
        &self,
        url: &Url,
        bearer: &SecretString,
        most_bytes: usize,
        within: Duration,
    ) -> Result<WebAnswer, NoAnswer> {
        match self.0.ask(url, bearer, most_bytes, within).await {
            Ok((status, body)) => Ok(WebAnswer { status, body }),
            Err(FetchError::Silent) => Err(NoAnswer::Silent),
            Err(FetchError::TooLong(_)) => Err(NoAnswer::TooLong),
            Err(error) => Err(NoAnswer::Unreachable(error.to_string())),
        }
    }
}

fn allowed(settings: &ServeSettings) -> Vec<Allow> {
    let own = settings.password_manager_url.as_ref().and_then(|url| {
        let place = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
        Rules::parse(&place).ok()
    });
    let others = settings.egress_allow.iter().chain(&settings.credential_provider_allow);
    others.cloned().chain(own).collect()
}

/// Returns the use cases.
pub(crate) fn use_cases(
    rows: Arc<dyn CredentialProviderRepository>,
    keys: &MasterKeys,
    settings: &ServeSettings,
) -> CredentialProviders {
    put_together(
        rows,
        keys,
        Rules::new(allowed(settings)),
        settings.password_manager_url.clone(),
        settings.keepass_vaults.iter().cloned().collect(),
    )
}

/// Returns the use cases for a command that only changes stored values.
pub(crate) fn without_network(rows: Arc<dyn CredentialProviderRepository>, keys: &MasterKeys) -> CredentialProviders {
    put_together(rows, keys, Rules::default(), None, BTreeMap::new())
}

fn put_together(
    rows: Arc<dyn CredentialProviderRepository>,
    keys: &MasterKeys,
    rules: Rules,
    server_url: Option<Url>,
    files: BTreeMap<String, std::path::PathBuf>,
) -> CredentialProviders {
    let egress = Egress::new(rules, Arc::new(SystemResolver::default()), Limits::default());
    let settings = ProviderSettings { server_url, vaults: files.keys().cloned().collect() };
    // This program itself, even if its file was replaced since the start.
    let reader = Reader { program: "/proc/self/exe".into(), words: vec!["keepass".into()] };
    let connect = Connect::new(Arc::new(RestrictedHttpClient(egress)));
    let stores = Stores::new(Arc::new(connect), Arc::new(Keepass::new(files, reader)));
    CredentialProviders::new(ProviderDeps {
        providers: rows,
        store: Arc::new(stores),
        sealer: Arc::new(keys.clone()),
        clock: Arc::new(System),
        ids: Arc::new(System),
        settings,
        max: CredentialProviders::DEFAULT_MAX,
    })
}
