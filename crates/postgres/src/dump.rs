//! Dumps of the whole database, of one snapshot, with `pg_dump` and `pg_restore`.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use casement_domain::deployment::Deployment;
use casement_domain::extension::Extension;
use casement_domain::profile::ProfileVersion;
use casement_domain::replay::ReplayArchive;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_postgres::config::{ChannelBinding, Host};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::cluster::{Binaries, ClusterError, url_encode};
use crate::column::ColumnValue;
use crate::connect::{Address, ConnectError, Opened, describe};
use crate::database_config::DatabaseConfig;

/// The number of characters of a program's messages that an error shows.
const MAX_MESSAGE_CHARS: usize = 2000;

/// Why a database cannot be dumped or restored.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The programs are missing.
    #[error(transparent)]
    Programs(#[from] ClusterError),
    /// The database can't be reached.
    #[error("the database can't be reached: {0}")]
    Unreachable(ConnectError),
    /// A statement failed.
    #[error("the database does not answer: {}", describe(.0))]
    Database(#[from] tokio_postgres::Error),
    /// The database has no schema of Casement.
    #[error("the database has no tables of Casement: nothing was ever stored in it")]
    NoSchema,
    /// A row names a blob by something that is no identifier.
    #[error("a row of {0} has a damaged identifier")]
    BadRow(&'static str),
    /// A program failed.
    #[error("{program} failed ({status}): {message}")]
    Failed {
        /// The name of the program.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// Its messages, without values of rows.
        message: String,
    },
    /// A program cannot be run, or its output not be written.
    #[error("{program}: {source}")]
    Io {
        /// The name of the program.
        program: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl From<ConnectError> for DumpError {
    fn from(error: ConnectError) -> Self {
        Self::Unreachable(error)
    }
}

/// The state of a database at one moment. While it exists, [`DumpPrograms::dump`] can read this state.
pub struct Snapshot {
    client: Client,
    driver: JoinHandle<()>,
    id: String,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Snapshot {
    /// Opens a connection, and a transaction that sees the present state.
    ///
    /// # Errors
    /// [`DumpError::Database`].
    pub async fn take(config: &DatabaseConfig) -> Result<Self, DumpError> {
        let (client, driver) = connect(config).await?;
        // A large database takes longer than transactions may usually be idle.
        client.batch_execute("SET idle_in_transaction_session_timeout = 0").await?;
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let id = client.query_one("SELECT pg_export_snapshot()", &[]).await?.get(0);
        Ok(Self { client, driver, id })
    }

    /// Returns the version of the last migration.
    ///
    /// # Errors
    /// [`DumpError::NoSchema`], [`DumpError::Database`].
    pub async fn schema(&self) -> Result<String, DumpError> {
        let known = "SELECT to_regclass('__diesel_schema_migrations') IS NOT NULL";
        if !self.client.query_one(known, &[]).await?.get::<_, bool>(0) {
            return Err(DumpError::NoSchema);
        }
        let last = "SELECT max(version) FROM __diesel_schema_migrations";
        self.client.query_one(last, &[]).await?.get::<_, Option<String>>(0).ok_or(DumpError::NoSchema)
    }

    /// Returns the keys of all blobs that rows refer to.
    ///
    /// # Errors
    /// [`DumpError::BadRow`], [`DumpError::Database`].
    pub async fn blobs(&self) -> Result<Vec<String>, DumpError> {
        let mut keys = Vec::new();
        for row in self.client.query("SELECT id::text FROM extensions", &[]).await? {
            keys.push(Extension::blob(id(&row, 0, "extensions")?));
        }
        for row in self.client.query("SELECT profile_id::text, id::text FROM profile_versions", &[]).await? {
            keys.push(ProfileVersion::blob(id(&row, 0, "profile_versions")?, id(&row, 1, "profile_versions")?));
        }
        let videos = "SELECT session_id::text, id::text FROM replays WHERE state <> 'running' AND size_bytes > 0";
        for row in self.client.query(videos, &[]).await? {
            keys.push(ReplayArchive::blob(id(&row, 0, "replays")?, id(&row, 1, "replays")?));
        }
        let unbuilt =
            "SELECT id::text FROM deployments WHERE source_url IS NULL AND status IN ('queued', 'in_progress')";
        for row in self.client.query(unbuilt, &[]).await? {
            keys.push(Deployment::blob(id(&row, 0, "deployments")?));
        }
        let built = "SELECT DISTINCT artifact FROM deployments WHERE status = 'running' AND artifact IS NOT NULL";
        for row in self.client.query(built, &[]).await? {
            keys.push(Deployment::artifact_blob(row.get(0)));
        }
        Ok(keys)
    }
}

/// Converts the text of a `uuid` column to an identifier.
fn id<T: ColumnValue<Raw = Uuid>>(row: &Row, column: usize, table: &'static str) -> Result<T, DumpError> {
    let text: &str = row.get(column);
    let uuid = Uuid::parse_str(text).map_err(|_| DumpError::BadRow(table))?;
    T::from_raw(uuid).map_err(|_| DumpError::BadRow(table))
}

async fn connect(config: &DatabaseConfig) -> Result<(Client, JoinHandle<()>), DumpError> {
    let Opened { client, wire, .. } = config.unhurried().connect().await?;
    // Every failure is also the result of a statement.
    let driver = tokio::spawn(async move { drop(wire.await) });
    Ok((client, driver))
}

/// Returns true if the database has no tables, views or sequences of users.
///
/// # Errors
/// [`DumpError::Database`].
pub async fn database_is_empty(config: &DatabaseConfig) -> Result<bool, DumpError> {
    let (client, driver) = connect(config).await?;
    let found = "SELECT NOT EXISTS (
        SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
          AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%')";
    let empty = client.query_one(found, &[]).await?.get(0);
    driver.abort();
    Ok(empty)
}

/// The programs that dump and restore a database. They run as the current user and read the address and the password
/// from their environment, which other users cannot see.
#[derive(Clone, Debug)]
pub struct DumpPrograms(Binaries);

impl DumpPrograms {
    /// The programs of the version that created a private cluster.
    ///
    /// # Errors
    /// [`ClusterError`] if they are not installed.
    pub fn of_cluster(data_dir: &Path) -> Result<Self, ClusterError> {
        Binaries::of_cluster(data_dir).map(Self)
    }

    /// The newest installed programs, for a database elsewhere.
    ///
    /// # Errors
    /// [`ClusterError::NoBinaries`].
    pub fn newest() -> Result<Self, ClusterError> {
        Binaries::newest().map(Self)
    }

    /// Writes a dump of the snapshot, which is compressed and in PostgreSQL's custom format.
    ///
    /// # Errors
    /// [`DumpError::Failed`], [`DumpError::Io`].
    pub async fn dump(
        &self,
        config: &DatabaseConfig,
        snapshot: &Snapshot,
        output: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), DumpError> {
        const PROGRAM: &str = "pg_dump";
        let mut command = self.command(PROGRAM, &config.unhurried());
        command.args(["--format=custom", "--no-owner", "--no-privileges"]).arg(format!("--snapshot={}", snapshot.id));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(of(PROGRAM))?;
        let dumped = child.stdout.take().ok_or_else(|| of(PROGRAM)(io::ErrorKind::BrokenPipe.into()))?;
        let mut dumped = tokio::io::BufReader::with_capacity(256 << 10, dumped);
        let message = messages(&mut child);
        let (copied, message) = tokio::join!(tokio::io::copy_buf(&mut dumped, output), message);
        copied.map_err(of(PROGRAM))?;
        ended(PROGRAM, &mut child, message).await
    }

    /// Restores a dump into an empty database, completely or not at all.
    ///
    /// # Errors
    /// [`DumpError::Failed`], [`DumpError::Io`].
    pub async fn restore(&self, config: &DatabaseConfig, dump: File) -> Result<(), DumpError> {
        const PROGRAM: &str = "pg_restore";
        let mut command = self.command(PROGRAM, &config.unhurried());
        command.args(["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]);
        let mut child = command.stdin(dump).stdout(Stdio::null()).spawn().map_err(of(PROGRAM))?;
        let message = messages(&mut child).await;
        ended(PROGRAM, &mut child, message).await
    }

    fn command(&self, program: &str, address: &Address) -> Command {
        let mut command = Command::new(self.0.program(program));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").envs(environment(address));
        command.arg("--no-password");
        let name = address.config.get_dbname().or(address.config.get_user()).unwrap_or_default();
        command.arg(format!("--dbname=postgresql:///{}", url_encode(name)));
        command.current_dir("/").stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

/// Returns libpq's variables for the address, its protection, the settings, the user and the password.
fn environment(Address { config, tls, access }: &Address) -> Vec<(&'static str, std::ffi::OsString)> {
    let mut hosts = Vec::new();
    for host in config.get_hosts() {
        hosts.push(match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.to_string_lossy().into_owned(),
        });
    }
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    let mut variables = tls.environment();
    variables.push(("PGHOST", hosts.join(",").into()));
    if !config.get_hostaddrs().is_empty() {
        let addresses: Vec<String> = config.get_hostaddrs().iter().map(IpAddr::to_string).collect();
        variables.push(("PGHOSTADDR", addresses.join(",").into()));
    }
    let binding = match config.get_channel_binding() {
        ChannelBinding::Disable => "disable",
        ChannelBinding::Require => "require",
        _ => "prefer",
    };
    variables.push(("PGCHANNELBINDING", binding.into()));
    variables.push(("PGTARGETSESSIONATTRS", access.name().into()));
    if let Some(options) = config.get_options() {
        variables.push(("PGOPTIONS", options.into()));
    }
    if !ports.is_empty() {
        variables.push(("PGPORT", ports.join(",").into()));
    }
    if let Some(user) = config.get_user() {
        variables.push(("PGUSER", user.into()));
    }
    if let Some(password) = config.get_password() {
        variables.push(("PGPASSWORD", std::os::unix::ffi::OsStringExt::from_vec(password.to_vec())));
    }
    variables
}

fn of(program: &'static str) -> impl FnOnce(io::Error) -> DumpError {
    move |source| DumpError::Io { program, source }
}

/// Reads the messages of a program to their end.
async fn messages(child: &mut Child) -> String {
    let Some(stderr) = child.stderr.take() else { return String::new() };
    without_values(&beginning(stderr).await)
}

/// Returns the beginning of a stream, and reads the rest too, so that its writer does not block.
async fn beginning(mut stream: impl AsyncRead + Unpin) -> String {
    let mut beginning = Vec::new();
    let _ = (&mut stream).take(16 << 10).read_to_end(&mut beginning).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&beginning).into_owned()
}

/// Removes the lines of a program's messages that quote statements or rows.
fn without_values(text: &str) -> String {
    let is_harmless =
        |line: &&str| !["DETAIL:", "CONTEXT:", "Command was:", "STATEMENT:"].iter().any(|head| line.contains(head));
    text.lines().filter(is_harmless).collect::<Vec<_>>().join("; ").chars().take(MAX_MESSAGE_CHARS).collect()
}

async fn ended(program: &'static str, child: &mut Child, message: String) -> Result<(), DumpError> {
    let status = child.wait().await.map_err(of(program))?;
    if status.success() { Ok(()) } else { Err(DumpError::Failed { program, status, message }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_in_the_environment_and_not_in_the_arguments() {
        let config = DatabaseConfig::parse("postgresql://me:hunter2@db.internal:5433/a%20b").expect("a URL");
        let programs = DumpPrograms(Binaries { dir: "/bin".into(), major: 15 });
        let command = programs.command("pg_dump", config.address());
        let arguments: Vec<_> = command.as_std().get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(arguments, ["--no-password", "--dbname=postgresql:///a%20b"]);
        let of = |name: &str| {
            let mut all = command.as_std().get_envs();
            all.find(|(found, _)| *found == name).and_then(|(_, value)| value?.to_str())
        };
        let given = ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD"].map(of);
        assert_eq!(given, [Some("db.internal"), Some("5433"), Some("me"), Some("hunter2")]);
    }

    /// The library of version 15 takes `system` for the name of a file.
    #[test]
    fn programs_check_certificates_as_the_server_does() {
        let url = "postgresql://db.internal/x?sslmode=verify-full&channel_binding=require&hostaddr=10.0.0.1";
        let config = DatabaseConfig::parse(url).expect("a URL");
        let variables: std::collections::HashMap<_, _> = environment(config.address()).into_iter().collect();
        assert_eq!(variables["PGSSLMODE"], "verify-full");
        assert_eq!(variables["PGCHANNELBINDING"], "require");
        assert_eq!(variables["PGHOSTADDR"], "10.0.0.1");
        assert!(Path::new(&variables["PGSSLROOTCERT"]).is_file(), "{variables:?}");
    }

    #[test]
    fn programs_have_the_settings_of_the_url_and_demand_the_same_server() {
        let url = "postgresql://a.internal,b.internal/x?options=-c%20search_path%3Dcasement";
        let config = DatabaseConfig::parse(url).expect("a URL");
        let variables: std::collections::HashMap<_, _> = environment(&config.unhurried()).into_iter().collect();
        assert_eq!(variables["PGHOST"], "a.internal,b.internal");
        assert_eq!(variables["PGTARGETSESSIONATTRS"], "read-write");
        assert!(variables["PGOPTIONS"].to_string_lossy().contains("-c search_path=casement "), "{variables:?}");
    }

    #[test]
    fn messages_of_programs_lose_the_lines_that_quote_rows() {
        let text = "pg_restore: error: COPY failed\nDETAIL:  Key (name)=(secret) exists.\nCONTEXT:  COPY a, line 1";
        assert_eq!(without_values(text), "pg_restore: error: COPY failed");
        assert_eq!(without_values(&"ä".repeat(2 * MAX_MESSAGE_CHARS)), "ä".repeat(MAX_MESSAGE_CHARS));
    }
}
