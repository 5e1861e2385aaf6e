//! Databases for tests: a throwaway cluster per test process, a fresh database per test.
//!
//! The cluster is created at the first use, from the system's PostgreSQL, and ends with the process however that ends:
//! a small shell has the reading end of a pipe that only this process writes to. The next run removes what a killed run
//! left behind. `CASEMENT_TEST_KEEP=1` retains the cluster and logs its directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use tokio_postgres::NoTls;

use crate::cluster::{Account, Binaries, ClusterError, Durability, IoContext, PidFile, initdb, url_of};
use crate::database::Database;
use crate::database_config::DatabaseConfig;
use crate::migrate::migrate;

const PREFIX: &str = "casement-test-";
const TEMPLATE: &str = "casement_template";
const START_LIMIT: Duration = Duration::from_secs(60);
const CUT_LIMIT: Duration = Duration::from_secs(60);
/// The age from which on a directory without a maker file is abandoned. A younger one may belong to a process that is
/// just starting.
const HALF_MADE_LIMIT: Duration = Duration::from_secs(600);

/// Why a test has no database. The message names what is missing.
#[derive(Debug, thiserror::Error)]
pub enum TestDatabaseError {
    /// The throwaway cluster could not be made.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The test cluster does not answer.
    #[error("the test cluster does not answer: {0}")]
    Connection(#[from] tokio_postgres::Error),
    /// The schema could not be created.
    #[error(transparent)]
    Migrate(#[from] crate::migrate::MigrateError),
    /// The test cluster did not start.
    #[error("the test cluster did not start: {0}")]
    DidNotStart(String),
}

/// A database with the current schema and nothing in it, for one test.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    socket_dir: PathBuf,
    config: DatabaseConfig,
    database: Database,
}

impl TestDatabase {
    /// Creates a database with every migration applied.
    ///
    /// # Errors
    /// [`TestDatabaseError`].
    pub async fn fresh() -> Result<Self, TestDatabaseError> {
        Self::copy_of(TEMPLATE).await
    }

    /// Creates a database without any schema.
    ///
    /// # Errors
    /// [`TestDatabaseError`].
    pub async fn empty() -> Result<Self, TestDatabaseError> {
        Self::copy_of("template1").await
    }

    async fn copy_of(template: &str) -> Result<Self, TestDatabaseError> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let cluster = TestCluster::get().await?;
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        execute(&cluster.socket_dir, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
        let socket_dir = cluster.socket_dir.clone();
        let config = config_of(&url_of(&socket_dir, &name))?;
        let database = Database::new(&config);
        Ok(Self { name, socket_dir, config, database })
    }

    /// The connection string of the database.
    #[must_use]
    pub fn url(&self) -> String {
        url_of(&self.socket_dir, &self.name)
    }

    /// The configuration of a connection to the database.
    #[must_use]
    pub fn config(&self) -> &DatabaseConfig {
        &self.config
    }

    /// A pool of connections to the database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Runs statements on a new connection.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn execute(&self, statements: &str) -> Result<(), tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        let driving = tokio::spawn(connection);
        client.batch_execute(statements).await?;
        driving.abort();
        Ok(())
    }

    /// The rows of a query, every column as text (`NULL` as an empty one), read on a new connection.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn rows(&self, query: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        let driving = tokio::spawn(connection);
        let messages = client.simple_query(query).await?;
        driving.abort();
        let rows = messages.into_iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |row: tokio_postgres::SimpleQueryRow| {
            (0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect()
        };
        Ok(rows.map(text).collect())
    }

    /// Ends every connection to this database and refuses new ones, as if the server were unreachable.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn interrupt(&self) -> Result<(), tokio_postgres::Error> {
        execute(&self.socket_dir, &format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", self.name)).await?;
        self.cut().await
    }

    /// Ends every connection to this database, but accepts new ones.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn cut(&self) -> Result<(), tokio_postgres::Error> {
        // With a timeout, the function waits for each process: one that has not ended yet still answers.
        let cut = format!(
            "SELECT pg_terminate_backend(pid, {}) FROM pg_stat_activity WHERE datname = '{}'",
            CUT_LIMIT.as_millis(),
            self.name
        );
        execute(&self.socket_dir, &cut).await
    }

    /// Accepts connections again after [`interrupt`](Self::interrupt).
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn restore(&self) -> Result<(), tokio_postgres::Error> {
        execute(&self.socket_dir, &format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", self.name)).await
    }
}

fn config_of(url: &str) -> Result<DatabaseConfig, TestDatabaseError> {
    DatabaseConfig::parse(url).map_err(|error| TestDatabaseError::DidNotStart(error.to_string()))
}

/// Runs statements in the cluster's maintenance database.
async fn execute(socket_dir: &Path, statements: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&url_of(socket_dir, "postgres"), NoTls).await?;
    let driving = tokio::spawn(connection);
    client.batch_execute(statements).await?;
    driving.abort();
    Ok(())
}

