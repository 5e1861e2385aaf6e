//! `keepass`: a KeePass database, a file that the operator has named.
//!
//! The file is read anew each time, by a program of its own ([`inside`]) that ends when it has answered: what was decrypted is gone
//! with it, and whatever is in the file can break nothing else.

mod database;
mod inside;
mod talk;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::CredentialProviderId;
use casement_domain::credential_provider::{
    CredentialStore, ItemSecrets, OneTime, OneTimeSecret, OpenProvider, ProviderFault, ProviderItem, ProviderVault,
    StorePlace,
};
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

pub use inside::read_keepass;

use talk::{Answered, Asked, Hidden, Login, Secrets, What};

/// How long one answer may take, waiting for others included.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(60);
/// Bytes of an answer.
const MAX_ANSWER: u64 = 64 << 20;

/// The program that reads a database: the file's path is put behind its words. What it does is [`read_keepass`].
#[derive(Clone, Debug)]
pub struct Reader {
    /// Where it is.
    pub program: PathBuf,
    /// Its first words.
    pub words: Vec<OsString>,
}

/// Reads KeePass databases.
pub struct Keepass {
    files: BTreeMap<String, PathBuf>,
    reader: Reader,
    /// One at a time: each takes the memory that its file asks for, and a processor's whole attention for a second.
    room: Semaphore,
}

impl Keepass {
    /// These, by their names.
    pub fn new(files: BTreeMap<String, PathBuf>, reader: Reader) -> Self {
        Self { files, reader, room: Semaphore::new(1) }
    }

    async fn ask(&self, provider: &OpenProvider, what: What) -> Result<(ProviderVault, Answered), ProviderFault> {
        let not_here = || ProviderFault::NotConfigured("the server is not configured with this vault".to_owned());
        let StorePlace::Keepass(name) = &provider.place else { return Err(not_here()) };
        let file = self.files.get(name).ok_or_else(not_here)?;
        let asked = Asked { password: Hidden(provider.token.clone()), what };
        let asking = async {
            let _held = self.room.acquire().await;
            self.answer(file, &asked).await
        };
        // Whoever stops waiting ends the program with that.
        let answer = tokio::time::timeout(ANSWER, asking).await.map_err(|_| ProviderFault::Silent)?;
        let vault = ProviderVault { id: name.clone(), name: name.clone() };
        Ok((vault, well(answer.map_err(|_| broke_off())?)?))
    }

    async fn answer(&self, file: &Path, asked: &Asked) -> std::io::Result<Answered> {
        let mut command = Command::new(&self.reader.program);
        command.args(&self.reader.words).arg(file).env_clear().current_dir("/").kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let answer = exchange(&mut child, asked).await;
        if answer.is_err() {
            child.start_kill()?;
        }
        child.wait().await?;
        let answer = answer?;
        // A list may be long, and reading it would keep a thread of the server from everything else.
        Ok(tokio::task::spawn_blocking(move || serde_json::from_slice(&answer)).await??)
    }
}

/// Says what is asked, and hears the answer to its end.
async fn exchange(child: &mut Child, asked: &Asked) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    };
    let question = Zeroizing::new(serde_json::to_vec(asked)?);
    input.write_all(&question).await?;
    drop(input);
    let mut answer = Zeroizing::new(Vec::new());
    if output.take(MAX_ANSWER + 1).read_to_end(&mut answer).await? as u64 > MAX_ANSWER {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(answer)
}

fn well(answer: Answered) -> Result<Answered, ProviderFault> {
    match answer {
        Answered::NoFile(why) => Err(ProviderFault::Unreachable(format!("its file: {why}"))),
        Answered::Refused => Err(ProviderFault::Refused),
        Answered::NotFound => Err(ProviderFault::NotFound),
        Answered::InvalidValue(why) => Err(ProviderFault::BadAnswer(why)),
        Answered::Opens | Answered::Logins(_) | Answered::Secrets(_) => Ok(answer),
    }
}

/// It ended without an answer, by its limits most likely.
fn broke_off() -> ProviderFault {
    ProviderFault::BadAnswer("a file that takes more time or memory than it may, or cannot be read".to_owned())
}

fn item(login: Login, vault: &ProviderVault) -> ProviderItem {
    let seconds = login.changed_at.map(Duration::seconds);
    let changed_at = seconds.and_then(|seconds| OffsetDateTime::UNIX_EPOCH.checked_add(seconds));
    ProviderItem::new(login.id, login.title, vault.clone(), login.urls, changed_at)
}

fn secrets(found: Secrets) -> ItemSecrets {
    let clear = |hidden: Hidden| hidden.0;
    let one_time = found.one_time.and_then(|secret| OneTimeSecret::parse(&secret.0));
    ItemSecrets {
        username: found.username.map(clear),
        password: found.password.map(clear),
        one_time: one_time.map(OneTime::Secret),
        values: found.values.into_iter().map(|(name, value)| (name, clear(value))).collect(),
    }
}

#[async_trait]
impl CredentialStore for Keepass {
    async fn vaults(&self, provider: &OpenProvider) -> Result<Vec<ProviderVault>, ProviderFault> {
        let (vault, _) = self.ask(provider, What::Opens).await?;
        Ok(vec![vault])
    }

    async fn items(&self, provider: &OpenProvider) -> Result<Arc<Vec<ProviderItem>>, ProviderFault> {
        match self.ask(provider, What::Logins).await? {
            (vault, Answered::Logins(logins)) => {
                Ok(Arc::new(logins.into_iter().map(|login| item(login, &vault)).collect()))
            }
            _ => Err(broke_off()),
        }
    }

    async fn secrets(&self, provider: &OpenProvider, item: &ProviderItem) -> Result<ItemSecrets, ProviderFault> {
        match self.ask(provider, What::Secrets(item.id.clone())).await? {
            (_, Answered::Secrets(found)) => Ok(secrets(found)),
            _ => Err(broke_off()),
        }
    }

    fn forget(&self, _: CredentialProviderId) {}
}
