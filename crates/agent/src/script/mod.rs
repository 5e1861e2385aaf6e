//! Scripts of a caller, run with the browser at hand: one at a time, in order of arrival.
//!
//! A process that runs scripts is started when the first one comes and kept ready. It takes a further script only as long as it says
//! itself that the last one left nothing in it; otherwise it is ended with all that it started, and another one made ready.

mod process;

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::{Mutex as Turnstile, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use self::process::{Process, Said, Word};
use crate::core::Core;
use crate::protocol::ErrorCode;
use crate::protocol::script::{EXECUTE, ExecuteScript, MAX_WAITING, ScriptEnd};
use crate::reply::{Answer, Refusal, ok, read_within};
use crate::telemetry::Phase;

/// Longest request: a script of 1 MiB, as long as JSON may make it.
const MAX_REQUEST: usize = 8 << 20;
/// How long a process may take to be ready.
const START: Duration = Duration::from_secs(20);
/// A process that is not ready after so long may be held up by a page that hangs.
const STUCK: Duration = Duration::from_secs(3);
/// How long a process may take to find out whether it can be used again.
const CHECK: Duration = Duration::from_secs(5);
/// How long a process that broke off may take to end.
const ENDING: Duration = Duration::from_secs(1);
/// A script that runs for longer may come to a bad end: another process is made ready meanwhile.
const LONG: Duration = Duration::from_secs(1);
/// After how long without a script the process lets go of the browser, so that Playwright answers no dialogs of others, and after how
/// long it is ended.
const REST: Duration = Duration::from_secs(5);
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
    connected: Turnstile<()>,
    quiet: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Default for Scripts {
    fn default() -> Self {
        let places = Semaphore::new(MAX_WAITING + 1);
        Self {
            places,
            turn: Semaphore::new(1),
            next: Mutex::default(),
            connected: Turnstile::default(),
            quiet: Mutex::default(),
        }
    }
}

impl Scripts {
    fn next(&self) -> MutexGuard<'_, Option<Next>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn quiet(&self) -> MutexGuard<'_, Option<AbortOnDropHandle<()>>> {
        self.quiet.lock().unwrap_or_else(PoisonError::into_inner)
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
    core: Arc<Core>,
    folder: PathBuf,
}

impl Setting {
    fn endpoint(&self) -> String {
        let path = self.core.status().borrow().browser_ws_path.clone();
        format!("ws://127.0.0.1:{}{path}", self.core.config.debugging_port)
    }

    /// A new process that is ready. It connects once no other one is.
    async fn fresh(&self) -> Result<Process, String> {
        let mut process = Process::start(&self.core.config, &self.folder).map_err(|error| error.to_string())?;
        let _alone = self.core.scripts.connected.lock().await;
        let warm = async {
            process.tell(&json!({ "is": "connect", "endpoint": self.endpoint() })).await?;
            process.hear().await
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
            Ok(Ok(Some(Said { is: Word::Ready, .. }))) => Ok(process),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(_)) => {
                let (_, complaint) = process.printed();
                Err(complaint.trim().chars().take(500).collect())
            }
            Err(_) => Err(format!("it was not ready within {} s", START.as_secs())),
        }
    }

    /// The process once it says that it can be used again, or a new one.
    async fn again(&self, mut process: Process) -> Result<Process, String> {
        match timeout(CHECK, process.hear()).await {
            Ok(Ok(Some(Said { is: Word::Ready, .. }))) => Ok(process),
            _ => {
                process.end().await;
                self.fresh().await
            }
        }
    }

    /// Frees the page from what a script that is over may have left running in it: no other one could reach the browser.
    async fn free_page(&self) {
        if let Some(live) = self.core.ready() {
            live.browser.free_stuck_page().await;
        }
    }
}

/// Answers one request.
pub(crate) async fn serve(core: &Arc<Core>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        EXECUTE => ok(&execute(core, read_within(body, MAX_REQUEST).await?).await?),
        other => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {other}"))),
    }
}

async fn execute(core: &Arc<Core>, asked: ExecuteScript) -> Result<ScriptEnd, Refusal> {
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
    let patience = asked.within_ms.map_or(Duration::MAX, Duration::from_millis);
    let time = Duration::from_millis(asked.timeout_ms);
    let Ok(Ok(_turn)) = timeout(time.min(patience), scripts.turn.acquire()).await else {
        return Ok(unsuccessful(format!("{}: the scripts before it had not ended", too_late(time.min(patience)))));
    };
    core.ready().ok_or_else(|| Refusal::new(ErrorCode::NotReady, "the browser is not ready"))?;
    scripts.quiet().take();
    let _asleep_then = AsleepThen(core);
    let setting = Setting { core: Arc::clone(core), folder };
    in_turn(&setting, &asked, arrived, time, patience).await
}

