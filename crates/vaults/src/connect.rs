//! The provider kind `passwordmanager`: the REST API of a 1Password Connect server.
//!
//! <https://developer.1password.com/docs/connect/api-reference/>

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::CredentialProviderId;
use casement_domain::credential::TotpSecret;
use casement_domain::credential_provider::{
    CredentialStore, ItemSecrets, OneTime, OpenProvider, ProviderFault, ProviderItem, ProviderVault, StorePlace,
};
use secrecy::{ExposeSecret as _, SecretString};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Semaphore;
use url::Url;

use crate::answers::{AtMost, Field, Item, Vault, WholeItem, read};
use crate::bounds::{MAX_ITEMS, MAX_URL, MAX_VALUE, MAX_VALUES, truncated};
use crate::web::{NoAnswer, Web, WebAnswer};

/// The timeout of one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of the items of all vaults.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a list of items in bytes; 10^5 items have about 50 MB.
const MAX_LIST_BYTES: usize = 64 << 20;
/// The maximum number of lists that are read at a time from all servers, because each may use a multiple of
/// [`MAX_LIST_BYTES`] of memory.
const MAX_LISTS: usize = 8;
/// The maximum size of any other response in bytes.
const MAX_BYTES: usize = 4 << 20;
const MAX_VAULTS: usize = 1000;

/// A client of Connect servers.
pub struct Connect {
    web: Arc<dyn Web>,
    lists: Semaphore,
}

impl Connect {
    /// Creates a client that sends its requests with `web`.
    pub fn new(web: Arc<dyn Web>) -> Self {
        Self { web, lists: Semaphore::new(MAX_LISTS) }
    }

    async fn ask(&self, provider: &OpenProvider, path: &[&str], most_bytes: usize) -> Result<WebAnswer, ProviderFault> {
        let StorePlace::PasswordManager(base) = &provider.place else { return Err(other_kind()) };
        let answer = self.web.get(&address(base, path)?, &provider.token, most_bytes, RESPONSE_TIMEOUT).await;
        let answer = answer.map_err(|error| match error {
            NoAnswer::Unreachable(why) => ProviderFault::Unreachable(why),
            NoAnswer::Silent => ProviderFault::Silent,
            NoAnswer::TooLong => ProviderFault::BadAnswer(format!("more than {most_bytes} bytes")),
        })?;
        match answer.status {
            200 => Ok(answer),
            401 | 403 => Err(ProviderFault::Refused),
            status @ 300..=399 => {
                Err(ProviderFault::BadAnswer(format!("a redirect ({status}), which is not followed")))
            }
            status => Err(ProviderFault::BadAnswer(format!("status {status}"))),
        }
    }

    async fn all_vaults(&self, provider: &OpenProvider) -> Result<Vec<ProviderVault>, ProviderFault> {
        let answer = self.ask(provider, &["v1", "vaults"], MAX_BYTES).await?;
        let vaults: AtMost<Vault, MAX_VAULTS> = read(answer.body.expose_secret(), "list of vaults")?;
        let vaults =
            vaults.whole().ok_or_else(|| ProviderFault::BadAnswer(format!("more than {MAX_VAULTS} vaults")))?;
        vaults
            .into_iter()
            .map(|vault| Ok(ProviderVault { id: checked(vault.id)?, name: truncated(vault.name) }))
            .collect()
    }

    async fn all_items(&self, provider: &OpenProvider) -> Result<Vec<ProviderItem>, ProviderFault> {
        let mut all = Vec::new();
        for vault in self.all_vaults(provider).await? {
            let _held = self.lists.acquire().await;
            let answer = self.ask(provider, &["v1", "vaults", &vault.id, "items"], MAX_LIST_BYTES).await?;
            // Parses in a blocking task, because a long list would block a thread of the runtime.
            let remaining = MAX_ITEMS - all.len();
            let reading = tokio::task::spawn_blocking(move || logins(answer.body.expose_secret(), &vault, remaining));
            all.extend(reading.await.map_err(|_| ProviderFault::BadAnswer("a list that cannot be read".to_owned()))??);
        }
        Ok(all)
    }
}

#[async_trait]
impl CredentialStore for Connect {
    async fn vaults(&self, provider: &OpenProvider) -> Result<Vec<ProviderVault>, ProviderFault> {
        self.all_vaults(provider).await
    }

