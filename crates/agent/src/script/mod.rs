//! Scripts of a caller, run with the browser at hand: one at a time, in order of arrival.
//!
//! Each script has a process of its own, which is ended with all that it started behind the script's answer. The process for the next one
//! loads while a script runs, and connects to the browser once that script's process is gone.

mod process;

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::sync::{Mutex as Turnstile, OwnedMutexGuard, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use self::process::{Process, RunnerMessage, SNAPSHOT, Word};
use crate::reply::{Answer, Refusal, ok, read_within};
use crate::state::AgentState;
use crate::telemetry::Phase;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::script::{EXECUTE, ExecuteScript, MAX_WAITING, ScriptEnd};

/// Longest request: a script of 1 MiB, as long as JSON may make it.
const MAX_REQUEST: usize = 8 << 20;
/// How long a process may take to be ready.
const START: Duration = Duration::from_secs(20);
/// A process that is not ready after so long may be held up by a page that hangs.
const STUCK: Duration = Duration::from_secs(3);
/// How long a process that broke off may take to end.
const ENDING: Duration = Duration::from_secs(1);
/// After how long without a script the process lets go of the browser, so that Playwright answers no dialogs of others, and after how
/// long it is ended.
const BACKOFF: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(300);

type Next = AbortOnDropHandle<Result<Process, String>>;

/// All about scripts in one session.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// The one that runs and those that wait.
    places: Semaphore,
    /// Taken in order of arrival.
    turn: Semaphore,
    /// The process for the next script, on its way.
    next: Mutex<Option<Next>>,
    /// Held by the one process that Playwright connects to the browser. Where two of them attach to the same frames, each sometimes
    /// takes the other's for gone and leaves it waiting for ever.
    connected: Arc<Turnstile<()>>,
    /// The snapshot was made for another machine: processes start without it.
    snapshot_unusable: AtomicBool,
    quiet: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Default for Scripts {
    fn default() -> Self {
        let places = Semaphore::new(MAX_WAITING + 1);
        Self {
            places,
            turn: Semaphore::new(1),
            next: Mutex::default(),
            connected: Arc::default(),
            snapshot_unusable: AtomicBool::new(false),
            quiet: Mutex::default(),
        }
    }
}

impl Scripts {
    fn next(&self) -> MutexGuard<'_, Option<Next>> {
        self.next.lock()
    }

    fn quiet(&self) -> MutexGuard<'_, Option<AbortOnDropHandle<()>>> {
        self.quiet.lock()
    }

    /// Makes a process ready, unless one is on its way.
    fn prepare(&self, setting: &Setting) {
        self.next().get_or_insert_with(|| {
            let setting = setting.clone();
            AbortOnDropHandle::new(tokio::spawn(async move { setting.fresh().await }))
        });
    }
}

/// What every process is told.
#[derive(Clone)]
struct Setting {
    core: Arc<AgentState>,
    folder: PathBuf,
}

impl Setting {
    fn endpoint(&self) -> String {
        let path = self.core.status().borrow().browser_ws_path.clone();
        format!("ws://127.0.0.1:{}{path}", self.core.config.debugging_port)
    }

    /// A new process that is ready. It connects once no other one is.
    async fn fresh(&self) -> Result<Process, String> {
        let unusable = &self.core.scripts.snapshot_unusable;
        if !unusable.load(Ordering::Relaxed) && self.folder.join(SNAPSHOT).is_file() {
            match self.started(true).await {
                Err(NotReady::Ended(complaint)) => {
                    tracing::warn!(complaint, "the script runner does not start from its snapshot");
                    unusable.store(true, Ordering::Relaxed);
                }
                ready => return ready.map_err(|error| error.to_string()),
            }
        }
        self.started(false).await.map_err(|error| error.to_string())
    }

    async fn started(&self, from_snapshot: bool) -> Result<Process, NotReady> {
        let mut process = Process::start(&self.core.config, &self.folder, from_snapshot)?;
        let _alone = self.core.scripts.connected.lock().await;
        let warm = async {
            process.report(&json!({ "is": "connect", "endpoint": self.endpoint() })).await?;
            process.subscribe().await
        };
        let freed = async {
            sleep(STUCK).await;
            self.free_page().await;
            std::future::pending::<()>().await;
        };
        let warm = async {
            tokio::select! {
                warm = warm => warm,
                () = freed => unreachable!("it waits for ever"),
            }
        };
        match timeout(START, warm).await {
            Ok(Ok(Some(RunnerMessage { is: Word::Ready, .. }))) => Ok(process),
            Ok(_) => {
                let (_, complaint) = process.printed();
                Err(NotReady::Ended(complaint.trim().chars().take(500).collect()))
            }
            Err(_) => Err(NotReady::Late),
        }
    }

