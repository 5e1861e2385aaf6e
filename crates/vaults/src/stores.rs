//! Combines the stores of all kinds, with a cache of lists and failures.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::CredentialProviderId;
use casement_domain::backoff::Backoff;
use casement_domain::credential_provider::{
    CredentialStore, ItemSecrets, OpenProvider, ProviderFault, ProviderItem, ProviderVault, StorePlace,
};
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::time::Instant;

/// The pause after a store's first failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest pause.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The maximum size of the cached lists of all providers in bytes; the oldest lists are dropped first.
const MAX_CACHED_BYTES: usize = 256 << 20;

/// The store of each kind, and the cache of each provider.
pub struct Stores {
    password_manager: Arc<dyn CredentialStore>,
    keepass: Arc<dyn CredentialStore>,
    entries: Mutex<HashMap<CredentialProviderId, CacheEntry>>,
}

/// The cache of one provider.
struct CacheEntry {
    version: OffsetDateTime,
    /// Locked by the task that reads the list, so that concurrent callers read it once.
    reading: Arc<tokio::sync::Mutex<()>>,
    list: Option<List>,
    backoff: Backoff,
    /// The end of the current pause, and the failure before it.
    pause: Option<(Instant, ProviderFault)>,
}

struct List {
    items: Arc<Vec<ProviderItem>>,
    bytes: usize,
    read_at: Instant,
    stale_at: Instant,
}

impl CacheEntry {
    fn new(version: OffsetDateTime) -> Self {
        Self {
            version,
            reading: Arc::default(),
            list: None,
            backoff: Backoff::new(FIRST_BACKOFF, MAX_BACKOFF),
            pause: None,
        }
    }

    fn pausing(&self, now: Instant) -> Option<ProviderFault> {
        let (until, last) = self.pause.as_ref().filter(|(until, _)| *until > now)?;
        let seconds = (*until - now).as_secs() + 1;
        Some(ProviderFault::BackingOff { seconds, last: Box::new(last.clone()) })
    }
}

impl Stores {
    /// Creates the stores.
    pub fn new(password_manager: Arc<dyn CredentialStore>, keepass: Arc<dyn CredentialStore>) -> Self {
        Self { password_manager, keepass, entries: Mutex::default() }
    }

    fn kind(&self, provider: &OpenProvider) -> &dyn CredentialStore {
        match provider.place {
            StorePlace::PasswordManager(_) => &*self.password_manager,
            StorePlace::Keepass(_) => &*self.keepass,
        }
    }

    /// Runs `act` with the cache entry of the provider's current version, and removes expired lists of all providers.
    fn with<T>(&self, provider: &OpenProvider, act: impl FnOnce(&mut CacheEntry, Instant) -> T) -> T {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        for entry in entries.values_mut() {
            entry.list = entry.list.take().filter(|list| list.stale_at > now);
        }
        let entry = entries.entry(provider.id).or_insert_with(|| CacheEntry::new(provider.version));
        if entry.version != provider.version {
            *entry = CacheEntry::new(provider.version);
        }
        act(entry, now)
    }

    fn check_pause(&self, provider: &OpenProvider) -> Result<(), ProviderFault> {
        self.with(provider, |entry, now| entry.pausing(now).map_or(Ok(()), Err))
    }

    /// Records the result of a request: a failure begins a pause, a success ends it.
    fn note<T>(&self, provider: &OpenProvider, result: Result<T, ProviderFault>) -> Result<T, ProviderFault> {
        self.with(provider, |entry, now| match &result {
            Ok(_) => {
                entry.backoff.reset();
                entry.pause = None;
            }
            // The store works; the cached list is outdated.
            Err(ProviderFault::NotFound) => entry.list = None,
            Err(ProviderFault::NotConfigured(_)) => {}
            Err(fault) => {
                entry.pause = Some((now + entry.backoff.next_pause(), fault.clone()));
                tracing::warn!(provider = %provider.id, %fault, "a credential provider failed");
            }
        });
        result
    }

    fn cache(&self, provider: &OpenProvider, items: &Arc<Vec<ProviderItem>>) {
        let ttl = Duration::try_from(provider.cache_ttl).unwrap_or_default();
        let bytes = items.iter().map(bytes).sum();
        self.with(provider, |entry, now| {
            entry.list = Some(List { items: Arc::clone(items), bytes, read_at: now, stale_at: now + ttl });
        });
        let mut entries = self.entries.lock();
        let size = |entries: &HashMap<_, CacheEntry>| {
            entries.values().filter_map(|one| one.list.as_ref()).map(|list| list.bytes).sum::<usize>()
        };
        while size(&entries) > MAX_CACHED_BYTES {
            let oldest = entries.values_mut().filter(|one| one.list.is_some());
            let oldest = oldest.min_by_key(|one| one.list.as_ref().map(|list| list.read_at));
            match oldest {
                Some(one) => one.list = None,
                None => break,
            }
        }
    }
}

/// Returns the approximate size of an item in memory.
fn bytes(item: &ProviderItem) -> usize {
    let texts = [&item.id, &item.title, &item.vault.id, &item.vault.name];
    // Each URL is stored with its host.
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
        let reading = self.with(provider, |entry, _| Arc::clone(&entry.reading));
        let _held = reading.lock().await;
        let list = self.with(provider, |entry, _| entry.list.as_ref().map(|list| Arc::clone(&list.items)));
        if let Some(items) = list {
            return Ok(items);
        }
        self.check_pause(provider)?;
        let came = self.kind(provider).items(provider).await;
        let items = self.note(provider, came)?;
        self.cache(provider, &items);
        Ok(items)
    }

    async fn secrets(&self, provider: &OpenProvider, item: &ProviderItem) -> Result<ItemSecrets, ProviderFault> {
        self.check_pause(provider)?;
        let came = self.kind(provider).secrets(provider, item).await;
        self.note(provider, came)
    }

    fn forget(&self, id: CredentialProviderId) {
        self.entries.lock().remove(&id);
    }
}
