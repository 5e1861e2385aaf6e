//! The program itself, in a directory and on a port of its own.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use super::cluster::Door;
use super::cluster_template;
use super::http::{Answer, Request};
use super::leftovers::{Process, processes_of, remains_in};
use super::options::{Options, Place, StoreConnection, write_master_key};
use super::places::{port_at, program};
use super::session::Session;
use super::watchdog::Watchdog;
use super::{engine, peers, remainders, until};

/// The timeout until the line on standard output: a database cluster is created, and other tests may start browsers at
/// the same time.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// The timeout until a server has ended: running requests have 30 s, then its database stops.
const END_TIMEOUT: Duration = Duration::from_secs(300);
/// The timeout until a browser of a pool is free, on a busy machine.
const FILL_TIMEOUT: Duration = Duration::from_secs(300);
/// The maximum number of lines of a server's log that a failure shows.
const MAX_SHOWN_LINES: usize = 120;

/// The lines of a program's standard output so far.
type Lines = Arc<Mutex<Vec<String>>>;

/// A server that runs, or that has ended and can be restarted.
pub struct Server {
    root: TempDir,
    options: Options,
    /// The address for the test.
    address: SocketAddr,
    /// Keeps the port of the address.
    _port: Port,
    key: String,
    child: Option<Child>,
    output: Lines,
    watchdog: Option<Watchdog>,
    /// The servers behind this one, which have all its sessions; see [`peers`].
    pub(super) peers: Vec<Server>,
}

/// What keeps the address of a server while the server does not run.
enum Port {
    Reserved(#[expect(dead_code, reason = "kept open")] TcpSocket),
    Door(#[expect(dead_code, reason = "kept open")] Door),
}

impl Server {
    /// Starts a server with an empty directory and waits until it is ready.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        match peers::count(&options) {
            0 => Self::start_with(engine::chosen(options)?, Watchdog::start),
            peers => {
                let mut server = Self::start_with(peers::entrance(options)?, Watchdog::guard)?;
                for _ in 0..peers {
                    server.peers.push(Self::start(peers::behind(&server)?)?);
                }
                Ok(server)
            }
        }
    }

    fn start_with(options: Options, watch: fn(&Path) -> anyhow::Result<Watchdog>) -> anyhow::Result<Self> {
        let root = new_root(options.place.as_ref())?;
        let data_dir = root.path().join("data");
        match &options.data_dir {
            Some(prepared) => fs::rename(prepared, data_dir).context("cannot move the data directory")?,
            None if options.has_private_cluster() && !options.first_start => cluster_template::copy_to(&data_dir)?,
            None => {
                if let Some(blobs) = options.beside.as_ref().and_then(|beside| beside.blobs.as_ref()) {
                    fs::create_dir(&data_dir)?;
                    std::os::unix::fs::symlink(blobs, data_dir.join("blobs"))?;
                }
                if let Some(key) = options.beside.as_ref().and_then(|beside| beside.master_key.as_ref()) {
                    write_master_key(&data_dir, key)?;
                }
            }
        }
        let (port, address) = match &options.place {
            Some(place) => {
                let door = place.host.door(place.ports.0, place.ports.1)?;
                let address = door.address();
                (Port::Door(door), address)
            }
            None => {
                let (port, address) = port_at(options.listen.unwrap_or(Ipv4Addr::LOCALHOST.into()))?;
                (Port::Reserved(port), address)
            }
        };
        let watchdog = options.place.is_none().then(|| watch(root.path())).transpose()?;
        let (key, output) = (String::new(), Lines::default());
        let mut server =
            Self { root, options, address, _port: port, key, child: None, output, watchdog, peers: Vec::new() };
        server.begin()?;
        server.key = match server.options.beside.as_ref().and_then(|beside| beside.key.clone()) {
            Some(key) => key,
            None => fs::read_to_string(server.data_dir().join("api-key")).context("no api-key")?.trim().to_owned(),
        };
        Ok(server)
    }

