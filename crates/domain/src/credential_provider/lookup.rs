//! The search for the login of a site in the providers.

use url::{Host, Url};

use super::{CredentialProvider, CredentialProviders, ItemSecrets, ProviderError, ProviderFault, ProviderItem};
use crate::auth_connection::ProviderScope;
use crate::ids::CredentialProviderId;
use crate::sealing::SealError;
use crate::store_error::StoreError;

/// The login to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The login of a site, by its host name.
    Domain(&'a str),
    /// One item: `vault/title`, or the provider's identifiers of both.
    Path(&'a str),
}

/// The error of a search.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is no such provider, or the project may not use it.
    #[error("there is no credential provider named {0}")]
    NoProvider(String),
    /// The provider is switched off.
    #[error("the credential provider {0} is switched off")]
    Disabled(String),
    /// Several items have this path.
    #[error(
        "the credential provider {provider} has {items} items at this path; name one by the ids of its vault and itself"
    )]
    Ambiguous {
        /// The provider's name.
        provider: String,
        /// The number of items.
        items: usize,
    },
    /// A provider failed, and no other provider has the login.
    #[error("the credential provider {provider}: {fault}")]
    Fault {
        /// The provider's name.
        provider: String,
        /// The error.
        fault: ProviderFault,
    },
    /// The token of a provider cannot be opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The item that was found, with its secrets.
#[derive(Clone, Debug)]
pub struct FoundLogin {
    /// The provider.
    pub provider: CredentialProviderId,
    /// The item.
    pub item: ProviderItem,
    /// The secrets of the item, which are typed and then dropped.
    pub secrets: ItemSecrets,
}

impl CredentialProviders {
    /// Finds an item in the provider with this name or id; without one, in all enabled providers of the scope by
    /// priority. Reads the secrets of the item. A provider that fails does not end the search.
    ///
    /// # Errors
    /// See [`FindError`].
    pub async fn find(
        &self,
        scope: ProviderScope,
        provider: Option<&str>,
        what: Lookup<'_>,
    ) -> Result<Option<FoundLogin>, FindError> {
        let providers = match provider {
            Some(name) => vec![self.enabled_by_name(scope, name).await?],
            None => self.enabled(scope).await?,
        };
        let mut failed = None;
        for provider in providers {
            match self.find_in(&provider, what).await {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error @ FindError::Fault { .. }) => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Returns the enabled providers of the scope by priority.
    pub(super) async fn enabled(&self, scope: ProviderScope) -> Result<Vec<CredentialProvider>, StoreError> {
        let mut providers = self.deps.providers.enabled(scope.organization).await?;
        providers.retain(|provider| provider.is_shared_with(scope));
        Ok(providers)
    }

    /// Returns the provider of the scope with this name or id.
    pub(super) async fn named(
        &self,
        scope: ProviderScope,
        name: &str,
    ) -> Result<Option<CredentialProvider>, StoreError> {
        let found = match name.parse::<CredentialProviderId>() {
            Ok(id) => self.deps.providers.find(scope.organization, id).await?,
            Err(_) => self.deps.providers.named(scope.organization, name).await?,
        };
        Ok(found.filter(|provider| provider.is_shared_with(scope)))
    }

    async fn enabled_by_name(&self, scope: ProviderScope, name: &str) -> Result<CredentialProvider, FindError> {
        let provider = self.named(scope, name).await?.ok_or_else(|| FindError::NoProvider(name.to_owned()))?;
        if provider.enabled { Ok(provider) } else { Err(FindError::Disabled(provider.name.as_str().to_owned())) }
    }

    async fn find_in(&self, provider: &CredentialProvider, what: Lookup<'_>) -> Result<Option<FoundLogin>, FindError> {
        let name = provider.name.as_str().to_owned();
        let fault = |fault| FindError::Fault { provider: name.clone(), fault };
        let open = match self.open(provider) {
            Ok(open) => open,
            Err(ProviderError::Specific(reason)) => return Err(fault(reason)),
            Err(ProviderError::Seal(error)) => return Err(error.into()),
            Err(other) => return Err(fault(ProviderFault::NotConfigured(other.to_string()))),
        };
        let items = self.deps.store.items(&open).await.map_err(&fault)?;
        let item = match what {
            Lookup::Domain(domain) => closest(&items, domain),
            Lookup::Path(path) => {
                let found: Vec<&ProviderItem> = items.iter().filter(|item| item.is_at(path)).collect();
                if found.len() > 1 {
                    return Err(FindError::Ambiguous { provider: name.clone(), items: found.len() });
                }
                found.first().copied()
            }
        };
        let Some(item) = item.cloned() else { return Ok(None) };
        let secrets = self.deps.store.secrets(&open, &item).await.map_err(&fault)?;
        Ok(Some(FoundLogin { provider: provider.id, item, secrets }))
    }
}

/// Returns the host name of an item's URL. Many of these URLs have no scheme.
pub(super) fn host_of(address: &str) -> Option<String> {
    let address = address.trim();
    let url = match Url::parse(address) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        _ if address.contains("://") => return None,
        _ => Url::parse(&format!("https://{address}")).ok()?,
    };
    match url.host()? {
        Host::Domain(name) => Some(name.trim_end_matches('.').to_ascii_lowercase()),
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

/// Returns the item whose site is closest to `domain`; among equals the one that was changed last, then by title and
/// identifier.
fn closest<'a>(items: &'a [ProviderItem], domain: &str) -> Option<&'a ProviderItem> {
    let domain = domain.trim_end_matches('.').to_ascii_lowercase();
    let near = |item: &ProviderItem| item.hosts.iter().filter_map(|host| distance(host, &domain)).min();
    let rank = |item: &'a ProviderItem| {
        let newest = std::cmp::Reverse(item.changed_at);
        near(item).map(|near| ((near, newest, &*item.title, &*item.id), item))
    };
    items.iter().filter_map(rank).min_by(|(left, _), (right, _)| left.cmp(right)).map(|(_, item)| item)
}

