//! `keepass`: a KeePass database, a file that the operator has named.
//!
//! The file is read anew each time; it is decrypted in memory, and what was decrypted is gone when what was asked for is found.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::keepass::db::{EntryRef, fields};
use ::keepass::{Database, DatabaseKey, db::DatabaseOpenError};
use async_trait::async_trait;
use casement_domain::CredentialProviderId;
use casement_domain::credential_provider::{
    CredentialStore, ItemSecrets, OneTime, OneTimeSecret, OpenProvider, ProviderFault, ProviderItem, ProviderVault,
    StorePlace,
};
use secrecy::{ExposeSecret as _, SecretString};
use time::{Duration, OffsetDateTime};
use tokio::sync::Semaphore;

use crate::MOST_ITEMS;

/// Bytes of a file; attachments lie in it, too.
const LONGEST: u64 = 64 << 20;
/// Groups within groups.
const DEEPEST: usize = 32;
/// How long opening may take: a file may be made so that it takes seconds.
const OPENING: std::time::Duration = std::time::Duration::from_secs(60);
/// Further fields of an item.
const MOST_VALUES: usize = 50;
/// What KeePassXC calls an entry's further addresses.
const MORE_URLS: &str = "KP2A_URL";
/// What KeePass 2 calls the secret of one-time codes.
const OTHER_OTP: &str = "TimeOtp-Secret-Base32";
/// A value that stands in another entry. It is not looked for, and is no value.
const REFERENCE: &str = "{REF:";

/// Reads KeePass databases.
pub struct Keepass {
    files: BTreeMap<String, PathBuf>,
    /// One at a time: each takes the memory that its file asks for, a processor's whole attention, and then a second.
    room: Arc<Semaphore>,
}

impl Keepass {
    /// These, by their names.
    pub fn new(files: BTreeMap<String, PathBuf>) -> Self {
        Self { files, room: Arc::new(Semaphore::new(1)) }
    }

    /// What `look` finds in the provider's database.
    async fn look<T: Send + 'static>(
        &self,
        provider: &OpenProvider,
        look: impl FnOnce(&Database, &ProviderVault) -> Result<T, ProviderFault> + Send + 'static,
    ) -> Result<T, ProviderFault> {
        let not_here = || ProviderFault::NotConfigured("the server is not configured with this vault".to_owned());
        let StorePlace::Keepass(name) = &provider.place else { return Err(not_here()) };
        let file = self.files.get(name).cloned().ok_or_else(not_here)?;
        let vault = ProviderVault { id: name.clone(), name: name.clone() };
        let (password, room) = (provider.token.clone(), Arc::clone(&self.room));
        let looking = async move {
            let held = room.acquire_owned().await;
            tokio::task::spawn_blocking(move || {
                // It goes on when nobody waits for it any more, and keeps its place until it has ended.
                let _held = held;
                look(&open(&file, &password)?, &vault)
            })
            .await
        };
        match tokio::time::timeout(OPENING, looking).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Err(ProviderFault::BadAnswer("a file that cannot be read".to_owned())),
            Err(_) => Err(ProviderFault::Silent),
        }
    }
}

fn open(file: &Path, password: &SecretString) -> Result<Database, ProviderFault> {
    let unreachable = |error: std::io::Error| ProviderFault::Unreachable(format!("its file: {}", error.kind()));
    let file = File::open(file).map_err(unreachable)?;
    let is_file = file.metadata().map_err(unreachable)?.is_file();
    let mut bytes = Vec::new();
    if !is_file || file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreachable)? as u64 > LONGEST {
        return Err(ProviderFault::BadAnswer(format!("no file of at most {LONGEST} bytes")));
    }
    let key = DatabaseKey::new().with_password(password.expose_secret());
    Database::parse(&bytes, key).map_err(|error| match error {
        // In the older format a wrong password is seen by what it decrypts to.
        DatabaseOpenError::Key(_) | DatabaseOpenError::Cryptography(_) => ProviderFault::Refused,
        _ => ProviderFault::BadAnswer("no KeePass database that can be read".to_owned()),
    })
}