    /// Frees the page from what a script that is over may have left running in it: no other one could reach the browser.
    async fn free_page(&self) {
        if let Some(live) = self.core.ready() {
            live.browser.free_stuck_page().await;
        }
    }
}

/// Why a process takes no script.
#[derive(Debug, thiserror::Error)]
enum NotReady {
    #[error("{0}")]
    Start(#[from] std::io::Error),
    /// It ended, and what it printed.
    #[error("{0}")]
    Ended(String),
    #[error("it was not ready within {} s", START.as_secs())]
    Late,
}

/// Answers one request.
pub(crate) async fn serve(core: &Arc<AgentState>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        EXECUTE => ok(&execute(core, read_within(body, MAX_REQUEST).await?).await?),
        other => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {other}"))),
    }
}

async fn execute(core: &Arc<AgentState>, requested: ExecuteScript) -> Result<ScriptEnd, Refusal> {
    let Some(folder) = core.config.script_runner.clone() else {
        let message = "this installation has no script runner: `cargo xtask up` installs one, and `casement serve --script-runner` \
                       says where it is";
        return Err(Refusal::new(ErrorCode::NotSupported, message));
    };
    let scripts = &core.scripts;
    let Ok(_place) = scripts.places.try_acquire() else {
        let message = format_args!("{MAX_WAITING} scripts of this session wait already");
        return Err(Refusal::new(ErrorCode::LimitReached, message));
    };
    let arrived = Instant::now();
    let time_limit = requested.within_ms.map_or(Duration::MAX, Duration::from_millis);
    let time = Duration::from_millis(requested.timeout_ms);
    let Ok(Ok(_turn)) = timeout(time.min(time_limit), scripts.turn.acquire()).await else {
        return Ok(unsuccessful(format!("{}: the scripts before it had not ended", too_late(time.min(time_limit)))));
    };
    let live = core.usable()?;
    // Playwright gets at no page with a dialog that it did not see open.
    if let Some(dialog) = live.browser.open_dialogs().first() {
        return Err(Refusal::new(ErrorCode::InvalidState, dialog));
    }
    scripts.quiet().take();
    let _asleep_then = AsleepThen(core);
    let setting = Setting { core: Arc::clone(core), folder };
    in_turn(&setting, &requested, arrived, time, time_limit).await
}

/// However a script ends, also by its caller's going away: what is ready for the next one does not stay awake.
struct AsleepThen<'a>(&'a Arc<AgentState>);

impl Drop for AsleepThen<'_> {
    fn drop(&mut self) {
        let asleep = tokio::spawn(fall_asleep(Arc::clone(self.0)));
        *self.0.scripts.quiet() = Some(AbortOnDropHandle::new(asleep));
    }
}

/// Runs the script and sees to the process for the next one.
async fn in_turn(
    setting: &Setting,
    requested: &ExecuteScript,
    arrived: Instant,
    time: Duration,
    time_limit: Duration,
) -> Result<ScriptEnd, Refusal> {
    let process = ready(setting).await?;
    let alone = Arc::clone(&setting.core.scripts.connected).lock_owned().await;
    let mut running = Running { setting, parts: Some((process, alone)) };
    setting.core.scripts.prepare(setting);
    let limit = time.min(time_limit.saturating_sub(arrived.elapsed()));
    let named = if limit < time { time_limit } else { time };
    let abandoned = Abandoned(Some(setting));
    let outcome = running.whole(&requested.code, limit).await;
    let (stdout, stderr) = running.printed();
    let (success, result, error) = match outcome {
        // The process ends behind the answer.
        Outcome::RunnerMessage(given) if given.is == Word::Done => (given.success, given.result, given.error),
        Outcome::RunnerMessage(given) => {
            running.end().await;
            setting.free_page().await;
            abandoned.not();
            let why = given.error.unwrap_or_default();
            let message: String = why.lines().next().unwrap_or_default().chars().take(300).collect();
            return Err(Refusal::new(ErrorCode::BrowserHung, message));
        }
        Outcome::Ended => {
            let (pid, status) = running.ended().await;
            if crashed(status, &stderr) {
                setting.core.telemetry.program_ended("script-runner", Phase::Running, pid);
            }
            (false, None, Some(how_it_ended(status, &stderr)))
        }
        Outcome::Late => {
            running.end().await;
            setting.free_page().await;
            (false, None, Some(too_late(named)))
        }
    };
    abandoned.not();
    Ok(ScriptEnd { success, result, error, stdout, stderr })
}

