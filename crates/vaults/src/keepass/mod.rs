//! The provider kind `keepass`: a KeePass database in a file that the operator has named.
//!
//! A separate program ([`inside`]) reads the file for each request and ends after its response, so that no decrypted
//! data stays in memory and a malicious file cannot affect the server.

mod database;
mod inside;
mod messages;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::CredentialProviderId;
use casement_domain::credential::TotpSecret;
use casement_domain::credential_provider::{
    CredentialStore, ItemSecrets, OneTime, OpenProvider, ProviderFault, ProviderItem, ProviderVault, StorePlace,
};
use secrecy::ExposeSecret as _;
use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

pub use inside::read_keepass;

use messages::{Hidden, Login, Query, ReaderRequest, ReaderResponse, Secrets};

/// The timeout of one response, including the wait for other requests.
const RESPONSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
/// The maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// The program that reads a database, which calls [`read_keepass`]. The path of the database follows the arguments.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The path of the program.
    pub program: PathBuf,
    /// The first arguments of the program.
    pub words: Vec<OsString>,
}

/// A reader of KeePass databases.
pub struct Keepass {
    files: BTreeMap<String, PathBuf>,
    reader: Reader,
    /// Allows one request at a time, because each uses the memory that its file demands, and a core for a second.
    request_slot: Semaphore,
}

impl Keepass {
    /// Creates a reader of these files; the keys are the names of the vaults.
    pub fn new(files: BTreeMap<String, PathBuf>, reader: Reader) -> Self {
        Self { files, reader, request_slot: Semaphore::new(1) }
    }

    async fn request(
        &self,
        provider: &OpenProvider,
        query: Query,
    ) -> Result<(ProviderVault, ReaderResponse), ProviderFault> {
        let not_here = || ProviderFault::NotConfigured("the server is not configured with this vault".to_owned());
        let StorePlace::Keepass(name) = &provider.place else { return Err(not_here()) };
        let file = self.files.get(name).ok_or_else(not_here)?;
        let request = ReaderRequest { password: Hidden(provider.token.clone()), query };
        let exchange_future = async {
            let _slot = self.request_slot.acquire().await;
            self.answer(file, &request).await
        };
        // At the timeout, the drop of the future kills the program.
        let answer =
            tokio::time::timeout(RESPONSE_TIMEOUT, exchange_future).await.map_err(|_| ProviderFault::Silent)?;
        let vault = ProviderVault { id: name.clone(), name: name.clone() };
        Ok((vault, check_response(answer.map_err(|_| broke_off())?)?))
    }

    async fn answer(&self, file: &Path, request: &ReaderRequest) -> std::io::Result<ReaderResponse> {
        let mut command = Command::new(&self.reader.program);
        command.args(&self.reader.words).arg(file).env_clear().current_dir("/").kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let answer = exchange(&mut child, request).await;
        if answer.is_err() {
            child.start_kill()?;
        }
        child.wait().await?;
        let answer = answer?;
        // Parses in a blocking task, because a long list would block a thread of the runtime.
        Ok(tokio::task::spawn_blocking(move || serde_json::from_slice(&answer)).await??)
    }
}

/// Writes the request and reads the response to its end.
async fn exchange(child: &mut Child, request: &ReaderRequest) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    };
    let question = Zeroizing::new(serde_json::to_vec(request)?);
    input.write_all(&question).await?;
    drop(input);
    let mut answer = Zeroizing::new(Vec::new());
    if output.take(MAX_RESPONSE_BYTES + 1).read_to_end(&mut answer).await? as u64 > MAX_RESPONSE_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(answer)
}

fn check_response(answer: ReaderResponse) -> Result<ReaderResponse, ProviderFault> {
    match answer {
        ReaderResponse::NoFile(why) => Err(ProviderFault::Unreachable(format!("its file: {why}"))),
        ReaderResponse::Refused => Err(ProviderFault::Refused),
        ReaderResponse::NotFound => Err(ProviderFault::NotFound),
        ReaderResponse::InvalidValue(why) => Err(ProviderFault::BadAnswer(why)),
        ReaderResponse::Opens | ReaderResponse::Logins(_) | ReaderResponse::Secrets(_) => Ok(answer),
    }
}

/// Returns the fault of a program that ended without a valid response, most likely because of its limits.
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
    let one_time = found.one_time.and_then(|secret| TotpSecret::parse(secret.0.expose_secret()).ok());
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
        let (vault, _) = self.request(provider, Query::Opens).await?;
        Ok(vec![vault])
    }

    async fn items(&self, provider: &OpenProvider) -> Result<Arc<Vec<ProviderItem>>, ProviderFault> {
        match self.request(provider, Query::Logins).await? {
            (vault, ReaderResponse::Logins(logins)) => {
                Ok(Arc::new(logins.into_iter().map(|login| item(login, &vault)).collect()))
            }
            _ => Err(broke_off()),
        }
    }

    async fn secrets(&self, provider: &OpenProvider, item: &ProviderItem) -> Result<ItemSecrets, ProviderFault> {
        match self.request(provider, Query::Secrets(item.id.clone())).await? {
            (_, ReaderResponse::Secrets(found)) => Ok(secrets(found)),
            _ => Err(broke_off()),
        }
    }

    fn forget(&self, _: CredentialProviderId) {}
}