    /// Starts another server on the database of this one, as on another machine that shares the directory of stored files,
    /// unless `options` name a data directory. It must be dropped before this one.
    pub fn another(&self, options: Options) -> anyhow::Result<Self> {
        let blobs = Some(self.data_dir().join("blobs"));
        let master_key = Some(fs::read(self.data_dir().join("master-key")).context("no master-key")?);
        let (database, key) = (self.database_url()?, Some(self.key.clone()));
        Self::start(Options { beside: Some(StoreConnection { database, key, blobs, master_key }), ..options })
    }

    /// Returns the directory of the socket of the private database.
    pub fn database_socket(&self) -> anyhow::Result<String> {
        let file = fs::read_to_string(self.data_dir().join("postgres/postmaster.pid")).context("no postmaster.pid")?;
        Ok(file.lines().nth(4).context("no socket")?.to_owned())
    }

    /// Kills the server with `SIGKILL`. Its sessions continue.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Sends a signal to the server process.
    pub fn signal_server(&self, signal: Signal) -> anyhow::Result<()> {
        let child = self.child.as_ref().context("it does not run")?;
        Ok(kill_process(Pid::from_raw(child.id().cast_signed()).context("no pid")?, signal)?)
    }

    /// Returns the process id of the server, until its end was noticed.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns true until the server was killed or stopped, or its end was noticed.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Returns the status with which the server has ended by itself; `None` while it runs.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let ended = child.try_wait()?;
        if ended.is_some() {
            self.child = None;
        }
        Ok(ended)
    }

    /// Runs `casement stop` and waits until the server has ended. Its sessions continue.
    pub fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.stop_with(&[])
    }

    /// Runs `casement stop --end-sessions` and waits until the server has ended.
    pub fn stop_all(&mut self) -> anyhow::Result<ExitStatus> {
        self.stop_with(&["--end-sessions"])
    }

    /// Restarts a server that has ended, with the same directory and port.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        ensure!(self.child.is_none(), "it runs already: kill() or stop() first");
        self.begin()
    }

    /// Replaces the environment variables of [`Options::variables`] from the next start on, and in commands.
    pub fn set_variables(&mut self, variables: Vec<(String, String)>) {
        self.options.variables = variables;
    }

    /// Replaces the program from the next start on.
    pub fn set_program(&mut self, program: Option<PathBuf>) {
        self.options.program = program;
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the key that the first start created.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Returns all processes of the server and its sandboxes.
    pub fn processes(&self) -> Vec<Process> {
        processes_of(self.root.path())
    }

    /// Returns the log since the first start.
    pub fn log(&self) -> String {
        let own = fs::read_to_string(self.log_file()).unwrap_or_default();
        self.peers.iter().fold(own, |logs, peer| logs + &peer.log())
    }

    /// Returns the lines on standard output since the last start.
    pub fn output_lines(&self) -> Vec<String> {
        self.output.lock().clone()
    }

    /// Returns another command of the program on the same data directory: `server.command(&["keys", "list"])`.
    pub fn command(&self, words: &[&str]) -> Command {
        let program = self.options.program.clone().unwrap_or_else(program);
        let mut command = match &self.options.place {
            Some(place) => place.host.command(program),
            None => Command::new(program),
        };
        command.args(words).arg("--data-dir").arg(self.data_dir());
        self.clean(&mut command);
        command
    }

    /// Sends a request with the server's key.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let request = Request::new(method, path).bearer(&self.key);
        let answer = body.map_or_else(|| request.clone(), |body| request.clone().json(body)).send(self.address)?;
        if self.options.is_shared {
            remainders::note(self.address, &self.key, (method, path), &answer);
        }
        Ok(answer)
    }

    /// Sends a `GET` with the server's key.
    pub fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send("GET", path, None)
    }

    /// Sends a `POST` with the server's key.
    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send("POST", path, Some(body))
    }

    /// Sends a `DELETE` with the server's key.
    pub fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.send("DELETE", path, None)
    }

    /// Creates a session outside of any pool.
    pub fn create(&self, body: &Value) -> anyhow::Result<Session> {
        Ok(Session(self.post("/browsers", body)?.expect(201)?.json()?))
    }

    /// Creates a headless session, which suffices for most tests.
    pub fn headless(&self) -> anyhow::Result<Session> {
        self.create(&json!({ "headless": true, "timeout_seconds": 600 }))
    }

    /// Acquires a browser of the pool. Waits until one is free.
    pub fn acquire(&self, pool: &str) -> anyhow::Result<Session> {
        let path = format!("/browser_pools/{pool}/acquire");
        let answer = until(&format!("a browser of the pool {pool}"), FILL_TIMEOUT, || {
            let answer = self.post(&path, &json!({ "acquire_timeout_seconds": 60 }));
            // 204: none became free in time, so the client repeats the request.
            (!answer.as_ref().is_ok_and(|answer| answer.status == 204)).then_some(answer)
        })??;
        Ok(Session(answer.expect(200)?.json()?))
    }

    /// Releases a browser to its pool.
    pub fn release(&self, pool: &str, session: &Session) -> anyhow::Result<()> {
        let body = json!({ "session_id": session.id() });
        self.post(&format!("/browser_pools/{pool}/release"), &body)?.expect(204).map(drop)
    }

    /// Waits until the pool has this many idle browsers.
    pub fn until_available(&self, pool: &str, count: u64) -> anyhow::Result<()> {
        let path = format!("/browser_pools/{pool}");
        until(&format!("{count} browsers in the pool {pool}"), FILL_TIMEOUT, || {
            let found = self.get(&path).ok()?.json().ok()?;
            (found["available_count"] == count).then_some(())
        })
    }

    /// Sends a signal to a process of this server.
    pub fn signal(&self, process: &Process, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(process.pid).context("no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns the URL of the private database.
    pub fn database_url(&self) -> anyhow::Result<String> {
        Ok(format!("postgresql://casement@/casement?host={}", self.database_socket()?))
    }

    fn log_file(&self) -> PathBuf {
        self.root.path().join("log")
    }

    fn clean(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CASEMENT_")) {
            command.env_remove(name);
        }
        command.envs(self.options.beside.as_ref().map(|beside| ("CASEMENT_DATABASE_URL", &beside.database)));
        // Prevents that the configuration file of the machine is read.
        command.env("CASEMENT_CONFIG", "/dev/null");
        command.envs(self.options.variables.iter().map(|(name, value)| (name, value)));
    }

    /// Starts the program and reads the address on which it listens.
    fn begin(&mut self) -> anyhow::Result<()> {
        let spares = self.options.spares.to_string();
        let listen = match &self.options.place {
            Some(place) => SocketAddr::from((place.host.ip(), place.ports.0)),
            None => self.address,
        };
        let mut command = self.command(&["serve", "--listen", &listen.to_string(), "--spares", &spares]);
        if let Some(file) = &self.options.resolv_conf {
            command = in_place_of_resolv_conf(file, &command);
            self.clean(&mut command);
        }
        for allowed in &self.options.egress_allow {
            command.args(["--egress-allow", allowed]);
        }
        if !self.options.first_start {
            command.arg("--no-default-pool");
        }
        let log = if self.options.log_is_full { Path::new("/dev/full").to_owned() } else { self.log_file() };
        let log = File::options().create(true).append(true).open(log)?;
        // In a process group of its own, so that Ctrl-C ends the test program only; then the watchdog ends the server.
        command.args(&self.options.flags).stdout(Stdio::piped()).stderr(log).stdin(Stdio::null()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program().display()))?;
        self.output = lines_of(child.stdout.take().context("no standard output")?);
        self.child = Some(child);
        let address = self.until_ready()?;
        if self.options.place.as_ref().is_none_or(|place| place.ports.0 == 0) {
            self.address = address;
        }
        Ok(())
    }

    fn until_ready(&mut self) -> anyhow::Result<SocketAddr> {
        let address = |line: &String| {
            let url = line.strip_prefix("casement ready ")?;
            url.strip_prefix("http://").or(url.strip_prefix("https://")).map(str::parse::<SocketAddr>)
        };
        until("`casement ready` on standard output", READY_TIMEOUT, || {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            self.output.lock().iter().find_map(address).map(Ok).or_else(|| ended.map(Err))
        })
        .and_then(|found| match found {
            Ok(address) => address.context("the address is none"),
            Err(status) => bail!("the server ended before it was ready: {status}"),
        })
        .with_context(|| format!("the end of its log:\n{}", end_of(&self.log())))
    }

    fn stop_with(&mut self, flags: &[&str]) -> anyhow::Result<ExitStatus> {
        let mut child = self.child.take().context("it does not run")?;
        let mut stopping = self.command(&[&["stop"], flags].concat()).spawn()?;
        let ended = until("`casement stop` returns and the server has ended", END_TIMEOUT, || {
            let both = (child.try_wait().ok()?, stopping.try_wait().ok()?);
            both.0.zip(both.1)
        });
        match ended {
            Ok((status, stopped)) => {
                ensure!(stopped.success(), "`casement stop`: {stopped}");
                Ok(status)
            }
            Err(error) => {
                // Neither may run longer than the test.
                for program in [&mut stopping, &mut child] {
                    drop(program.kill());
                    drop(program.wait());
                }
                Err(error)
            }
        }
    }

    /// Ends everything, also leftovers of a killed server. An error lists the remains.
    fn end(&mut self) -> anyhow::Result<()> {
        if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
            self.child = None;
        }
        if self.child.is_none() {
            self.begin()?;
        }
        self.stop_all()?;
        let network = self.options.place.as_ref().and_then(|place| place.host.process());
        let remains = || remains_in(self.root.path(), network);
        until("nothing of the server is left", Duration::from_secs(60), || remains().is_empty().then_some(()))
            .with_context(|| format!("left behind:\n  {}", remains().join("\n  ")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Before their database.
        self.peers.clear();
        let ended = self.end();
        if ended.is_err() {
            kill_remains(self.root.path());
        }
        self.watchdog = None;
        if thread::panicking() {
            eprintln!("the end of the server's log:\n{}", end_of(&self.log()));
            ended.unwrap_or_else(|error| eprintln!("the server did not end well either: {error:#}"));
        } else if let Err(error) = ended {
            panic!("the server did not end well: {error:#}\nthe end of its log:\n{}", end_of(&self.log()));
        }
    }
}

