//! The program itself, in a directory and on a port of its own.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
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

use super::cluster_template;
use super::http::{Answer, Request};
use super::leftovers::{Process, processes_of, remains_of};
use super::until;

/// The timeout until the line on standard output: a database cluster is created, and other tests may start browsers at
/// the same time.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
/// The timeout until a server has ended: running requests have 30 s, then its database stops.
const END_TIMEOUT: Duration = Duration::from_secs(300);
/// The timeout until a browser of a pool is free, on a busy machine.
const FILL_TIMEOUT: Duration = Duration::from_secs(300);
/// The maximum number of lines of a server's log that a failure shows.
const MAX_SHOWN_LINES: usize = 120;

/// Ends a server and its sessions if the test program is killed, which closes the pipe. A server that has already ended
/// is started again, because only a server ends sandboxes.
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

/// The options of a server's start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The destinations that the browsers may reach besides the public internet; see `Pages::allow`.
    pub egress_allow: Vec<String>,
    /// True for a first start that creates everything, as for a user: the cluster, and the pool `default` of two headless
    /// browsers. This costs seconds of two cores. Otherwise the server has a copy of an empty cluster, and no pool.
    pub first_start: bool,
    /// The number of spares of each common shape.
    pub spares: u32,
    /// Further flags of `casement serve`.
    pub flags: Vec<String>,
    /// The file that replaces `/etc/resolv.conf` for the server.
    pub resolv_conf: Option<PathBuf>,
    /// The address to listen at; 127.0.0.1 by default.
    pub listen: Option<IpAddr>,
    /// True for a log that cannot be written.
    pub log_is_full: bool,
    /// Further environment variables. The variables `CASEMENT_…` of the test itself are not inherited.
    pub variables: Vec<(String, String)>,
    /// A data directory to move to the server's place, such as a restored one.
    pub data_dir: Option<PathBuf>,
    /// The database and the key of another server, to use instead of own ones; see [`Server::another`].
    pub beside: Option<StoreConnection>,
}

/// The database, the API key, the stored files and the master keys that two servers share.
#[derive(Clone, Debug)]
pub struct StoreConnection {
    database: String,
    key: String,
    blobs: PathBuf,
    master_key: Vec<u8>,
}

impl Options {
    /// Returns the options of a server whose browsers may open these pages.
    pub fn reaching(pages: &super::Pages) -> Self {
        Self { egress_allow: vec![pages.allow()], ..Self::default() }
    }

    fn has_private_cluster(&self) -> bool {
        let names_another = |flag: &String| flag.starts_with("--database-url");
        self.beside.is_none() && !self.flags.iter().any(names_another)
    }
}

/// Writes the file of master keys, which only its owner may read.
fn write_master_key(data_dir: &Path, content: &[u8]) -> anyhow::Result<()> {
    let mut file = fs::OpenOptions::new();
    let mut file = file.write(true).create_new(true).mode(0o600).open(data_dir.join("master-key"))?;
    Ok(file.write_all(content)?)
}

/// A server that runs, or that has ended and can be restarted.
pub struct Server {
    root: TempDir,
    options: Options,
    address: SocketAddr,
    /// Keeps the port of the address.
    _port: TcpSocket,
    key: String,
    child: Option<Child>,
    output: Lines,
    watchdog: Child,
}

/// A session as in the server's response.
#[derive(Clone, Debug)]
pub struct Session(pub Value);

impl Session {
    /// Returns a text field, such as `cdp_ws_url`.
    pub fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_else(|| panic!("the session has no {field}: {}", self.0))
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &str {
        self.text("session_id")
    }

    /// Returns the session token.
    pub fn token(&self) -> &str {
        self.text("cdp_ws_url").split_once("jwt=").map(|(_, token)| token).expect("the address has a token")
    }
}

impl Server {
    /// Starts a server with an empty directory and waits until it is ready.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        // Sandboxes run as users of their own, which must be able to pass through. Sockets need short paths.
        let open = Permissions::from_mode(0o711);
        let root = tempfile::Builder::new().prefix("casement-e2e-").permissions(open).tempdir_in("/tmp")?;
        let data_dir = root.path().join("data");
        match &options.data_dir {
            Some(prepared) => fs::rename(prepared, data_dir).context("cannot move the data directory")?,
            None if options.has_private_cluster() && !options.first_start => cluster_template::copy_to(&data_dir)?,
            None => {
                if let Some(beside) = &options.beside {
                    fs::create_dir(&data_dir)?;
                    std::os::unix::fs::symlink(&beside.blobs, data_dir.join("blobs"))?;
                    write_master_key(&data_dir, &beside.master_key)?;
                }
            }
        }
        let (port, address) = port_at(options.listen.unwrap_or(Ipv4Addr::LOCALHOST.into()))?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG])
            // Not as arguments, because then `remains_of` would find the watchdog.
            .env("PROGRAM", program())
            .env("ROOT", root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let (key, output) = (String::new(), Lines::default());
        let mut server = Self { root, options, address, _port: port, key, child: None, output, watchdog };
        server.begin()?;
        server.key = match &server.options.beside {
            Some(beside) => beside.key.clone(),
            None => fs::read_to_string(server.data_dir().join("api-key")).context("no api-key")?.trim().to_owned(),
        };
        Ok(server)
    }

    /// Starts another server on the database of this one, as on another machine that shares the directory of stored files,
    /// unless `options` name a data directory. It must be dropped before this one.
    pub fn another(&self, options: Options) -> anyhow::Result<Self> {
        let (database, key, blobs) = (self.database_url()?, self.key.clone(), self.data_dir().join("blobs"));
        let master_key = fs::read(self.data_dir().join("master-key")).context("no master-key")?;
        Self::start(Options { beside: Some(StoreConnection { database, key, blobs, master_key }), ..options })
    }

    /// Returns the URL of the private database.
    pub fn database_url(&self) -> anyhow::Result<String> {
        Ok(format!("postgresql://casement@/casement?host={}", self.database_socket()?))
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
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Returns the lines on standard output since the last start.
    pub fn output_lines(&self) -> Vec<String> {
        self.output.lock().clone()
    }

    /// Returns another command of the program on the same data directory: `server.command(&["keys", "list"])`.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(words).arg("--data-dir").arg(self.data_dir());
        self.clean(&mut command);
        command
    }

    /// Sends a request with the server's key.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let request = Request::new(method, path).bearer(&self.key);
        body.map_or_else(|| request.clone(), |body| request.clone().json(body)).send(self.address)
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
        let mut command = self.command(&["serve", "--listen", &self.address.to_string(), "--spares", &spares]);
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
        self.address = self.until_ready()?;
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

/// Returns the path of the built program. Cargo puts it beside the folder of the test programs and benchmarks.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the test program has a path");
    let folder = test.ancestors().nth(2).expect("it is in `deps`");
    folder.join("casement")
}

/// Reserves a port of an address for as long as the socket exists, also while the server does not run. Nothing listens
/// on the socket itself, and `SO_REUSEADDR` lets the server listen on the same address.
fn port_at(ip: IpAddr) -> anyhow::Result<(TcpSocket, SocketAddr)> {
    let socket = if ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(ip, 0)).with_context(|| format!("no port at {ip}"))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
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
