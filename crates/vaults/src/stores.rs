//! All kinds of stores as one, which remembers what they list and when they failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::CredentialProviderId;
use casement_domain::credential_provider::{
    CredentialStore, ItemSecrets, OpenProvider, ProviderFault, ProviderItem, ProviderVault, StorePlace,
};
use parking_lot::{Mutex, MutexGuard};
use time::OffsetDateTime;
use tokio::time::Instant;

/// How long a store is let alone after its first failure; twice as long after each further one.
const FIRST_REST: Duration = Duration::from_secs(1);
/// But never longer.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Bytes of the lists that are remembered, of all providers together; the oldest lists go first.
const MAX_REMEMBERED: usize = 256 << 20;

/// Each kind, and what is remembered of every provider.
pub struct Stores {
    password_manager: Arc<dyn CredentialStore>,
    keepass: Arc<dyn CredentialStore>,
    known: Mutex<HashMap<CredentialProviderId, Known>>,
}

/// What is known of one provider.
struct Known {
    version: OffsetDateTime,
    /// Held by whoever reads the list, so that it is read once for all who wait for it.
    reading: Arc<tokio::sync::Mutex<()>>,
    list: Option<List>,
    failures: u32,
    rest: Option<(Instant, ProviderFault)>,
}

struct List {
    items: Arc<Vec<ProviderItem>>,
    bytes: usize,
    read_at: Instant,
    stale_at: Instant,
}

impl Known {
    fn new(version: OffsetDateTime) -> Self {
        Self { version, reading: Arc::default(), list: None, failures: 0, rest: None }
    }

    fn resting(&self, now: Instant) -> Option<ProviderFault> {
        let (until, last) = self.rest.as_ref().filter(|(until, _)| *until > now)?;
        let seconds = (*until - now).as_secs() + 1;
        Some(ProviderFault::Resting { seconds, last: Box::new(last.clone()) })
    }
}

impl Stores {
    /// Over these.
    pub fn new(password_manager: Arc<dyn CredentialStore>, keepass: Arc<dyn CredentialStore>) -> Self {
        Self { password_manager, keepass, known: Mutex::default() }
    }

    fn kind(&self, provider: &OpenProvider) -> &dyn CredentialStore {
        match provider.place {
            StorePlace::PasswordManager(_) => &*self.password_manager,
            StorePlace::Keepass(_) => &*self.keepass,
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<CredentialProviderId, Known>> {
        self.known.lock()
    }

    /// Does something with what is known of the provider as it is now; lists that nobody believes any more go on the way.
    fn with<T>(&self, provider: &OpenProvider, act: impl FnOnce(&mut Known, Instant) -> T) -> T {
        let now = Instant::now();
        let mut known = self.known();
        for one in known.values_mut() {
            one.list = one.list.take().filter(|list| list.stale_at > now);
        }
        let entry = known.entry(provider.id).or_insert_with(|| Known::new(provider.version));
        if entry.version != provider.version {
            *entry = Known::new(provider.version);
        }
        act(entry, now)
    }

    fn refused_for_now(&self, provider: &OpenProvider) -> Result<(), ProviderFault> {
        self.with(provider, |known, now| known.resting(now).map_or(Ok(()), Err))
    }

    /// What came of asking.
    fn note<T>(&self, provider: &OpenProvider, came: Result<T, ProviderFault>) -> Result<T, ProviderFault> {
        self.with(provider, |known, now| match &came {
            Ok(_) => (known.failures, known.rest) = (0, None),
            // The store is well; what was known of it is not.
            Err(ProviderFault::NotFound) => known.list = None,
            Err(ProviderFault::NotConfigured(_)) => {}
            Err(fault) => {
                let rest = FIRST_REST.saturating_mul(1 << known.failures.min(6)).min(MAX_BACKOFF);
                known.failures = known.failures.saturating_add(1);
                known.rest = Some((now + rest, fault.clone()));
                tracing::warn!(provider = %provider.id, %fault, "a credential provider failed");
            }
        });
        came
    }

    fn remember(&self, provider: &OpenProvider, items: &Arc<Vec<ProviderItem>>) {
        let ttl = Duration::try_from(provider.cache_ttl).unwrap_or_default();
        let bytes = items.iter().map(bytes).sum();
        self.with(provider, |known, now| {
            known.list = Some(List { items: Arc::clone(items), bytes, read_at: now, stale_at: now + ttl });
        });
        let mut known = self.known();
        let size = |known: &HashMap<_, Known>| {
            known.values().filter_map(|one| one.list.as_ref()).map(|list| list.bytes).sum::<usize>()
        };
        while size(&known) > MAX_REMEMBERED {
            let oldest = known.values_mut().filter(|one| one.list.is_some());
            let oldest = oldest.min_by_key(|one| one.list.as_ref().map(|list| list.read_at));
            match oldest {
                Some(one) => one.list = None,
                None => break,
            }
        }
    }
}

/// About how much memory an item takes.
fn bytes(item: &ProviderItem) -> usize {
    let texts = [&item.id, &item.title, &item.vault.id, &item.vault.name];
    // Beside each address there is the host in it.
    let urls: usize = item.urls.iter().map(|url| 2 * (url.len() + size_of::<String>())).sum();
    size_of::<ProviderItem>() + texts.map(String::len).iter().sum::<usize>() + urls
}

#[async_trait]
impl CredentialStore for Stores {
    async fn vaults(&self, provider: &OpenProvider) -> Result<Vec<ProviderVault>, ProviderFault> {
        let came = self.kind(provider).vaults(provider).await;
        self.note(provider, came)
    }

    async fn items(&self, provider: &OpenProvider) -> Result<Arc<Vec<ProviderItem>>, ProviderFault> {
        let reading = self.with(provider, |known, _| Arc::clone(&known.reading));
        let _held = reading.lock().await;
        let list = self.with(provider, |known, _| known.list.as_ref().map(|list| Arc::clone(&list.items)));
        if let Some(items) = list {
            return Ok(items);
        }
        self.refused_for_now(provider)?;
        let came = self.kind(provider).items(provider).await;
        let items = self.note(provider, came)?;
        self.remember(provider, &items);
        Ok(items)
    }

    async fn secrets(&self, provider: &OpenProvider, item: &ProviderItem) -> Result<ItemSecrets, ProviderFault> {
        self.refused_for_now(provider)?;
        let came = self.kind(provider).secrets(provider, item).await;
        self.note(provider, came)
    }

    fn forget(&self, id: CredentialProviderId) {
        self.known().remove(&id);
    }
}
