//! The private PostgreSQL cluster, which `casement serve` runs if no database is configured.
//!
//! The cluster has one data directory, uses the system's PostgreSQL binaries, listens only on a unix socket in a short
//! private directory, and outlives the Casement server: after a crash, [`Cluster::start`] adopts a PostgreSQL that is
//! still running, or starts it again and recovers its data.

mod account;
mod binaries;
mod error;
mod guarded;
mod initdb;
mod log;
mod postgres_server;
mod socket;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};

pub use account::Account;
pub use binaries::{Binaries, MINIMUM_MAJOR};
pub use error::ClusterError;
pub(crate) use error::IoContext;
pub use initdb::ROLE;
#[cfg(feature = "testing")]
pub(crate) use initdb::write_configuration;
pub(crate) use initdb::{Durability, initdb};
pub(crate) use postgres_server::PidFile;
#[cfg(feature = "testing")]
pub(crate) use postgres_server::stop as stop_postgres_server;

/// The database that the server uses in a private cluster.
pub const DATABASE: &str = "casement";
/// The timeout of a start while the process is alive. Replaying a long log after a crash takes a while.
const START_LIMIT: Duration = Duration::from_secs(600);
/// The timeout for another start on the same data directory.
const LOCK_LIMIT: Duration = Duration::from_secs(120);
/// The number of retries for creating the database.
const DATABASE_TRIES: u32 = 20;

/// The directories of the private cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The data directory, created at the first start. The log and a lock file are beside it, in its parent, which the
    /// unprivileged account must be able to enter.
    pub data_dir: PathBuf,
    /// The directory of the PostgreSQL programs. `None` searches the system for them.
    pub binaries: Option<PathBuf>,
}

impl ClusterConfig {
    /// A cluster in `data_dir` that uses the system's PostgreSQL.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), binaries: None }
    }
}

/// How a running cluster was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This start created the data directory.
    Made,
    /// This start ran PostgreSQL on an existing data directory.
    Started,
    /// PostgreSQL was running already, started by an earlier server process.
    Adopted,
}

/// A running private cluster. Dropping it leaves PostgreSQL running; [`Cluster::stop`] ends it.
#[derive(Debug)]
pub struct Cluster {
    data_dir: PathBuf,
    socket_dir: PathBuf,
    pid: i32,
    origin: Origin,
    log_keeper: Option<tokio::task::JoinHandle<()>>,
}

impl Cluster {
    /// Starts the cluster: creates it if there is none, adopts its PostgreSQL if that runs, otherwise starts it, with
    /// recovery if needed. May be killed at any point and called again.
    ///
    /// # Errors
    /// Any [`ClusterError`]; its message names the remedy.
    pub async fn start(config: ClusterConfig) -> Result<Self, ClusterError> {
        let mut cluster = Self::bring_up(config.clone()).await?;
        match cluster.verify_and_make_database().await {
            // The adopted process may have been ending. After a pause it has ended, or it answers.
            Err(error) if cluster.origin == Origin::Adopted => {
                tracing::warn!(%error, "the adopted PostgreSQL does not answer; trying again");
                tokio::time::sleep(Duration::from_millis(500)).await;
                cluster = Self::bring_up(config).await?;
                cluster.verify_and_make_database().await?;
            }
            verified => verified?,
        }
        cluster.log_keeper = Some(tokio::spawn(log::keep_short(log_path(&cluster.data_dir))));
        Ok(cluster)
    }

    async fn bring_up(config: ClusterConfig) -> Result<Self, ClusterError> {
        let blocking = tokio::task::spawn_blocking(move || bring_up(&config));
        blocking.await.map_err(|e| ClusterError::Unusable(format!("the start panicked: {e}")))?
    }

    /// The cluster of this data directory, if its PostgreSQL runs and is ready. Starts and changes nothing. For
    /// commands beside a running server.
    #[must_use]
    pub fn find_running(data_dir: &Path) -> Option<Self> {
        let data_dir = fs::canonicalize(data_dir).ok()?;
        let account = Account::choose().ok()?;
        let found = PidFile::read(&data_dir)?;
        let usable = found.is_alive(&data_dir) && found.is_ready();
        let socket_dir = found.socket_dir.filter(|dir| usable && socket::check(dir, &account).is_ok())?;
        Some(Self { data_dir, socket_dir, pid: found.pid, origin: Origin::Adopted, log_keeper: None })
    }

