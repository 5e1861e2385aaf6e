//! The program itself, in a directory and on a port of its own.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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

use super::http::{Answer, Request};
use super::leftovers::{Process, processes_of, remains_of};
use super::until;

const PROGRAM: &str = env!("CARGO_BIN_EXE_casement");
/// To a line on standard output: a database cluster is made, and others may start browsers at the same time.
const TO_READY: Duration = Duration::from_secs(300);
/// For a server to end: running requests have 30 s, then its database stops.
const TO_END: Duration = Duration::from_secs(300);
/// For a browser of a pool to become free, on a busy machine.
const TO_FILL: Duration = Duration::from_secs(300);
/// How much of a server's log a failure shows.
const SHOWN: usize = 120;

/// Ends a server and its sessions when the test program has died without doing so: then its end of the pipe closes.
/// A server that was dead already is started once more, since only a server ends sandboxes.
const WATCHDOG: &str = r#"
read -r cleaned && exit 0
stop() { "$PROGRAM" stop --end-sessions --data-dir "$ROOT/data" 2>/dev/null; }
if ! stop; then
  "$PROGRAM" serve --listen 127.0.0.1:0 --data-dir "$ROOT/data" --no-default-pool >/dev/null 2>&1 &
  for try in $(seq 300); do stop && break; sleep 0.1; done
  wait
fi
rm -rf "$ROOT"
"#;

/// The lines of a program's standard output so far.
type Lines = Arc<Mutex<Vec<String>>>;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// What its browsers may reach besides the public internet; see `Pages::allow`.
    pub(crate) egress_allow: Vec<String>,
    /// Whether the first start makes the pool `default` of two headless browsers. Two browsers cost seconds of two cores.
    pub(crate) default_pool: bool,
    /// How many browsers of each common shape wait for `POST /browsers`.
    pub(crate) spares: u32,
    /// Further flags of `casement serve`.
    pub(crate) flags: Vec<String>,
    /// What the server finds at `/etc/resolv.conf`, if not the machine's own.
    pub(crate) resolv_conf: Option<PathBuf>,
    /// Where it listens, if not at this machine alone.
    pub(crate) listen: Option<IpAddr>,
    /// Where what it logs cannot be written.
    pub(crate) deaf: bool,
    /// Further variables. The test's own `CASEMENT_…` are not handed on.
    pub(crate) variables: Vec<(String, String)>,
    /// Whose database it uses, with whose first key, if not one of its own; see [`Server::another`].
    pub(crate) beside: Option<StoreConnection>,
}

/// What a server shares with the one whose database it uses.
#[derive(Clone, Debug)]
pub(crate) struct StoreConnection {
    database: String,
    key: String,
}

impl Options {
    /// A server whose browsers may open these pages.
    pub(crate) fn reaching(pages: &super::Pages) -> Self {
        Self { egress_allow: vec![pages.allow()], ..Self::default() }
    }
}

/// A running server, or one between two lives.
pub(crate) struct Server {
    root: TempDir,
    options: Options,
    address: SocketAddr,
    /// Keeps the port of the address.
    _port: TcpSocket,
    key: String,
    child: Option<Child>,
    said: Lines,
    watchdog: Child,
}

/// A session as the server answered it.
#[derive(Clone, Debug)]
pub(crate) struct Session(pub(crate) Value);

impl Session {
    /// One of its texts, such as `cdp_ws_url`.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_else(|| panic!("the session has no {field}: {}", self.0))
    }

    pub(crate) fn id(&self) -> &str {
        self.text("session_id")
    }

    /// What opens this one session.
    pub(crate) fn token(&self) -> &str {
        self.text("cdp_ws_url").split_once("jwt=").map(|(_, token)| token).unwrap()
    }
}

