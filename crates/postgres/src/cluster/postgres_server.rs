//! The main process of PostgreSQL: starts it, finds it again, ends it, and removes what a killed one left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

use super::account::Account;
use super::binaries::Binaries;
use super::error::{ClusterError, IoContext};
use super::guarded;

const POLL: Duration = Duration::from_millis(20);
/// The timeout of a fast shutdown, after which an immediate one follows.
const FAST_LIMIT: Duration = Duration::from_secs(30);
const IMMEDIATE_LIMIT: Duration = Duration::from_secs(10);
/// The time in which the children of a killed server should end by themselves.
const ORPHAN_LIMIT: Duration = Duration::from_secs(5);

/// The contents of `postmaster.pid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PidFile {
    pub(crate) pid: i32,
    pub(crate) socket_dir: Option<PathBuf>,
    status: String,
}

impl PidFile {
    pub(crate) fn read(data_dir: &Path) -> Option<Self> {
        Self::parse(&guarded::read_small(&data_dir.join("postmaster.pid")).ok()?)
    }

    /// Lines: pid, data directory, start time, port, socket directory, listen address, shared memory, status.
    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let pid = lines.first()?.parse().ok().filter(|pid| *pid > 1)?;
        let socket_dir = lines.get(4).filter(|line| !line.is_empty()).map(PathBuf::from);
        Some(Self { pid, socket_dir, status: lines.get(7).copied().unwrap_or_default().to_owned() })
    }

    /// Whether the process is still the server of this data directory, and not another one with the same id: the
    /// working directory of a server is its data directory.
    pub(crate) fn is_alive(&self, data_dir: &Path) -> bool {
        works_in(self.pid, data_dir)
    }

    /// Whether the server accepts connections.
    pub(crate) fn is_ready(&self) -> bool {
        self.status == "ready"
    }
}

fn works_in(pid: i32, data_dir: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|dir| dir == data_dir)
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The process may have ended already, which is the goal.
        let _gone = kill_process(pid, signal);
    }
}

fn wait_while(limit: Duration, mut busy: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while busy() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(POLL);
    }
    true
}

/// Starts the server with its output in its log file, not in a pipe, so that it can outlive this process.
pub(super) fn spawn(
    binaries: &Binaries,
    account: &Account,
    data_dir: &Path,
    log: &Path,
) -> Result<Child, ClusterError> {
    let output = guarded::open_regular(log, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND).on("opening", log)?;
    account.give(&output, log)?;
    let errors = output.try_clone().on("opening", log)?;
    let mut command = account.command(&binaries.program("postgres"));
    command.arg("-D").arg(data_dir).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    command.spawn().on("starting postgres for", data_dir)
}

/// Waits for the end of the server, so that it does not stay a zombie.
pub(super) fn reap(mut child: Child) {
    match child.wait() {
        Ok(status) => tracing::debug!(%status, "the private PostgreSQL has ended"),
        Err(error) => tracing::warn!(%error, "waiting for the end of the private PostgreSQL failed"),
    }
}

/// Waits until the server accepts connections. The error says what happened instead.
pub(super) fn wait_until_ready(pid: i32, data_dir: &Path, limit: Duration) -> Result<PidFile, String> {
    let started = Instant::now();
    let mut reported = 0;
    loop {
        if let Some(found) = PidFile::read(data_dir).filter(|found| found.pid == pid && found.is_ready()) {
            return Ok(found);
        }
        // Only whether the process exists: a new one may not have changed its directory yet.
        if !Path::new(&format!("/proc/{pid}/cwd")).exists() || fs::read_link(format!("/proc/{pid}/cwd")).is_err() {
            return Err("it ended at once".to_owned());
        }
        let waited = started.elapsed();
        if waited > limit {
            return Err(format!("not ready after {} s", limit.as_secs()));
        }
        if waited.as_secs() / 5 > reported {
            reported = waited.as_secs() / 5;
            tracing::info!(waited_seconds = waited.as_secs(), "waiting for the private PostgreSQL to recover its data");
        }
        sleep(POLL);
    }
}

/// Ends the server with a fast shutdown, and if that takes too long with an immediate one, after which the next start
/// recovers.
pub(crate) fn stop(pid: i32, data_dir: &Path) -> Result<(), ClusterError> {
    let ours = |pid| works_in(pid, data_dir);
    if !ours(pid) {
        return Ok(());
    }
    signal(pid, Signal::INT);
    if wait_while(FAST_LIMIT, || ours(pid)) {
        return Ok(());
    }
    tracing::warn!(pid, "the private PostgreSQL does not end; shutting it down immediately");
    signal(pid, Signal::QUIT);
    if wait_while(IMMEDIATE_LIMIT, || ours(pid)) {
        return Ok(());
    }
    Err(ClusterError::DidNotStop { pid, waited: FAST_LIMIT + IMMEDIATE_LIMIT })
}

/// Removes what a killed server left: its children, which would keep the shared memory in use, and a pid file whose id
/// may belong to another process by now.
pub(super) fn clear_leftovers(data_dir: &Path) -> Result<(), ClusterError> {
    let pid_file = data_dir.join("postmaster.pid");
    if !pid_file.exists() {
        return Ok(());
    }
    tracing::warn!("the private PostgreSQL was not shut down; recovering it");
    if !wait_while(ORPHAN_LIMIT, || !processes_in(data_dir).is_empty()) {
        for pid in processes_in(data_dir) {
            signal(pid, Signal::QUIT);
        }
        if !wait_while(IMMEDIATE_LIMIT, || !processes_in(data_dir).is_empty()) {
            let pid = processes_in(data_dir).first().copied().unwrap_or_default();
            return Err(ClusterError::DidNotStop { pid, waited: ORPHAN_LIMIT + IMMEDIATE_LIMIT });
        }
    }
    match fs::remove_file(&pid_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).on("clearing away", &pid_file),
        _ => Ok(()),
    }
}

/// The PostgreSQL processes whose working directory is this one. Other processes there, such as a shell, are left out.
fn processes_in(data_dir: &Path) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| works_in(*pid, data_dir) && is_postgres(*pid)).collect()
}

fn is_postgres(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "postgres")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_is_read_as_postgresql_writes_it() {
        let text = "4711\n/var/lib/casement/postgres\n1795000000\n5432\n/run/casement-0123\n\n  1234567  1\nready   \n";
        let expected = PidFile { pid: 4711, socket_dir: Some("/run/casement-0123".into()), status: "ready".to_owned() };
        assert_eq!(PidFile::parse(text), Some(expected));
        assert_eq!(PidFile::parse(""), None);
        assert_eq!(PidFile::parse("-1\n"), None);
    }
}