    /// The connection string of the server's database. It has no secret.
    #[must_use]
    pub fn url(&self) -> String {
        url_of(&self.socket_dir, DATABASE)
    }

    /// How the cluster was obtained.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The process id of the main PostgreSQL process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The directory of the socket.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// Ends the cluster with PostgreSQL's *fast* shutdown: open transactions are rolled back, everything committed is
    /// on disk.
    ///
    /// # Errors
    /// [`ClusterError::DidNotStop`] if the process still runs after 30 s and an immediate shutdown of another 10 s.
    pub async fn stop(self) -> Result<(), ClusterError> {
        let (pid, data_dir) = (self.pid, self.data_dir.clone());
        tracing::info!(pid, "stopping the private PostgreSQL");
        let socket_dir = self.socket_dir.clone();
        let ending = tokio::task::spawn_blocking(move || {
            postgres_server::stop(pid, &data_dir)?;
            // The directory is empty now, and created again at the next start.
            let _gone = fs::remove_dir(&socket_dir);
            Ok::<(), ClusterError>(())
        });
        ending.await.map_err(|e| ClusterError::Unusable(format!("the stop panicked: {e}")))??;
        tracing::info!(pid, "the private PostgreSQL has stopped");
        Ok(())
    }

    /// Checks that the socket leads to this cluster, and creates the database if it is missing.
    async fn verify_and_make_database(&self) -> Result<(), ClusterError> {
        let unusable = |e: tokio_postgres::Error| ClusterError::Unusable(crate::connect::describe(&e));
        let url = url_of(&self.socket_dir, "postgres");
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.map_err(unusable)?;
        let driving = tokio::spawn(connection);
        let answered: String = client.query_one("SHOW data_directory", &[]).await.map_err(unusable)?.get(0);
        if fs::canonicalize(&answered).ok().as_deref() != Some(&self.data_dir) {
            return Err(ClusterError::Unusable(format!("the socket leads to the cluster in {answered}")));
        }
        let made = async || -> Result<bool, tokio_postgres::Error> {
            let known = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&DATABASE]).await?;
            if known.is_none() {
                client.batch_execute(&format!("CREATE DATABASE {DATABASE}")).await?;
            }
            Ok(known.is_some())
        };
        // A concurrent start may create the database between the check and the creation; then the retry finds it.
        let mut tries = 0;
        while let Err(error) = made().await {
            tries += 1;
            if tries > DATABASE_TRIES {
                return Err(unusable(error));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        drop(client);
        driving.abort();
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(keeper) = &self.log_keeper {
            keeper.abort();
        }
    }
}

/// The connection string of a database that listens in a socket directory.
pub(crate) fn url_of(socket_dir: &Path, database: &str) -> String {
    let host: String = url_encode(&socket_dir.to_string_lossy());
    format!("postgresql:///{database}?host={host}&user={ROLE}")
}

pub(crate) fn url_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The path of the log, beside the data directory, which must be empty for `initdb`.
fn log_path(data_dir: &Path) -> PathBuf {
    data_dir.with_extension("log")
}