/// Creates the directory of a server.
fn new_root(place: Option<&Place>) -> anyhow::Result<TempDir> {
    // Sandboxes run as users of their own, which must be able to pass through. Sockets need short paths.
    let open = Permissions::from_mode(0o711);
    let mut name = tempfile::Builder::new();
    Ok(match place {
        Some(place) => name.prefix("node-").rand_bytes(3).permissions(open).tempdir_in(&place.root)?,
        None => name.prefix("casement-e2e-").permissions(open).tempdir_in("/tmp")?,
    })
}

/// Returns the same command in a mount namespace of its own, with `file` as `/etc/resolv.conf` and without the mounts
/// of other tests, which would report the program as a leftover.
fn in_place_of_resolv_conf(file: &Path, program: &Command) -> Command {
    let script = "cut -d' ' -f5 /proc/self/mountinfo | grep ^/tmp/casement-e2e- | xargs -r umount -l
        mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(file);
    command.arg(program.get_program()).args(program.get_args());
    command
}

/// Kills the processes that a failed server left. The test has failed with a list of them.
fn kill_remains(root: &Path) {
    for process in processes_of(root) {
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Reads the output in a thread of its own, so that the program never blocks on a full pipe.
fn lines_of(output: impl std::io::Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let read = Arc::clone(&lines);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            read.lock().push(line);
        }
    });
    lines
}

fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(MAX_SHOWN_LINES)..].join("\n")
}
