//! A sandbox around the agent, like the server's: namespaces of its own, no network, and one socket for the egress.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use casement_agent_protocol::client::{AgentClient, ClientError, Events};
use casement_agent_protocol::{AgentConfig, Event, ExitReason, Status, Viewport};
use command_fds::{CommandFdExt, FdMapping};
use tempfile::TempDir;

use crate::web::{self, Seen};

/// The user of all processes in a test's sandbox.
const USER: u32 = 28_100;

/// The path, inside of the sandbox, of a browser that never outputs anything.
pub(crate) const SILENT: &str = "/run/casement/in/silent";

/// The path of the script runner inside of the sandbox.
pub(crate) const RUNNER: &str = "/run/casement/runner";

pub(crate) const NONCE: &str = "a-nonce";

/// The timeout of any operation on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The timeout of a page at a hand-out on a busy machine: the maximum that an agent waits.
pub(crate) const SLOWLY: Option<Duration> = Some(Duration::from_secs(30));

pub(crate) fn config(headless: bool) -> AgentConfig {
    AgentConfig::new(NONCE, headless, Viewport { width: 900, height: 700, refresh_rate: 60 })
}

/// A running sandbox with the agent in it. Dropping it ends every process inside.
pub(crate) struct Sandbox {
    child: Child,
    directory: TempDir,
    pub(crate) seen: Seen,
}

impl Sandbox {
    /// Starts the agent. Must be called within a runtime, which serves the requests that leave the sandbox.
    pub(crate) fn start(config: &AgentConfig) -> Self {
        let directory = tempfile::Builder::new().prefix("agent-").permissions(mode(0o755)).tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["in", "egress"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::copy(env!("CARGO_BIN_EXE_casement-agent"), at("in/casement-agent")).unwrap();
        fs::write(at("in/agent.json"), serde_json::to_vec(config).unwrap()).unwrap();
        fs::write(at("in/silent"), "#!/bin/sh\nexec sleep 60\n").unwrap();
        fs::set_permissions(at("in/silent"), mode(0o755)).unwrap();
        let seen = web::serve(&at("egress/egress.sock"));
        fs::set_permissions(at("egress/egress.sock"), mode(0o777)).unwrap();
        let sockets = ["agent", "dial"].map(|name| UnixListener::bind(at(name)).unwrap());
        let child = spawn(directory.path(), sockets);
        Self { child, directory, seen }
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a client, once the agent answers. The socket accepts connections before the agent has started.
    pub(crate) async fn client(&self) -> AgentClient {
        let client = AgentClient::connect(self.socket("agent")).await.unwrap();
        let deadline = Instant::now() + TEST_TIMEOUT;
        while let Err(ClientError::Timeout(_)) = client.status().await {
            assert!(Instant::now() < deadline, "the agent does not answer");
        }
        client
    }

    /// Waits for the browser and prints the durations of its start.
    pub(crate) async fn ready(&self, label: &str) -> Status {
        let began = Instant::now();
        let status = self.client().await.ready().await.unwrap();
        let stages: Vec<String> = status.stages.iter().map(|stage| format!("{} {:.0}", stage.name, stage.ms)).collect();
        println!("{label}: ready after {:?}, stages in ms: {}", began.elapsed(), stages.join(", "));
        status
    }

    /// Starts a sandbox and waits for its browser. Returns the sandbox, the status and a client.
    pub(crate) async fn with_browser(config: &AgentConfig, label: &str) -> (Self, Status, AgentClient) {
        let sandbox = Self::start(config);
        let status = sandbox.ready(label).await;
        let client = sandbox.client().await;
        (sandbox, status, client)
    }

    /// Returns the processes in the sandbox whose command line contains `word`.
    pub(crate) fn processes(&self, word: &str) -> Vec<u32> {
        let mut parents = HashMap::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if let Some(parent) = field(pid, "PPid:").and_then(|value| value.parse::<u32>().ok()) {
                parents.insert(pid, parent);
            }
        }
        let top = self.child.id();
        let inside = |pid: u32| std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).any(|pid| pid == top);
        let has_word = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(word)
        };
        parents.keys().copied().filter(|pid| *pid != top && inside(*pid) && has_word(*pid)).collect()
    }

    /// Returns the main process of the browser.
    pub(crate) fn browser(&self) -> u32 {
        self.browsers().into_iter().min().expect("a browser runs")
    }

    /// Returns the main processes of browsers: two while one replaces the other.
    pub(crate) fn browsers(&self) -> Vec<u32> {
        let candidates = self.processes("--user-data-dir");
        let main = candidates.into_iter().filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.starts_with("/usr/lib/chromium/chromium ") && !line.contains("--type=")
        });
        main.collect()
    }

    /// Returns the process of the agent.
    pub(crate) fn agent(&self) -> u32 {
        let named = self.processes("casement-agent").into_iter().filter(|pid| is_named(*pid, "casement-agent"));
        named.min().expect("an agent runs")
    }

    /// Prints the memory of all processes of this name together.
    pub(crate) fn memory(&self, name: &str) {
        let processes = self.processes(name).into_iter().filter(|pid| is_named(*pid, name));
        let size = |pid: u32, key: &str| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            rollup.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        };
        let sizes: Vec<_> = processes.map(|pid| (size(pid, "Pss:"), size(pid, "Pss_Anon:"))).collect();
        let sum = |all: &mut dyn Iterator<Item = Option<u64>>| all.flatten().sum::<u64>();
        let (all, own) = (sum(&mut sizes.iter().map(|s| s.0)), sum(&mut sizes.iter().map(|s| s.1)));
        println!("memory of {} {name}: {all} KiB, {own} of it anonymous", sizes.len());
    }

    /// Waits for the end of the sandbox and returns its exit code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the sandbox does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the next event except heartbeats, which come whenever there was no other event for a while.
