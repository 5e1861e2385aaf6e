//! Programs that a caller runs in the session: each has a process session of its own, and inherits only the agent's
//! environment.
//!
//! Output neither blocks a program nor accumulates: it is read at once and stored up to a bound. A program whose caller
//! waits for it ends with the caller; any other program is stored, with its recent output, for a while after its end.

mod exec;
mod launch;
mod ring;
mod running;
pub(crate) mod tree;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

use self::launch::{Input, launch};
use self::running::Running;
use crate::browser_handle::BrowserHandle;
use crate::clock::now_ms;
use crate::reply::{self, Answer, Refusal, empty, ok, read, read_within};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::process::{
    EXEC, Exec, KILL, Kill, MAX_PROCESSES, OUTPUT, ProcessName, RESIZE, Resize, SPAWN, STATUS, STDIN, Spawn, Spawned,
    Stdin, Written,
};

/// The maximum number of running programs whose callers wait.
const MAX_EXECS: usize = 16;
/// The maximum number of concurrent readers of output.
const MAX_READERS: usize = 64;
/// The maximum number of ended programs whose leftover processes still have a reader of their output.
const MAX_LEFTOVERS: usize = 64;
/// The time for which an ended program is stored, and the maximum number of stored ones.
const RETENTION: Duration = Duration::from_secs(600);
const MAX_ENDED: usize = 64;
/// The maximum size of a request in bytes: arguments, environment, or 1 MiB of input in base64.
const MAX_REQUEST: usize = 4 << 20;
/// The maximum length of a name, in bytes.
const MAX_NAME: usize = 40;

/// All programs of the session.
#[derive(Debug)]
pub(crate) struct Processes {
    /// The browser whose display is in the environment of the programs.
    browser: BrowserHandle,
    processes: Mutex<Vec<Arc<Running>>>,
    execs: Semaphore,
    executed: AtomicU64,
    readers: Arc<Semaphore>,
    leftovers: Arc<Semaphore>,
}

impl Processes {
    pub(crate) fn new(browser: BrowserHandle) -> Self {
        Self {
            browser,
            processes: Mutex::default(),
            execs: Semaphore::new(MAX_EXECS),
            executed: AtomicU64::new(0),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            leftovers: Arc::new(Semaphore::new(MAX_LEFTOVERS)),
        }
    }

    /// Removes the programs whose retention is over and returns the others.
    fn retained(&self) -> MutexGuard<'_, Vec<Arc<Running>>> {
        let mut processes = self.processes.lock();
        processes.retain(|running| running.ended().is_none_or(|ended| ended.elapsed() < RETENTION));
        processes
    }

    fn find(&self, name: &str) -> Result<Arc<Running>, Refusal> {
        let found = self.retained().iter().find(|running| running.name == name).cloned();
        found.ok_or_else(|| Refusal::new(ErrorCode::Missing, format_args!("process {name} not found")))
    }

    /// Checks that one more program may be started.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`], [`ErrorCode::LimitReached`].
    fn check_room(&self, name: &str) -> Result<(), Refusal> {
        let processes = self.retained();
        if processes.iter().any(|running| running.name == name) {
            return Err(Refusal::new(ErrorCode::Exists, format_args!("process {name} exists")));
        }
        if processes.iter().filter(|running| running.ended().is_none()).count() >= MAX_PROCESSES {
            let message = format!("{MAX_PROCESSES} processes of this session run already");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        Ok(())
    }

    /// Adds a program, and removes the oldest of too many ended ones.
    fn add(&self, running: Arc<Running>) {
        let mut processes = self.retained();
        processes.push(running);
        let mut ended: Vec<_> = processes.iter().filter_map(|running| running.ended()).collect();
        ended.sort_unstable();
        if let Some(oldest) = ended.len().checked_sub(MAX_ENDED).and_then(|over| ended.get(over)).copied() {
            processes.retain(|running| running.ended().is_none_or(|ended| ended >= oldest));
        }
    }

    /// Serves `/v1/process/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            EXEC => self.exec(read_within(body, MAX_REQUEST).await?).await,
            SPAWN => self.spawn(read_within(body, MAX_REQUEST).await?),
            STATUS => ok(&self.named(body).await?.status()),
            STDIN => self.write(read_within(body, MAX_REQUEST).await?).await,
            KILL => {
                let Kill { process_id, signal } = read(body).await?;
                self.find(&process_id)?.signal(signal)?;
                Ok(empty())
            }
            RESIZE => {
                let Resize { process_id, size } = read(body).await?;
                self.find(&process_id)?.resize(size)?;
                Ok(empty())
            }
            OUTPUT => {
                let running = self.named(body).await?;
                let slot = Arc::clone(&self.readers).try_acquire_owned().map_err(|_| {
                    Refusal::new(ErrorCode::LimitReached, "too many read the output of this session's processes")
                })?;
                Ok(reply::stream("application/x-ndjson", running.follow(slot)))
            }
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn named(&self, body: Incoming) -> Result<Arc<Running>, Refusal> {
        let ProcessName { process_id } = read(body).await?;
        self.find(&process_id)
    }

    async fn exec(&self, request: Exec) -> Answer {
        let _slot = self.execs.try_acquire().map_err(|_| {
            let message = format!("{MAX_EXECS} commands of this session are being waited for already");
            Refusal::new(ErrorCode::LimitReached, message)
        })?;
        let name = format!("exec-{}", self.executed.fetch_add(1, Ordering::Relaxed));
        exec::exec(&name, &request, &self.environment(), &self.leftovers).await
    }

    fn spawn(&self, request: Spawn) -> Answer {
        let Spawn { process_id, program, terminal, timeout_ms } = request;
        let is_valid = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        if !(1..=MAX_NAME).contains(&process_id.len()) || !process_id.bytes().all(is_valid) {
            return Err(Refusal::new(ErrorCode::BadRequest, "a process is named by 1 to 40 characters of 0-9a-z"));
        }
        self.check_room(&process_id)?;
        let input = terminal.map_or(Input::Pipe, Input::Terminal);
        let launched = launch(&process_id, &program, input, &self.environment())?;
        let spawned = Spawned { pid: launched.pid.as_raw_nonzero().get(), started_at_ms: now_ms() };
        let timeout = timeout_ms.map(Duration::from_millis);
        self.add(Running::new(process_id, launched, &self.leftovers, timeout));
        ok(&spawned)
    }

    async fn write(&self, request: Stdin) -> Answer {
        let running = self.find(&request.process_id)?;
        let data = STANDARD.decode(request.data_b64).map_err(|error| Refusal::new(ErrorCode::BadRequest, error))?;
        let written = running.write(&data, request.is_last).await?;
        ok(&Written { written_bytes: written as u64 })
    }

    /// Returns the environment of programs: the agent's own without its private variables, and the display.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let private = |name: &str| name.starts_with("LISTEN_") || name.starts_with("CASEMENT_") || name == "DISPLAY";
        let mut all: Vec<_> = std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(private)).collect();
        if let Some(display) = self.browser.running().as_ref().and_then(|running| running.display.as_ref()) {
            all.push(("DISPLAY".into(), display.name().into()));
        }
        all
    }
}

/// Returns the exit code that a shell would report: that of the program, or 128 plus the number of the signal.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(-1)
}
