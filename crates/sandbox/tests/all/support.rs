//! Test support: a directory for sandboxes, and specifications of sandboxes with scripts.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use casement_sandbox::{Host, HostConfig, Sandbox, Spec};
pub(crate) use casement_test_support::{try_until as until, within};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;

/// A separate root directory with its host. `Drop` ends the sandboxes that a failed test leaves in it.
pub(crate) struct Place {
    pub(crate) host: Host,
    pub(crate) dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> anyhow::Result<Self> {
        // Sandboxes run as other users, which must be able to traverse the directory.
        let open = std::fs::Permissions::from_mode(0o711);
        let dir = tempfile::Builder::new().prefix("sandbox-test-").permissions(open).tempdir_in("/tmp")?;
        let host = Host::new(config(&dir.path().join("root")))?;
        Ok(Self { host, dir })
    }

    /// Returns the specification of a sandbox that runs a shell script.
    pub(crate) fn script(&self, id: &str, script: &str) -> Spec {
        spec(self.dir.path(), id, script)
    }

    /// Runs a shell script to its end and returns its output.
    pub(crate) async fn output(&self, id: &str, script: &str) -> anyhow::Result<String> {
        self.output_of(self.script(id, script)).await
    }

    pub(crate) async fn output_of(&self, spec: Spec) -> anyhow::Result<String> {
        let sandbox = self.host.start(spec).await?;
        within(Duration::from_secs(60), sandbox.exited()).await??;
        let output = sandbox.log().context("the starter can read it")?;
        self.host.end(&sandbox.id).await?;
        Ok(output)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let host = self.host.clone();
        let sweep = async move { host.sweep(&Default::default()).await.map(drop) };
        let swept = std::thread::spawn(|| tokio::runtime::Runtime::new().map(|runtime| runtime.block_on(sweep))).join();
        assert!(matches!(swept, Ok(Ok(Ok(())))), "the sweep after a test failed: {swept:?}");
    }
}

pub(crate) fn config(root: &Path) -> HostConfig {
    HostConfig {
        root: root.to_owned(),
        uid_base: 210_000,
        uid_count: 10_000,
        bwrap: "/usr/bin/bwrap".into(),
        setpriv: "/usr/bin/setpriv".into(),
    }
}

pub(crate) fn spec(place: &Path, id: &str, script: &str) -> Spec {
    Spec {
        id: id.to_owned(),
        program: PathBuf::from("/usr/bin/dash"),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: Vec::new(),
        files: Vec::new(),
        sockets: 0,
        listeners: Vec::new(),
        egress_dir: place.join(format!("egress-{id}")),
        network: None,
        read_only: Vec::new(),
        read_only_at: Vec::new(),
        memory_bytes: 512 * MIB,
        tmpfs_bytes: 64 * MIB,
        max_processes: 100,
        max_open_files: 256,
    }
}

/// Copies the test program into a directory in which every user can run it. `cp` writes it, because a file that this
/// process itself had open for writing may be busy in the child of another test.
pub(crate) fn program_in(dir: &Path) -> anyhow::Result<PathBuf> {
    let program = dir.join("tests");
    let copied = Command::new("cp").args([&std::env::current_exe()?, &program]).status()?;
    ensure!(copied.success(), "cp: {copied}");
    Ok(program)
}

/// Returns the pids of all processes, without zombies, for whose `/proc` directory `test` returns true.
pub(crate) fn processes(test: impl Fn(&Path) -> bool) -> Vec<i32> {
    let numbered = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(numbered);
    let alive = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
    };
    entries.filter(alive).filter(|pid| test(&PathBuf::from(format!("/proc/{pid}")))).collect()
}

/// Returns the remains of a sandbox: its directory, mounts, sockets, and processes whose command line contains it.
pub(crate) fn remains(dir: &Path) -> Vec<String> {
    let name = dir.to_string_lossy().into_owned();
    let holds = |path: &str| std::fs::read(path).is_ok_and(|b| String::from_utf8_lossy(&b).contains(&name));
    let mut found: Vec<String> = Vec::new();
    found.extend(dir.exists().then(|| format!("the directory {name}")));
    found.extend(holds("/proc/self/mountinfo").then(|| "a mount".to_owned()));
    found.extend(holds("/proc/net/unix").then(|| "a socket".to_owned()));
    let by_name = processes(|proc| holds(&proc.join("cmdline").to_string_lossy()));
    found.extend(by_name.into_iter().map(|pid| format!("process {pid}")));
    found
}

/// Returns the control groups in the record of a sandbox that exist.
pub(crate) fn groups(sandbox: &Sandbox) -> anyhow::Result<Vec<PathBuf>> {
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(sandbox.dir.join("state.json"))?)?;
    let named = ["memory", "pids", "cpu"].map(|which| record["cgroups"][which].as_str().map(PathBuf::from));
    Ok(named.into_iter().flatten().filter(|path| path.exists()).collect())
}
