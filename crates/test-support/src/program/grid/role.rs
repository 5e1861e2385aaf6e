//! One process of a Grid: the hub or a node.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::leftovers::processes_of;
use crate::program::until;

/// How long the end of the processes may take.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(60);
/// The user and the group of Debian without rights.
const UNPRIVILEGED: (u32, u32) = (65_534, 65_534);
/// The server in the directory of a Grid.
const SERVER: &str = "server.jar";
/// The first process of a PID namespace, which starts the server as an ordinary user.
///
/// It is not replaced by the server, because a change of the user would undo that it is killed with its parent. It
/// removes the copies of other tests' mounts, which would count as leftovers of those. It binds the server into the directory,
/// because an ordinary user may not reach cargo's target folder.
const INIT: &str = r#"
cut -d' ' -f5 /proc/self/mountinfo | grep ^/tmp/casement- | xargs -r umount -l
mount --bind "$0" "$1" && shift || exit 1
setpriv --reuid nobody --regid nogroup --clear-groups --no-new-privs --inh-caps=-all "$@"
exit $?
"#;
/// Java starts in half of the time without its optimizing compiler.
const JAVA: [&str; 5] = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m"];
const MAX_SHOWN_LINES: usize = 60;

/// A running hub or node, with all that it has started.
pub(super) struct Role {
    name: String,
    child: Child,
    dir: PathBuf,
}

impl Role {
    /// Starts it with the content of its configuration file, and flags.
    pub(super) fn start(
        (jar, root): (&Path, &Path),
        name: &str,
        config: &str,
        flags: &[String],
    ) -> anyhow::Result<Self> {
        let dir = root.join(name);
        if !dir.exists() {
            fs::create_dir(&dir)?;
            chown(&dir, Some(UNPRIVILEGED.0), Some(UNPRIVILEGED.1)).context("only root can start a Grid")?;
        }
        let file = dir.join("config.toml");
        fs::write(&file, config)?;
        fs::set_permissions(&file, Permissions::from_mode(0o400))?;
        chown(&file, Some(UNPRIVILEGED.0), Some(UNPRIVILEGED.1))?;

        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c", INIT]);
        command.arg(jar).arg(root.join(SERVER)).args(JAVA);
        command.arg(format!("-Djava.io.tmpdir={}", dir.display())).arg("-jar").arg(root.join(SERVER));
        command.arg(if name == "hub" { "hub" } else { "node" }).arg("--config").arg(&file).args(flags);
        // Offline: the driver is configured, and nothing may be downloaded or reported.
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("LANG", "C.UTF-8");
        command.env("HOME", &dir).env("TMPDIR", &dir).env("SE_OFFLINE", "true").env("SE_AVOID_STATS", "true");
        let log = File::create(dir.join("log"))?;
        command.current_dir(&dir).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().context("cannot start unshare")?;
        Ok(Self { name: name.to_owned(), child, dir })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the end of the log.
    pub(super) fn log(&self) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(MAX_SHOWN_LINES)..].join("\n")
    }

    /// Returns how it has ended, with the end of its log; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("{} of the Grid ended: {status}\n{}", self.name, self.log()))
    }

    /// Kills it and all that it has started, and waits until nothing of them is left.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        let dir = &self.dir;
        let gone = until("its processes have ended", END_TIMEOUT, || processes_of(dir).is_empty().then_some(()));
        gone.with_context(|| format!("{}: {:?}", self.name, processes_of(dir)))
    }

    /// Stops or continues it and all that it has started.
    pub(super) fn pause(&self, is_paused: bool) -> anyhow::Result<()> {
        let signal = if is_paused { Signal::STOP } else { Signal::CONT };
        let processes = processes_of(&self.dir);
        ensure!(!processes.is_empty(), "{} does not run", self.name);
        for process in processes {
            if let Some(pid) = Pid::from_raw(process.pid) {
                // One may end meanwhile.
                let _ = kill_process(pid, signal);
            }
        }
        Ok(())
    }
}

/// Creates the directory of a Grid.
pub(super) fn new_dir() -> anyhow::Result<TempDir> {
    // Its processes run as an ordinary user. Chromium's sockets need short paths.
    let open = Permissions::from_mode(0o711);
    let dir = tempfile::Builder::new().prefix("casement-grid-").permissions(open).tempdir_in("/tmp")?;
    File::create(dir.path().join(SERVER))?;
    Ok(dir)
}

/// Returns the configuration of a node with Debian's Chromium.
pub(super) fn node_config(port: u16, max_sessions: u32) -> String {
    // Chromium's own sandbox needs rights that containers of tests do not have; /dev/shm is small there.
    let arguments = r#"["--no-sandbox", "--disable-dev-shm-usage", "--enable-features=WebMCP"]"#;
    let options = format!(r#"{{"binary": "/usr/bin/chromium", "args": {arguments}}}"#);
    format!(
        r#"[server]
host = "127.0.0.1"
port = {port}
[node]
detect-drivers = false
max-sessions = {max_sessions}
override-max-sessions = true
[[node.driver-configuration]]
display-name = "chromium"
stereotype = '{{"browserName": "chrome", "platformName": "linux", "goog:chromeOptions": {options}}}'
max-sessions = {max_sessions}
webdriver-executable = "/usr/bin/chromedriver"
"#
    )
}