/// The process that is on its way, or a new one.
async fn ready(setting: &Setting) -> Result<Process, Refusal> {
    let prepared = setting.core.scripts.next().take();
    if let Some(prepared) = prepared
        && let Ok(Ok(mut process)) = prepared.await
        && process.wait(Duration::ZERO).await.is_none()
    {
        // What came after the last script was ended belongs to nobody.
        process.printed();
        return Ok(process);
    }
    setting.fresh().await.map_err(|error| {
        tracing::warn!(error, "the script runner did not start");
        Refusal::new(ErrorCode::Failed, format_args!("the script runner did not start: {error}"))
    })
}

/// Frees the page and makes a process ready when the caller goes away and its script's process with it.
struct Abandoned<'a>(Option<&'a Setting>);

impl Abandoned<'_> {
    fn not(mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(setting) = self.0.cloned() {
            tokio::spawn(async move {
                setting.free_page().await;
                setting.core.scripts.prepare(&setting);
            });
        }
    }
}

enum Outcome {
    RunnerMessage(RunnerMessage),
    /// The process ended before the script did.
    Ended,
    Late,
}

/// A process and its script. Nobody else connects to the browser until the process is gone, however that comes about.
struct Running<'a> {
    setting: &'a Setting,
    parts: Option<(Process, OwnedMutexGuard<()>)>,
}

impl Running<'_> {
    async fn whole(&mut self, code: &str, limit: Duration) -> Outcome {
        let Some((process, _)) = &mut self.parts else { return Outcome::Ended };
        let deadline = Instant::now() + limit;
        let words = json!({ "is": "run", "code": code, "endpoint": self.setting.endpoint() });
        if !matches!(timeout_at(deadline, process.report(&words)).await, Ok(Ok(()))) {
            return Outcome::Ended;
        }
        loop {
            match timeout_at(deadline, process.subscribe()).await {
                Ok(Ok(Some(given @ RunnerMessage { is: Word::Done | Word::Failed, .. }))) => {
                    return Outcome::RunnerMessage(given);
                }
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None) | Err(_)) => return Outcome::Ended,
                Err(_) => return Outcome::Late,
            }
        }
    }

    /// Standard output and error.
    fn printed(&mut self) -> (String, String) {
        self.parts.as_mut().map(|(process, _)| process.printed()).unwrap_or_default()
    }

    /// The process breaks off by itself: its id and how it ended.
    async fn ended(&mut self) -> (Option<u32>, Option<ExitStatus>) {
        let Some((process, _)) = &mut self.parts else { return (None, None) };
        let pid = process.pid();
        (pid, process.wait(ENDING).await)
    }

    async fn end(&mut self) {
        if let Some((process, _alone)) = self.parts.take() {
            process.end().await;
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some((process, alone)) = self.parts.take() {
            tokio::spawn(async move {
                process.end().await;
                drop(alone);
            });
        }
    }
}

/// Lets go of the browser after a while without a script, and of the process after a longer one.
async fn fall_asleep(core: Arc<AgentState>) {
    tokio::time::sleep(BACKOFF).await;
    if let Ok(_turn) = core.scripts.turn.try_acquire() {
        let prepared = core.scripts.next().take();
        if let Some(prepared) = prepared
            && let Ok(Ok(mut process)) = prepared.await
            && process.report(&json!({ "is": "rest" })).await.is_ok()
        {
            *core.scripts.next() = Some(AbortOnDropHandle::new(tokio::spawn(async { Ok(process) })));
        }
    }
    tokio::time::sleep(IDLE).await;
    let idle = core.scripts.next().take();
    if let Some(idle) = idle
        && let Ok(Ok(process)) = idle.await
    {
        process.end().await;
    }
}

fn unsuccessful(error: String) -> ScriptEnd {
    ScriptEnd { success: false, result: None, error: Some(error), stdout: String::new(), stderr: String::new() }
}

fn too_late(limit: Duration) -> String {
    format!("timed out after {} s", limit.as_secs_f64())
}

/// Whether it did not end by its own will.
fn crashed(status: Option<ExitStatus>, stderr: &str) -> bool {
    let signalled = |status: ExitStatus| status.signal().is_some() || matches!(status.code(), Some(129..=192));
    stderr.contains("JavaScript heap out of memory") || status.is_some_and(signalled)
}

fn how_it_ended(status: Option<ExitStatus>, stderr: &str) -> String {
    if stderr.contains("JavaScript heap out of memory") {
        return "the script used more memory than it may have".to_owned();
    }
    match status.map(|status| (status.code(), status.signal())) {
        // bubblewrap and shells tell of a signal in this way.
        Some((Some(code @ 129..=192), _)) => format!("the script's process ended by signal {}", code - 128),
        Some((Some(code), _)) => format!("the script ended its process with exit code {code}"),
        Some((None, Some(signal))) => format!("the script's process ended by signal {signal}"),
        _ => "the script's process broke off".to_owned(),
    }
}
