//! Programs that a caller runs in the session: each in a session of its own, with nothing of the agent's but its environment.
//!
//! What they write never stops them and never adds up: it is read as it comes and kept up to a bound. A program that is waited for
//! ends with its caller; one that is not is kept, with its last output, for a while after its end.

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
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

use self::launch::{Input, launch};
use self::running::Running;
use crate::reply::{self, Answer, Refusal, empty, ok, read, read_within};
use crate::state::AgentState;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::process::{
    EXEC, Exec, KILL, Kill, MAX_PROCESSES, OUTPUT, ProcessName, RESIZE, Resize, SPAWN, STATUS, STDIN, Spawn, Spawned,
    Stdin, Written,
};

/// Programs waited for at once.
const MAX_EXECS: usize = 16;
/// Readers of output at once.
const MAX_READERS: usize = 64;
/// Programs that have ended and whose children are still listened to.
const MAX_LEFTOVERS: usize = 64;
/// How long a program that has ended is kept, and how many of them.
const RETENTION: Duration = Duration::from_secs(600);
const MAX_BUFFERED: usize = 64;
/// Longest request: arguments, environment, or 1 MiB of input in base64.
const MAX_REQUEST: usize = 4 << 20;
/// Longest name.
const MAX_NAME: usize = 40;

/// All programs of the session.
#[derive(Debug)]
pub(crate) struct Processes {
    buffered: Mutex<Vec<Arc<Running>>>,
    execs: Semaphore,
    executed: AtomicU64,
    readers: Arc<Semaphore>,
    leftovers: Arc<Semaphore>,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            buffered: Mutex::default(),
            execs: Semaphore::new(MAX_EXECS),
            executed: AtomicU64::new(0),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            leftovers: Arc::new(Semaphore::new(MAX_LEFTOVERS)),
        }
    }
}

impl Processes {
    /// Those kept, after the ones whose time is over were let go.
    fn buffered(&self) -> MutexGuard<'_, Vec<Arc<Running>>> {
        let mut buffered = self.buffered.lock();
        buffered.retain(|running| running.ended().is_none_or(|ended| ended.elapsed() < RETENTION));
        buffered
    }

    fn find(&self, name: &str) -> Result<Arc<Running>, Refusal> {
        let found = self.buffered().iter().find(|running| running.name == name).cloned();
        found.ok_or_else(|| Refusal::new(ErrorCode::Missing, format_args!("process {name} not found")))
    }

    /// Refused when as many run as may.
    fn room(&self, name: &str) -> Result<(), Refusal> {
        let buffered = self.buffered();
        if buffered.iter().any(|running| running.name == name) {
            return Err(Refusal::new(ErrorCode::Exists, format_args!("process {name} exists")));
        }
        if buffered.iter().filter(|running| running.ended().is_none()).count() >= MAX_PROCESSES {
            let message = format!("{MAX_PROCESSES} processes of this session run already");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        Ok(())
    }

    /// Keeps one more, and of those that have ended only the latest.
    fn keep(&self, running: Arc<Running>) {
        let mut buffered = self.buffered();
        buffered.push(running);
        let mut ended: Vec<_> = buffered.iter().filter_map(|running| running.ended()).collect();
        ended.sort_unstable();
        if let Some(oldest) = ended.len().checked_sub(MAX_BUFFERED).and_then(|over| ended.get(over)).copied() {
            buffered.retain(|running| running.ended().is_none_or(|ended| ended >= oldest));
        }
    }
}

/// What `/v1/process/…` answers.
pub(crate) async fn serve(core: &Arc<AgentState>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        EXEC => exec(core, read_within(body, MAX_REQUEST).await?).await,
        SPAWN => spawn(core, read_within(body, MAX_REQUEST).await?),
        STATUS => ok(&named(core, body).await?.status()),
        STDIN => write(core, read_within(body, MAX_REQUEST).await?).await,
        KILL => {
            let Kill { process_id, signal } = read(body).await?;
            core.processes.find(&process_id)?.signal(signal)?;
            Ok(empty())
        }
        RESIZE => {
            let Resize { process_id, size } = read(body).await?;
            core.processes.find(&process_id)?.resize(size)?;
            Ok(empty())
        }
        OUTPUT => {
            let running = named(core, body).await?;
            let place = Arc::clone(&core.processes.readers).try_acquire_owned();
            let place = place.map_err(|_| {
                Refusal::new(ErrorCode::LimitReached, "too many read the output of this session's processes")
            })?;
            Ok(reply::stream("application/x-ndjson", running.follow(place)))
        }
        path => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {path}"))),
    }
}

async fn named(core: &AgentState, body: Incoming) -> Result<Arc<Running>, Refusal> {
    let ProcessName { process_id } = read(body).await?;
    core.processes.find(&process_id)
}

async fn exec(core: &AgentState, requested: Exec) -> Answer {
    let processes = &core.processes;
    let _place = processes.execs.try_acquire().map_err(|_| {
        let message = format!("{MAX_EXECS} commands of this session are being waited for already");
        Refusal::new(ErrorCode::LimitReached, message)
    })?;
    let name = format!("exec-{}", processes.executed.fetch_add(1, Ordering::Relaxed));
    exec::exec(&name, &requested, &environment(core), &processes.leftovers).await
}

fn spawn(core: &Arc<AgentState>, requested: Spawn) -> Answer {
    let Spawn { process_id, program, terminal, timeout_ms } = requested;
    let word = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    if !(1..=MAX_NAME).contains(&process_id.len()) || !process_id.bytes().all(word) {
        return Err(Refusal::new(ErrorCode::BadRequest, "a process is named by 1 to 40 characters of 0-9a-z"));
    }
    core.processes.room(&process_id)?;
    let input = terminal.map_or(Input::Pipe, Input::Terminal);
    let launched = launch(&process_id, &program, input, &environment(core))?;
    let spawned = Spawned { pid: launched.pid.as_raw_nonzero().get(), started_at_ms: now_ms() };
    let within = timeout_ms.map(Duration::from_millis);
    core.processes.keep(Running::new(process_id, launched, &core.processes.leftovers, within));
    ok(&spawned)
}

async fn write(core: &AgentState, requested: Stdin) -> Answer {
    let running = core.processes.find(&requested.process_id)?;
    let data = STANDARD.decode(requested.data_b64).map_err(|error| Refusal::new(ErrorCode::BadRequest, error))?;
    let written = running.write(&data).await?;
    ok(&Written { written_bytes: written as u64 })
}

/// The sandbox's environment: ours without what is meant for us, and with the display.
fn environment(core: &AgentState) -> Vec<(OsString, OsString)> {
    let ours = |name: &str| name.starts_with("LISTEN_") || name.starts_with("CASEMENT_") || name == "DISPLAY";
    let mut all: Vec<_> = std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(ours)).collect();
    if let Some(display) = core.live().as_ref().and_then(|live| live.display.as_ref()) {
        all.push(("DISPLAY".into(), display.name().into()));
    }
    all
}

/// The code a shell would give: that of the program, or 128 and the signal.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(-1)
}

#[expect(clippy::disallowed_methods, reason = "a sandbox has no clock but the system's, and no test chooses it")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