fn bring_up(config: &ClusterConfig) -> Result<Cluster, ClusterError> {
    let data_dir = resolve(&config.data_dir)?;
    let account = Account::choose()?;
    let _lock = lock(&data_dir)?;
    if let Some(adopted) = adopt(&data_dir, &account)? {
        return Ok(adopted);
    }
    let version = initdb::version_of(&data_dir)?;
    let binaries = match (&config.binaries, &version) {
        (Some(dir), _) => Binaries::at(dir)?,
        (None, Some(found)) => Binaries::of_major(found, &data_dir)?,
        (None, None) => Binaries::newest()?,
    };
    if let Some(found) = version.as_ref().filter(|found| **found != binaries.major.to_string()) {
        let available = binaries.major.to_string();
        return Err(ClusterError::OtherMajor { data_dir, found: found.clone(), available });
    }
    account.check_capability()?;
    account.check_reach(&binaries, &data_dir)?;
    let origin = if version.is_some() { Origin::Started } else { Origin::Made };
    if version.is_none() {
        tracing::info!(data_dir = %data_dir.display(), version = binaries.major, "making the private PostgreSQL");
        initdb(&binaries, &account, &data_dir, Durability::Durable)?;
    }
    account.check_owner(&data_dir)?;
    let socket_dir = socket::prepare(&data_dir, &account)?;
    initdb::write_configuration(&data_dir, &socket_dir, &account, Durability::Durable)?;
    log::shorten(&log_path(&data_dir)).on("rotating", &log_path(&data_dir))?;
    let pid = start_postgres_server(&binaries, &account, &data_dir, &socket_dir)?;
    Ok(Cluster { data_dir, socket_dir, pid, origin, log_keeper: None })
}

/// The absolute path of the data directory, with resolved links. Creates its parent if needed.
fn resolve(data_dir: &Path) -> Result<PathBuf, ClusterError> {
    let absolute = std::path::absolute(data_dir).on("resolving", data_dir)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(ClusterError::NotACluster(absolute));
    };
    fs::create_dir_all(parent).on("making", parent)?;
    Ok(fs::canonicalize(parent).on("resolving", parent)?.join(name))
}

/// Locks the data directory against a concurrent start until the result is dropped.
fn lock(data_dir: &Path) -> Result<OwnedFd, ClusterError> {
    let path = data_dir.with_extension("lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).on("opening", &path)?;
    let deadline = Instant::now() + LOCK_LIMIT;
    while let Err(refused) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if refused != rustix::io::Errno::WOULDBLOCK {
            return Err(refused).on("locking", &path);
        }
        if Instant::now() > deadline {
            return Err(ClusterError::Locked(path));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(file)
}

/// Adopts a PostgreSQL that an earlier server process left running. One that can't be reached, since its socket was
/// removed, is ended, so that a new one can be started.
fn adopt(data_dir: &Path, account: &Account) -> Result<Option<Cluster>, ClusterError> {
    let Some(found) = PidFile::read(data_dir).filter(|found| found.is_alive(data_dir)) else {
        return Ok(None);
    };
    let found = postgres_server::wait_until_ready(found.pid, data_dir, START_LIMIT);
    let Some(found) = found.ok() else { return Ok(None) };
    let reachable = found.socket_dir.filter(|dir| socket::check(dir, account).is_ok() && socket::answers(dir));
    let Some(socket_dir) = reachable else {
        tracing::warn!(pid = found.pid, "a PostgreSQL runs on the data directory but can't be reached; ending it");
        postgres_server::stop(found.pid, data_dir)?;
        return Ok(None);
    };
    tracing::info!(pid = found.pid, "adopting the private PostgreSQL that is already running");
    let data_dir = data_dir.to_owned();
    Ok(Some(Cluster { data_dir, socket_dir, pid: found.pid, origin: Origin::Adopted, log_keeper: None }))
}

fn start_postgres_server(
    binaries: &Binaries,
    account: &Account,
    data_dir: &Path,
    socket_dir: &Path,
) -> Result<i32, ClusterError> {
    let log = log_path(data_dir);
    postgres_server::clear_leftovers(data_dir)?;
    socket::clear_leftovers(socket_dir)?;
    let child = postgres_server::spawn(binaries, account, data_dir, &log)?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    // Without this thread, the process would stay a zombie after its end.
    let reaper = std::thread::Builder::new().name("postmaster".into()).stack_size(64 * 1024);
    reaper.spawn(move || postgres_server::reap(child)).on("starting a thread for", data_dir)?;
    match postgres_server::wait_until_ready(pid, data_dir, START_LIMIT) {
        Ok(_) => {
            tracing::info!(pid, "the private PostgreSQL is ready");
            Ok(pid)
        }
        Err(why) => Err(ClusterError::DidNotStart { why, tail: log::tail(&log), log }),
    }
}
