//! The postmaster as a process: starting it, finding it again, ending it, clearing away what a killed one left.

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
/// How long a fast shutdown may take before an immediate one.
const FAST_LIMIT: Duration = Duration::from_secs(30);
const IMMEDIATE_LIMIT: Duration = Duration::from_secs(10);
/// How long the children of a killed postmaster may take to notice.
const ORPHAN_LIMIT: Duration = Duration::from_secs(5);

/// What `postmaster.pid` says.
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

    /// Whether that process still is the postmaster of this data directory, and not another with the same number: a
    /// postmaster's working directory is its data directory.
    pub(crate) fn is_alive(&self, data_dir: &Path) -> bool {
        works_in(self.pid, data_dir)
    }

    /// Whether it takes connections.
    pub(crate) fn is_ready(&self) -> bool {
        self.status == "ready"
    }
}

fn works_in(pid: i32, data_dir: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|dir| dir == data_dir)
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may be gone already, which is what is wanted.
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

/// Starts the postmaster with its output in its log file: no pipe ties it to us.
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

/// Waits for the postmaster's end, so that it leaves no zombie.
pub(super) fn reap(mut child: Child) {
    match child.wait() {
        Ok(status) => tracing::debug!(%status, "the private PostgreSQL has ended"),
        Err(error) => tracing::warn!(%error, "the end of the private PostgreSQL could not be seen"),
    }
}

/// Waits until the postmaster takes connections; the error says what was seen instead.
pub(super) fn wait_until_ready(pid: i32, data_dir: &Path, limit: Duration) -> Result<PidFile, String> {
    let started = Instant::now();
    let mut reported = 0;
    loop {
        if let Some(found) = PidFile::read(data_dir).filter(|found| found.pid == pid && found.is_ready()) {
            return Ok(found);
        }
        // A process that has just been started may not have changed its directory yet, but it is there.
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

/// Ends the postmaster: fast, and if that does not help, at once (its next start then recovers).
pub(crate) fn stop(pid: i32, data_dir: &Path) -> Result<(), ClusterError> {
    let ours = |pid| works_in(pid, data_dir);
    if !ours(pid) {
        return Ok(());
    }
    signal(pid, Signal::INT);
    if wait_while(FAST_LIMIT, || ours(pid)) {
        return Ok(());
    }
    tracing::warn!(pid, "the private PostgreSQL does not end; ending it at once");
    signal(pid, Signal::QUIT);
    if wait_while(IMMEDIATE_LIMIT, || ours(pid)) {
        return Ok(());
    }
    Err(ClusterError::DidNotStop { pid, waited: FAST_LIMIT + IMMEDIATE_LIMIT })
}

/// Clears away what a killed postmaster left: its children, which would keep the shared memory in use, and a pid file
/// whose number may belong to somebody else by now.
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

/// PostgreSQL's processes that work in this directory; a person's shell that stands in it is none of them.
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
