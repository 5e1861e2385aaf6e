//! One PostgreSQL for all nodes.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::network::Host;
use crate::program::{cluster_template, until};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
const PORT: u16 = 5432;
/// The connections of ten nodes.
const CONNECTIONS: u32 = 400;

/// A PostgreSQL on a host. Where the host has a network of its own, nodes reach it only over that.
pub struct Database {
    host: Host,
    /// Whether nodes use the network.
    is_remote: bool,
    folder: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl Database {
    /// Starts a PostgreSQL with the schema of the program in a new folder of the directory.
    pub(super) fn start_on(host: &Host, is_remote: bool, root: &Path) -> anyhow::Result<Self> {
        let place = root.join("database");
        cluster_template::copy_to(&place)?;
        let (folder, socket) = (place.join("postgres"), root.join("socket"));
        let owner = fs::metadata(&folder)?;
        DirBuilder::new().mode(0o700).create(&socket)?;
        if geteuid().is_root() {
            chown(&socket, Some(owner.uid()), Some(owner.gid()))?;
        }
        // Nobody else is in the network of the hosts.
        let network = if is_remote { "host all all samenet trust\n" } else { "" };
        fs::write(folder.join("pg_hba.conf"), format!("local all all trust\n{network}"))?;
        let log = root.join("database.log");
        let mut database = Self { host: host.clone(), is_remote, folder, socket, log, child: None };
        database.start()?;
        Ok(database)
    }

    /// Removes the schema, so that the next program to start creates its own.
    pub(super) fn remove_schema(&self) -> anyhow::Result<()> {
        self.sql("drop schema public cascade; create schema public").map(drop)
    }

    /// Returns the URL for the nodes.
    pub fn url(&self) -> String {
        let host = self.host.ip();
        match self.is_remote {
            true => format!("postgresql://casement@{host}:{PORT}/casement"),
            false => format!("postgresql://casement@/casement?host={}", self.socket.display()),
        }
    }

    /// Starts it again, and waits until it accepts connections.
    pub fn start(&mut self) -> anyhow::Result<()> {
        ensure!(self.child.is_none(), "it runs already");
        let mut command = self.host.command("setpriv");
        let owner = fs::metadata(&self.folder)?;
        if geteuid().is_root() {
            command.args(["--reuid", &owner.uid().to_string(), "--regid", &owner.gid().to_string(), "--clear-groups"]);
        }
        command.arg(program("postgres")?).arg("-D").arg(&self.folder);
        let listen = if self.is_remote { self.host.ip().to_string() } else { String::new() };
        let settings = [
            format!("listen_addresses={listen}"),
            format!("port={PORT}"),
            format!("unix_socket_directories={}", self.socket.display()),
            format!("max_connections={CONNECTIONS}"),
        ];
        command.args(settings.iter().flat_map(|setting| ["-c", setting.as_str()]));
        let log = File::options().create(true).append(true).open(&self.log)?;
        command.current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        self.child = Some(command.spawn().context("cannot start setpriv")?);
        until("the database accepts connections", TEST_TIMEOUT, || {
            let ended = self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended { Some(false) } else { self.sql("select 1").is_ok().then_some(true) }
        })
        .and_then(|is_ready| if is_ready { Ok(()) } else { bail!("it ended at once") })
        .with_context(|| fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Returns true until it was stopped.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Stops it. Connections are closed, and transactions rolled back.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.end_by(Signal::INT)
    }

    /// Sends a signal to the main process, and waits until it has ended.
    fn end_by(&mut self, signal: Signal) -> anyhow::Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        let pid = Pid::from_raw(child.id().cast_signed()).context("no pid")?;
        kill_process(pid, signal)?;
        let ended = until("the database has ended", TEST_TIMEOUT, || child.try_wait().transpose());
        if ended.is_err() {
            child.kill()?;
            child.wait()?;
        }
        ended?.map(drop).context("cannot wait for it")
    }

    /// Runs a statement. Rows are lines, columns are separated by `|`.
    pub fn sql(&self, statement: &str) -> anyhow::Result<String> {
        let output = Command::new(program("psql")?)
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "casement", "-d", "casement", "-c", statement])
            .arg("-h")
            .arg(&self.socket)
            .output()
            .context("cannot start psql")?;
        ensure!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.child.is_some() {
            drop(self.end_by(Signal::QUIT));
        }
    }
}

/// Returns the path of a program of PostgreSQL. Debian's `/usr/bin/psql` is a script that takes longer than a query.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let folders = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut programs = folders.map(|entry| entry.path().join("bin")).collect::<Vec<_>>();
    // The newest first, which created the cluster.
    programs.sort_by(|a, b| b.cmp(a));
    programs.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let found = programs.into_iter().map(|folder| folder.join(name)).find(|program| program.is_file());
    found.with_context(|| format!("PostgreSQL's {name} is not installed"))
}