    async fn items(&self, provider: &OpenProvider) -> Result<Arc<Vec<ProviderItem>>, ProviderFault> {
        let all = tokio::time::timeout(LIST_TIMEOUT, self.all_items(provider)).await;
        all.map_err(|_| ProviderFault::Silent)?.map(Arc::new)
    }

    async fn secrets(&self, provider: &OpenProvider, item: &ProviderItem) -> Result<ItemSecrets, ProviderFault> {
        let path = ["v1", "vaults", &item.vault.id, "items", &item.id];
        let answer = self.ask(provider, &path, MAX_BYTES).await.map_err(|fault| match fault {
            ProviderFault::BadAnswer(status) if status == "status 404" => ProviderFault::NotFound,
            other => other,
        })?;
        let whole: WholeItem = read(answer.body.expose_secret(), "item")?;
        if whole.id != item.id {
            return Err(ProviderFault::BadAnswer("another item than the requested one".to_owned()));
        }
        Ok(secrets_of(whole.fields.unwrap_or_default().first()))
    }

    fn forget(&self, _: CredentialProviderId) {}
}

fn other_kind() -> ProviderFault {
    ProviderFault::NotConfigured("a store of another kind".to_owned())
}

/// Returns a URL below the server's address, with each part of the path as one segment.
fn address(base: &Url, path: &[&str]) -> Result<Url, ProviderFault> {
    let mut url = base.clone();
    match url.path_segments_mut() {
        Ok(mut segments) => {
            segments.pop_if_empty().extend(path);
        }
        Err(()) => return Err(ProviderFault::NotConfigured("the server's address is none".to_owned())),
    }
    Ok(url)
}

/// Checks an identifier of the server. It becomes a part of a URL, so only letters and digits are accepted.
fn checked(id: String) -> Result<String, ProviderFault> {
    if (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        Ok(id)
    } else {
        Err(ProviderFault::BadAnswer("an identifier that is none".to_owned()))
    }
}

fn logins(body: &[u8], vault: &ProviderVault, remaining: usize) -> Result<Vec<ProviderItem>, ProviderFault> {
    let items: AtMost<Item, MAX_ITEMS> = read(body, "list of items")?;
    let items = items.whole().filter(|items| items.len() <= remaining);
    let items = items.ok_or_else(|| ProviderFault::BadAnswer(format!("more than {MAX_ITEMS} items")))?;
    let login = |item: Item| {
        let urls = item.urls.unwrap_or_default().first().into_iter().filter_map(|url| url.href);
        let urls = urls.filter(|url| url.len() <= MAX_URL).collect();
        let changed_at = item.updated_at.and_then(|text| OffsetDateTime::parse(&text, &Rfc3339).ok());
        Ok(ProviderItem::new(checked(item.id)?, truncated(item.title), vault.clone(), urls, changed_at))
    };
    items.into_iter().filter(Item::is_login).map(login).collect()
}

fn secrets_of(fields: Vec<Field>) -> ItemSecrets {
    let mut found = ItemSecrets::default();
    let mut values = BTreeMap::new();
    for field in fields {
        let purpose = field.purpose.as_deref().unwrap_or_default();
        match (purpose, field.kind.as_str()) {
            ("USERNAME", _) => found.username = found.username.or(given(field.value)),
            ("PASSWORD", _) => found.password = found.password.or(given(field.value)),
            ("NOTES", _) => {}
            (_, "OTP" | "TOTP") => found.one_time = found.one_time.or_else(|| one_time(field.value, field.totp)),
            _ => {
                let label = field.label.filter(|label| !label.is_empty()).unwrap_or(field.id);
                if let (Some(value), true) = (given(field.value), values.len() < MAX_VALUES) {
                    values.entry(truncated(label)).or_insert(value);
                }
            }
        }
    }
    found.values = values;
    found
}

fn given(value: Option<SecretString>) -> Option<SecretString> {
    value.filter(|value| (1..=MAX_VALUE).contains(&value.expose_secret().len()))
}

/// Returns the secret rather than the server's current code, because a code may have expired when it is typed.
fn one_time(value: Option<SecretString>, code: Option<SecretString>) -> Option<OneTime> {
    let secret = given(value).and_then(|value| TotpSecret::parse(value.expose_secret()).ok());
    let code = given(code).filter(|code| code.expose_secret().bytes().all(|byte| byte.is_ascii_alphanumeric()));
    secret.map(OneTime::Secret).or(code.map(OneTime::Code))
}