/// However a script ends, also by its caller's going away: what is ready for the next one does not stay awake.
struct AsleepThen<'a>(&'a Arc<Core>);

impl Drop for AsleepThen<'_> {
    fn drop(&mut self) {
        let asleep = tokio::spawn(fall_asleep(Arc::clone(self.0)));
        *self.0.scripts.quiet() = Some(AbortOnDropHandle::new(asleep));
    }
}

/// Runs the script and sees to the process for the next one.
async fn in_turn(
    setting: &Setting,
    asked: &ExecuteScript,
    arrived: Instant,
    time: Duration,
    patience: Duration,
) -> Result<ScriptEnd, Refusal> {
    let process = ready(setting).await?;
    let _alone = setting.core.scripts.connected.lock().await;
    let limit = time.min(patience.saturating_sub(arrived.elapsed()));
    let named = if limit < time { patience } else { time };
    let mut run = Run { setting, process, stained: false };
    let abandoned = Abandoned(Some(setting));
    let outcome = run.whole(&asked.code, limit).await;
    let (stdout, stderr) = run.process.printed();
    let Run { mut process, stained, .. } = run;
    let (success, result, error) = match outcome {
        Outcome::Said(said) if said.is == Word::Done => {
            if !stained && setting.core.scripts.next().is_none() {
                let setting = setting.clone();
                let again = tokio::spawn({
                    let setting = setting.clone();
                    async move { setting.again(process).await }
                });
                *setting.core.scripts.next() = Some(AbortOnDropHandle::new(again));
            } else {
                process.end().await;
                setting.core.scripts.prepare(setting);
            }
            (said.success, said.result, said.error)
        }
        Outcome::Said(said) => {
            process.end().await;
            setting.free_page().await;
            abandoned.not();
            let why = said.error.unwrap_or_default();
            let message: String = why.lines().next().unwrap_or_default().chars().take(300).collect();
            return Err(Refusal::new(ErrorCode::BrowserHung, message));
        }
        Outcome::Ended => {
            let pid = process.pid();
            let status = process.wait(ENDING).await;
            process.end().await;
            if crashed(status, &stderr) {
                setting.core.telemetry.program_ended("script-runner", Phase::Running, pid);
            }
            setting.core.scripts.prepare(setting);
            (false, None, Some(how_it_ended(status, &stderr)))
        }
        Outcome::Late => {
            process.end().await;
            setting.free_page().await;
            setting.core.scripts.prepare(setting);
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

struct Run<'a> {
    setting: &'a Setting,
    process: Process,
    /// The process is of no further use.
    stained: bool,
}

enum Outcome {
    Said(Said),
    /// The process ended before the script did.
    Ended,
    Late,
}

impl Run<'_> {
    async fn whole(&mut self, code: &str, limit: Duration) -> Outcome {
        let (began, prepare) = (Instant::now(), LONG.min(limit / 4));
        let deadline = began + limit;
        let words = json!({ "is": "run", "code": code, "endpoint": self.setting.endpoint() });
        if !matches!(timeout_at(deadline, self.process.tell(&words)).await, Ok(Ok(()))) {
            return Outcome::Ended;
        }
        let mut prepared = false;
        loop {
            tokio::select! {
                said = self.process.hear() => match said {
                    Ok(Some(Said { is: Word::Stained, .. })) => {
                        self.stained = true;
                        prepared = true;
                        self.setting.core.scripts.prepare(self.setting);
                    }
                    Ok(Some(said @ Said { is: Word::Done | Word::Failed, .. })) => return Outcome::Said(said),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return Outcome::Ended,
                },
                () = sleep_until(began + prepare), if !prepared => {
                    prepared = true;
                    self.setting.core.scripts.prepare(self.setting);
                }
                () = sleep_until(deadline) => return Outcome::Late,
            }
        }
    }
}

/// Lets go of the browser after a while without a script, and of the process after a longer one.
async fn fall_asleep(core: Arc<Core>) {
    tokio::time::sleep(REST).await;
    if let Ok(_turn) = core.scripts.turn.try_acquire() {
        let prepared = core.scripts.next().take();
        if let Some(prepared) = prepared
            && let Ok(Ok(mut process)) = prepared.await
            && process.tell(&json!({ "is": "rest" })).await.is_ok()
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