/// Returns the distance of a site from another: the same host, the same host with or without `www.`, a subdomain, a
/// parent domain. Other hosts, and hosts of another registrable domain according to the public suffix list, do not
/// match.
fn distance(host: &str, domain: &str) -> Option<u8> {
    let bare = |name: &'_ str| name.strip_prefix("www.").unwrap_or(name).to_owned();
    if host == domain {
        return Some(0);
    }
    if psl::domain_str(host)? != psl::domain_str(domain)? {
        return None;
    }
    let below = |name: &str, of: &str| name.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    if bare(host) == bare(domain) {
        Some(1)
    } else if below(domain, &bare(host)) {
        Some(2)
    } else if below(host, &bare(domain)) {
        Some(3)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::super::ProviderVault;
    use super::*;
    use crate::testing::NOON;

    fn item(id: &str, urls: &[&str]) -> ProviderItem {
        let vault = ProviderVault { id: "v".to_owned(), name: "Vault".to_owned() };
        let urls = urls.iter().map(|&url| url.to_owned()).collect();
        ProviderItem::new(id.to_owned(), format!("Title {id}"), vault, urls, None)
    }

    #[test]
    fn an_address_is_read_however_it_is_written() {
        for (address, host) in [
            ("https://Shop.Example/login?x=1", Some("shop.example")),
            ("shop.example", Some("shop.example")),
            ("shop.example:8443/login", Some("shop.example")),
            (" http://me:word@shop.example. ", Some("shop.example")),
            ("https://münchen.example", Some("xn--mnchen-3ya.example")),
            ("ftp://shop.example", None),
            ("androidapp://com.example", None),
            ("https://10.0.0.1/", None),
            ("", None),
            ("https://", None),
            ("\u{1b}[31mshop", None),
        ] {
            assert_eq!(host_of(address).as_deref(), host, "{address}");
        }
    }

    #[test]
    fn another_owners_password_is_never_used() {
        for (host, domain, far) in [
            ("shop.example", "shop.example", Some(0)),
            ("www.shop.example", "shop.example", Some(1)),
            ("shop.example", "www.shop.example", Some(1)),
            ("shop.example", "login.shop.example", Some(2)),
            ("accounts.shop.example", "shop.example", Some(3)),
            ("accounts.shop.example", "www.shop.example", Some(3)),
            ("a.shop.example", "b.shop.example", None),
            ("notshop.example", "shop.example", None),
            ("shop.example", "notshop.example", None),
            ("shop.example.evil.test", "shop.example", None),
            ("bank.co.uk", "co.uk", None),
            ("bank.co.uk", "shop.co.uk", None),
            ("github.io", "evil.github.io", None),
            ("me.github.io", "github.io", None),
            ("me.github.io", "evil.github.io", None),
            ("me.github.io", "me.github.io", Some(0)),
            ("intranet", "intranet", Some(0)),
            ("intranet", "a.intranet", None),
        ] {
            assert_eq!(distance(host, domain), far, "{host} for {domain}");
        }
    }

    #[test]
    fn the_closest_site_is_taken_then_the_newest_item() {
        let far = item("far", &["https://login.shop.example"]);
        let near = item("near", &["https://other.test", "https://shop.example/x"]);
        let items = [far.clone(), near.clone(), item("none", &[]), item("other", &["https://other.example"])];
        assert_eq!(closest(&items, "Shop.Example."), Some(&near));
        assert_eq!(closest(&items, "nobody.example"), None);
        let newer = ProviderItem { changed_at: Some(NOON + Duration::DAY), ..item("z", &["shop.example"]) };
        let older = ProviderItem { changed_at: Some(NOON), ..item("a", &["shop.example"]) };
        assert_eq!(closest(&[older.clone(), far, near.clone(), newer.clone()], "shop.example"), Some(&newer));
        assert_eq!(closest(&[near.clone(), older.clone()], "shop.example"), Some(&older));
        let twin = item("twin", &["shop.example"]);
        assert_eq!(closest(&[twin, near.clone()], "shop.example"), Some(&near), "by title");
    }

    #[test]
    fn a_path_is_names_or_identifiers() {
        let mut shop = item("i1", &[]);
        shop.title = "A/B".to_owned();
        for (path, is) in [("Vault/A/B", true), ("v/i1", true), ("Vault/i1", false), ("Vault/A", false), ("A/B", false)]
        {
            assert_eq!(shop.is_at(path), is, "{path}");
        }
        assert_eq!(shop.path(), "Vault/A/B");
    }
}