impl Server {
    /// Starts one on an empty directory and waits until it is ready.
    pub(crate) fn start(options: Options) -> anyhow::Result<Self> {
        // Sandboxes run as users of their own, which must be able to pass through; sockets want short paths.
        let open = Permissions::from_mode(0o711);
        let root = tempfile::Builder::new().prefix("casement-e2e-").permissions(open).tempdir_in("/tmp")?;
        let (port, address) = port_at(options.listen.unwrap_or(Ipv4Addr::LOCALHOST.into()))?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG])
            // Not as arguments: it would be found as something that the server left.
            .env("PROGRAM", PROGRAM)
            .env("ROOT", root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let (key, said) = (String::new(), Lines::default());
        let mut server = Self { root, options, address, _port: port, key, child: None, said, watchdog };
        server.begin()?;
        server.key = match &server.options.beside {
            Some(beside) => beside.key.clone(),
            None => fs::read_to_string(server.data_dir().join("api-key")).context("no api-key")?.trim().to_owned(),
        };
        Ok(server)
    }

    /// Another server on the database of this one, as on another machine. It must be dropped before this one.
    pub(crate) fn another(&self, options: Options) -> anyhow::Result<Self> {
        let database = format!("postgresql://casement@/casement?host={}", self.database_socket()?);
        Self::start(Options { beside: Some(StoreConnection { database, key: self.key.clone() }), ..options })
    }

    /// The directory where its private database listens.
    pub(crate) fn database_socket(&self) -> anyhow::Result<String> {
        let file = fs::read_to_string(self.data_dir().join("postgres/postmaster.pid")).context("no postmaster.pid")?;
        Ok(file.lines().nth(4).context("no socket")?.to_owned())
    }

    /// Ends the server as `kill -9` does. Its sessions go on.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// `casement stop`: returns when the server has ended. Its sessions go on.
    pub(crate) fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.stop_with(&[])
    }

    /// `casement stop --end-sessions`.
    pub(crate) fn stop_all(&mut self) -> anyhow::Result<ExitStatus> {
        self.stop_with(&["--end-sessions"])
    }

    /// Starts the server again on the same directory and the same port. It must have ended.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        ensure!(self.child.is_none(), "it runs already: kill() or stop() first");
        self.begin()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The key that the first start made.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Everything that the server and its sandboxes run.
    pub(crate) fn processes(&self) -> Vec<Process> {
        processes_of(self.root.path())
    }

    /// All that it has logged so far, over all its lives.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The lines that it has written to standard output since its last start.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().clone()
    }

    /// Another command of the program on the same directory: `server.command(&["keys", "list"])`.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(words).arg("--data-dir").arg(self.data_dir());
        self.clean(&mut command);
        command
    }

    /// A request with the server's key.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let request = Request::new(method, path).bearer(&self.key);
        body.map_or_else(|| request.clone(), |body| request.clone().json(body)).send(self.address)
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send("POST", path, Some(body))
    }

    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.send("DELETE", path, None)
    }

    /// A new session outside of any pool.
    pub(crate) fn create(&self, body: &Value) -> anyhow::Result<Session> {
        Ok(Session(self.post("/browsers", body)?.expect(201)?.json()?))
    }

    /// A session like most tests need it.
    pub(crate) fn headless(&self) -> anyhow::Result<Session> {
        self.create(&json!({ "headless": true, "timeout_seconds": 600 }))
    }

    /// A browser of the pool, once one is free.
    pub(crate) fn acquire(&self, pool: &str) -> anyhow::Result<Session> {
        let path = format!("/browser_pools/{pool}/acquire");
        let answer = until(&format!("a browser of the pool {pool}"), TO_FILL, || {
            let answer = self.post(&path, &json!({ "acquire_timeout_seconds": 60 }));
            // 204: none became free in time; whoever wants one asks again.
            (!answer.as_ref().is_ok_and(|answer| answer.status == 204)).then_some(answer)
        })??;
        Ok(Session(answer.expect(200)?.json()?))
    }

    pub(crate) fn release(&self, pool: &str, session: &Session) -> anyhow::Result<()> {
        let body = json!({ "session_id": session.id() });
        self.post(&format!("/browser_pools/{pool}/release"), &body)?.expect(204).map(drop)
    }

    /// Waits until the pool has so many browsers that nobody uses.
    pub(crate) fn until_available(&self, pool: &str, count: u64) -> anyhow::Result<()> {
        let path = format!("/browser_pools/{pool}");
        until(&format!("{count} browsers in the pool {pool}"), TO_FILL, || {
            let found = self.get(&path).ok()?.json().ok()?;
            (found["available_count"] == count).then_some(())
        })
    }

    /// Sends a signal to one process, which must belong to this server.
    pub(crate) fn signal(&self, process: &Process, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(process.pid).context("no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    fn log_file(&self) -> PathBuf {
        self.root.path().join("log")
    }

    fn clean(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CASEMENT_")) {
            command.env_remove(name);
        }
        command.envs(self.options.beside.as_ref().map(|beside| ("CASEMENT_DATABASE_URL", &beside.database)));
        // Nor is the machine's own file.
        command.env("CASEMENT_CONFIG", "/dev/null");
        command.envs(self.options.variables.iter().map(|(name, value)| (name, value)));
    }

    /// Starts the program and reads where it listens.
    fn begin(&mut self) -> anyhow::Result<()> {
        let spares = self.options.spares.to_string();
        let mut command = self.command(&["serve", "--listen", &self.address.to_string(), "--spares", &spares]);
        if let Some(file) = &self.options.resolv_conf {
            command = in_place_of_resolv_conf(file, &command);
            self.clean(&mut command);
        }
        for allowed in &self.options.egress_allow {
            command.args(["--egress-allow", allowed]);
        }
        if !self.options.default_pool {
            command.arg("--no-default-pool");
        }
        let log = if self.options.deaf { Path::new("/dev/full").to_owned() } else { self.log_file() };
        let log = File::options().create(true).append(true).open(log)?;
        // Ctrl-C at the terminal is for the test program; the watchdog does the rest.
        command.args(&self.options.flags).stdout(Stdio::piped()).stderr(log).stdin(Stdio::null()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {PROGRAM}"))?;
        self.said = lines_of(child.stdout.take().context("no standard output")?);
        self.child = Some(child);
        self.address = self.until_ready()?;
        Ok(())
    }

    fn until_ready(&mut self) -> anyhow::Result<SocketAddr> {
        let address = |line: &String| line.strip_prefix("casement ready http://").map(str::parse::<SocketAddr>);
        until("`casement ready` on standard output", TO_READY, || {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            self.said.lock().iter().find_map(address).map(Ok).or_else(|| ended.map(Err))
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
        let ended = until("`casement stop` returns and the server has ended", TO_END, || {
            let both = (child.try_wait().ok()?, stopping.try_wait().ok()?);
            both.0.zip(both.1)
        });
        match ended {
            Ok((status, stopped)) => {
                ensure!(stopped.success(), "`casement stop`: {stopped}");
                Ok(status)
            }
            Err(error) => {
                // Neither may outlive the test.
                for program in [&mut stopping, &mut child] {
                    drop(program.kill());
                    drop(program.wait());
                }
                Err(error)
            }
        }
    }

    /// Ends everything, also what a killed server left, and says what is still there.
    fn end(&mut self) -> anyhow::Result<()> {
        if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
            self.child = None;
        }
        if self.child.is_none() {
            self.begin()?;
        }
        self.stop_all()?;
        let root = self.root.path();
        let nothing = || remains_of(root).is_empty().then_some(());
        until("nothing of the server is left", Duration::from_secs(60), nothing)
            .with_context(|| format!("left behind:\n  {}", remains_of(root).join("\n  ")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = self.end();
        if ended.is_err() {
            kill_remains(self.root.path());
        }
        if let Some(mut pipe) = self.watchdog.stdin.take() {
            drop(pipe.write_all(b"cleaned\n"));
        }
        drop(self.watchdog.wait());
        if thread::panicking() {
            eprintln!("the end of the server's log:\n{}", end_of(&self.log()));
            ended.unwrap_or_else(|error| eprintln!("the server did not end well either: {error:#}"));
        } else if let Err(error) = ended {
            panic!("the server did not end well: {error:#}\nthe end of its log:\n{}", end_of(&self.log()));
        }
    }
}

/// A port of this address that nobody else is given as long as the socket is there, also while the server between two of its lives
/// does not listen. Nobody listens at the socket itself, and the server, which may use an address anew as it may, takes no notice of it.
fn port_at(ip: IpAddr) -> anyhow::Result<(TcpSocket, SocketAddr)> {
    let socket = if ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(ip, 0)).with_context(|| format!("no port at {ip}"))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// The same program, in a mount namespace of its own, without the disks of other tests: it would count as something of theirs.
fn in_place_of_resolv_conf(file: &Path, program: &Command) -> Command {
    let script = "cut -d' ' -f5 /proc/self/mountinfo | grep ^/tmp/casement-e2e- | xargs -r umount -l
        mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(file);
    command.arg(program.get_program()).args(program.get_args());
    command
}

/// The machine stays clean although the program failed; the test has failed with the list.
fn kill_remains(root: &Path) {
    for process in processes_of(root) {
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Reads on for as long as the program writes, so that it never waits for us.
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
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}