/// The cluster of this process.
#[derive(Debug)]
struct TestCluster {
    socket_dir: PathBuf,
    /// The cluster runs while this pipe is open.
    _alive: ChildStdin,
}

impl TestCluster {
    async fn get() -> Result<&'static Self, TestDatabaseError> {
        static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();
        CLUSTER.get_or_try_init(Self::start).await
    }

    async fn start() -> Result<Self, TestDatabaseError> {
        let blocking = tokio::task::spawn_blocking(Self::bring_up);
        let cluster = blocking.await.map_err(|error| TestDatabaseError::DidNotStart(error.to_string()))??;
        execute(&cluster.socket_dir, &format!("CREATE DATABASE {TEMPLATE}")).await?;
        migrate(&config_of(&url_of(&cluster.socket_dir, TEMPLATE))?).await?;
        Ok(cluster)
    }

    fn bring_up() -> Result<Self, TestDatabaseError> {
        let account = Account::choose()?;
        sweep();
        let dir = private_directory(&account)?;
        let binaries = Binaries::newest()?;
        let data_dir = dir.join("data");
        initdb(&binaries, &account, &data_dir, Durability::Throwaway)?;
        crate::cluster::write_configuration(&data_dir, &dir, &account, Durability::Throwaway)?;
        let alive = spawn_with_reaper(&binaries, &account, &dir, &data_dir)?;
        let deadline = Instant::now() + START_LIMIT;
        while !PidFile::read(&data_dir).is_some_and(|found| found.is_ready()) {
            if Instant::now() > deadline {
                let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
                return Err(TestDatabaseError::DidNotStart(log));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { socket_dir: dir, _alive: alive })
    }
}

/// Creates a directory that only the account may enter, with a file that identifies this process.
fn private_directory(account: &Account) -> Result<PathBuf, ClusterError> {
    let temp =
        tempfile::Builder::new().prefix(PREFIX).tempdir_in("/tmp").on("making a directory in", Path::new("/tmp"))?;
    let dir = temp.keep();
    fs::write(dir.join("maker"), mark_of(std::process::id()).unwrap_or_default()).on("marking", &dir)?;
    account.give(fs::File::open(&dir).on("opening", &dir)?, &dir)?;
    Ok(dir)
}

/// Identifies a process by its id and start time, so that a reused id does not match.
fn mark_of(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; the start time is the 20th field behind it.
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    Some(format!("{pid} {started}"))
}

/// Starts PostgreSQL under a shell that ends it and removes the directory when our end of the pipe closes.
fn spawn_with_reaper(
    binaries: &Binaries,
    account: &Account,
    dir: &Path,
    data_dir: &Path,
) -> Result<ChildStdin, ClusterError> {
    const SCRIPT: &str = r#"
        "$1" -D "$2" >"$3/log" 2>&1 </dev/null &
        postmaster=$!
        cat >/dev/null
        kill -QUIT "$postmaster"
        wait "$postmaster"
        [ -n "$4" ] || rm -rf -- "$3"
    "#;
    let keep = std::env::var_os("CASEMENT_TEST_KEEP").unwrap_or_default();
    let mut reaper = account.command(Path::new("/bin/sh"));
    reaper.arg("-c").arg(SCRIPT).arg("reaper").arg(binaries.program("postgres")).arg(data_dir).arg(dir).arg(&keep);
    reaper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if !keep.is_empty() {
        tracing::warn!(dir = %dir.display(), "the test cluster will be kept");
    }
    let mut child = reaper.spawn().on("starting a test cluster in", dir)?;
    child.stdin.take().ok_or_else(|| io::Error::other("no pipe")).on("starting a test cluster in", dir)
}

/// Ends and removes the clusters of test processes that were killed together with their reaper. Ignores errors, since
/// another run may do the same.
fn sweep() {
    let entries = fs::read_dir("/tmp").into_iter().flatten().flatten();
    for dir in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)).map(|e| e.path()) {
        if !is_abandoned(&dir) {
            continue;
        }
        let data_dir = dir.join("data");
        if let Some(found) = PidFile::read(&data_dir).filter(|found| found.is_alive(&data_dir)) {
            let _swept = crate::cluster::stop_postgres_server(found.pid, &data_dir);
        }
        let _swept = fs::remove_dir_all(&dir);
    }
}

fn is_abandoned(dir: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(dir) else { return false };
    if !meta.is_dir() {
        return false;
    }
    match fs::read_to_string(dir.join("maker")) {
        Ok(mark) => {
            let pid = mark.split(' ').next().and_then(|pid| pid.parse().ok());
            pid.and_then(mark_of).as_ref() != Some(&mark)
        }
        Err(_unmarked) => {
            let age = meta.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            age > HALF_MADE_LIMIT
        }
    }
}