/// Every login with its title, which is the path through the groups that it is in; but those that were thrown away.
fn each_login(database: &Database, mut act: impl FnMut(&EntryRef<'_>, String)) {
    let bin = database.recycle_bin().map(|group| group.id());
    let mut open = vec![(database.root().id(), String::new(), 0)];
    while let Some((group, path, depth)) = open.pop() {
        let Some(group) = database.group(group) else { continue };
        for entry in group.entries() {
            if text(&entry, fields::PASSWORD).is_some() || one_time(&entry).is_some() {
                act(&entry, format!("{path}{}", entry.get_title().unwrap_or_default()));
            }
        }
        for below in group.groups().filter(|below| depth < DEEPEST && Some(below.id()) != bin) {
            let path = format!("{path}{}/", below.name);
            open.push((below.id(), path, depth + 1));
        }
    }
}

fn items(database: &Database, vault: &ProviderVault) -> Result<Arc<Vec<ProviderItem>>, ProviderFault> {
    let mut items = Vec::new();
    each_login(database, |entry, title| {
        let further = entry.fields.keys().filter(|name| name.starts_with(MORE_URLS));
        let names = std::iter::once(fields::URL).chain(further.map(String::as_str));
        let urls = names.filter_map(|name| entry.get(name)).filter(|url| !url.is_empty()).map(str::to_owned);
        let changed_at = entry.times.last_modification.map(|at| at.and_utc().timestamp());
        let changed_at =
            changed_at.and_then(|seconds| OffsetDateTime::UNIX_EPOCH.checked_add(Duration::seconds(seconds)));
        items.push(ProviderItem::new(id(entry), title, vault.clone(), urls.collect(), changed_at));
    });
    if items.len() > MOST_ITEMS {
        return Err(ProviderFault::BadAnswer(format!("more than {MOST_ITEMS} items")));
    }
    items.sort_by(|left, right| (&left.title, &left.id).cmp(&(&right.title, &right.id)));
    Ok(Arc::new(items))
}

fn secrets(database: &Database, wanted: &str) -> Result<ItemSecrets, ProviderFault> {
    let mut found = Err(ProviderFault::NotFound);
    each_login(database, |entry, _| {
        if id(entry) == wanted {
            found = Ok(ItemSecrets {
                username: text(entry, fields::USERNAME),
                password: text(entry, fields::PASSWORD),
                one_time: one_time(entry).map(OneTime::Secret),
                values: values(entry),
            });
        }
    });
    found
}

fn id(entry: &EntryRef<'_>) -> String {
    entry.id().uuid().to_string()
}

fn text(entry: &EntryRef<'_>, name: &str) -> Option<SecretString> {
    let value = entry.get(name).filter(|value| !value.is_empty() && !value.contains(REFERENCE))?;
    Some(value.to_owned().into())
}

fn one_time(entry: &EntryRef<'_>) -> Option<OneTimeSecret> {
    let secret = text(entry, fields::OTP).or_else(|| text(entry, OTHER_OTP))?;
    OneTimeSecret::parse(&secret)
}

/// What people have added to an entry.
fn values(entry: &EntryRef<'_>) -> BTreeMap<String, SecretString> {
    let own = |name: &&String| {
        !fields::KNOWN_FIELDS.contains(&name.as_str())
            && *name != fields::OTP
            && !["KP2A_", "KPEX_", "TimeOtp-", "HmacOtp-", "TOTP "].iter().any(|prefix| name.starts_with(prefix))
    };
    let mut names: Vec<&String> = entry.fields.keys().filter(own).collect();
    names.sort_unstable();
    let value = |name: &String| Some((name.clone(), text(entry, name)?));
    names.into_iter().filter_map(value).take(MOST_VALUES).collect()
}

#[async_trait]
impl CredentialStore for Keepass {
    async fn vaults(&self, provider: &OpenProvider) -> Result<Vec<ProviderVault>, ProviderFault> {
        self.look(provider, |_, vault| Ok(vec![vault.clone()])).await
    }

    async fn items(&self, provider: &OpenProvider) -> Result<Arc<Vec<ProviderItem>>, ProviderFault> {
        self.look(provider, items).await
    }

    async fn secrets(&self, provider: &OpenProvider, item: &ProviderItem) -> Result<ItemSecrets, ProviderFault> {
        let wanted = item.id.clone();
        self.look(provider, move |database, _| secrets(database, &wanted)).await
    }

    fn forget(&self, _: CredentialProviderId) {}
}