pub(crate) async fn news(events: &mut Events) -> Option<Event> {
    loop {
        match events.next().await.unwrap() {
            Some(Event::Heartbeat) => {}
            other => return other,
        }
    }
}

/// Waits for the end of the browser. Returns the reason, and its description for people.
pub(crate) async fn end(events: &mut Events) -> (ExitReason, String) {
    loop {
        match events.next().await.unwrap() {
            Some(Event::Exited { reason, detail }) => return (reason, detail),
            Some(_) => {}
            None => panic!("the stream ended without a last word"),
        }
    }
}

/// Waits until no process in the sandbox has `word` in its command line.
pub(crate) async fn gone(sandbox: &Sandbox, word: &str) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !sandbox.processes(word).is_empty() {
        assert!(Instant::now() < deadline, "{word} goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_named(pid: u32, name: &str) -> bool {
    field(pid, "Name:").as_deref() == Some(name)
}

/// Returns a field of a process's status.
pub(crate) fn field(pid: u32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
}

/// Sends a signal by name to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    assert!(try_signal(pid, name), "kill -s {name} {pid}");
}

/// Sends a signal by name to a process; returns false if the process does not exist any more.
pub(crate) fn try_signal(pid: u32, name: &str) -> bool {
    Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success()
}

fn mode(bits: u32) -> fs::Permissions {
    fs::Permissions::from_mode(bits)
}

fn spawn(directory: &Path, sockets: [UnixListener; 2]) -> Child {
    // Like a process below `nohup`, or in the background of a shell.
    let ignores = ["sh", "-c", "trap '' HUP INT QUIT TSTP TTIN TTOU; exec \"$@\"", "sh"];
    let mut words: Vec<String> = ignores.map(str::to_owned).to_vec();
    if rustix::process::getuid().is_root() {
        chown(directory, Some(USER), Some(USER)).unwrap();
        let user = USER.to_string();
        words.extend(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(str::to_owned));
        words.extend(["--no-new-privs", "--bounding-set=-all", "--"].map(str::to_owned));
    }
    let line = "bwrap --unshare-user --uid 1000 --gid 1000 --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try \
        --unshare-net --new-session --die-with-parent --clearenv --setenv HOME /home/casement --setenv LISTEN_FDS 2 \
        --setenv PATH /usr/bin:/bin --ro-bind /usr /usr --ro-bind /etc /etc --symlink usr/bin /bin --symlink usr/lib /lib \
        --symlink usr/lib64 /lib64 --symlink usr/sbin /sbin --ro-bind-try /var/cache/fontconfig /var/cache/fontconfig \
        --proc /proc --dev /dev --tmpfs /dev/shm --tmpfs /tmp --tmpfs /run --tmpfs /home --dir /home/casement";
    words.extend(line.split_whitespace().map(str::to_owned));
    for name in ["in", "egress"] {
        let from = directory.join(name).display().to_string();
        words.extend(["--ro-bind".to_owned(), from, format!("/run/casement/{name}")]);
    }
    // `cargo xtask test` has put it beside the folder of this build.
    let program = Path::new(env!("CARGO_BIN_EXE_casement-agent"));
    let runner = program.parent().unwrap().join("../runner");
    assert!(runner.join("runner.cjs").is_file(), "there is no script runner in {}: cargo xtask test", runner.display());
    words.extend(["--ro-bind".to_owned(), runner.display().to_string(), RUNNER.to_owned()]);
    words.extend(["--", "/run/casement/in/casement-agent"].map(str::to_owned));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    let [agent, dial] = sockets;
    let mappings =
        vec![FdMapping { parent_fd: agent.into(), child_fd: 3 }, FdMapping { parent_fd: dial.into(), child_fd: 4 }];
    command.fd_mappings(mappings).unwrap();
    command.spawn().unwrap()
}
