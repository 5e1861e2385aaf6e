//! The browser's keeper: brings it up, watches it, starts it anew when asked, and answers how it ended.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::browser::{Browser, MARKED, OpenTabs};
use crate::cdp::CdpError;
use crate::chromium::{Chromium, StartError, gone};
use crate::display::{Display, DisplayError};
use crate::flags::{self, Plan};
use crate::process::tree::is_stopped;
use crate::reply::Refusal;
use crate::restart::{RestartKind, RestartWaiter};
use crate::state::{AgentState, Live};
use crate::telemetry::Phase;
use crate::{downloads, forward};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::{
    AgentConfig, ErrorCode, ExitReason, FailureCode, MAX_SIDE, PROTOCOL_VERSION, State, Status, Viewport,
};

/// How often the memory is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_secs(2);
/// How long a browser may take to close itself: when the session ends, and when its profile is needed again.
const CLOSING: Duration = Duration::from_secs(2);
const CLOSING_WHOLE: Duration = Duration::from_secs(15);
/// After so long what pages put into `localStorage` is written. Chromium does not wait for the process that writes it when it closes.
const STORAGE_SETTLES: Duration = Duration::from_millis(1200);
/// How long an extension that Chromium takes may be missing among those it tells of, and how often it is asked.
const TAKEN: Duration = Duration::from_secs(3);
const RETRY_BACKOFF: Duration = Duration::from_millis(50);

/// How often the browser is asked whether it is there, and how long it may take for the answer before it counts as hung.
const ASK: Duration = Duration::from_secs(15);
const HUNG: Duration = Duration::from_secs(60);
/// For how long Chromium may be stopped: whoever debugs it may stop it, and a page it shows may not stand still for ever.
const MAX_STOPPED: Duration = Duration::from_secs(45);
const STOPPED_INTERVAL: Duration = Duration::from_secs(1);

/// A browser ends with its display: how long the display may take to be seen gone after it.
const WITH_IT: Duration = Duration::from_millis(500);

/// How it ended, and why in words for people.
type End = (State, String);
/// Where somebody waits for an answer.
type Waiting = oneshot::Sender<Result<Status, Refusal>>;

/// What runs. Dropping it kills it.
struct Up {
    chromium: Chromium,
    display: Option<Arc<Display>>,
}

/// Keeps the browser until it is gone or the agent is told to end.
pub(crate) async fn keep(core: &Arc<AgentState>) -> End {
    tokio::select! {
        end = buffered(core) => end,
        // What runs ends with the keeping of it.
        () = memory_exceeded(core.config.memory_limit_bytes) => {
            core.telemetry.memory_was_full();
            (State::Exited { reason: ExitReason::Oom }, "the memory limit of the session was exceeded".to_owned())
        }
    }
}

async fn buffered(core: &Arc<AgentState>) -> End {
    let mut requested = core.restarts.requested();
    let mut waiting = None;
    let begun = async {
        let display = prepare(core).await?;
        let mut requested_state = RestartRequest::default();
        if core.config.held {
            (requested_state, waiting) = first_requested_state(&mut requested).await;
        }
        begin(core, display, &requested_state).await
    };
    let begun = tokio::select! {
        begun = begun => begun,
        () = core.stop.notified() => return stopped(),
    };
    let mut up = match begun {
        Ok(up) => up,
        Err(error) => {
            answer(waiting, Err(refusal(&error)));
            return (State::Failed { code: error.code, message: error.message.clone() }, error.message);
        }
    };
    answer(waiting, Ok(core.status().borrow().clone()));
    loop {
        let (pid, group) = (up.chromium.pid(), up.chromium.group());
        tokio::select! {
            status = up.chromium.wait() => {
                // Whoever hears of the end may take the profile: nothing writes to it any more then.
                gone(group).await;
                let mut display_gone = false;
                if let Some(display) = &up.display
                    && let Some(pid) = display.gone(WITH_IT).await
                {
                    display_gone = true;
                    core.telemetry.program_ended("xvfb", Phase::Running, Some(pid));
                }
                if !display_gone && status.as_ref().is_ok_and(ExitStatus::success) {
                    return (State::Exited { reason: ExitReason::Closed }, "Chromium was closed from inside".to_owned());
                }
                core.telemetry.program_ended("chromium", Phase::Running, pid);
                return exited(status, &up.chromium);
            }
            detail = hangs(core, pid) => {
                up.chromium.kill_whole().await;
                core.telemetry.program_ended("chromium", Phase::Running, pid);
                return (State::Exited { reason: ExitReason::Hung }, detail);
            }
            () = core.stop.notified() => {
                close(core, &mut up.chromium, CLOSING).await;
                return stopped();
            }
            Some(RestartWaiter { requested_state, answer: waiting }) = requested.recv() => {
                if let Some(end) = grant(core, &mut up, (requested_state, waiting), &mut requested).await {
                    return end;
                }
            }
        }
    }
}

/// Returns when the browser hangs, and in which way.
async fn hangs(core: &AgentState, pid: Option<u32>) -> String {
    tokio::select! {
        () = silent(core) => format!("Chromium did not answer for {} s", HUNG.as_secs()),
        () = stood_still(pid) => format!("Chromium was stopped and did not go on for {} s", MAX_STOPPED.as_secs()),
    }
}

/// Returns when the browser has not answered for too long. Whatever its pages do, it answers by itself.
async fn silent(core: &AgentState) {
    loop {
        tokio::time::sleep(ASK).await;
        let Some(live) = core.ready() else { continue };
        if live.browser.is_silent(HUNG).await {
            return;
        }
        if let Err(error) = live.browser.close_beyond_bound().await {
            tracing::debug!(%error, "the pages could not be counted");
        }
    }
}

/// Returns when the process has been stopped all the time for longer than it may be.
async fn stood_still(pid: Option<u32>) {
    let Some(pid) = pid else { return std::future::pending().await };
    let mut since = None;
    loop {
        tokio::time::sleep(STOPPED_INTERVAL).await;
        match is_stopped(pid) {
            true if since.get_or_insert_with(Instant::now).elapsed() >= MAX_STOPPED => return,
            true => {}
            false => since = None,
        }
    }
}

/// Does what somebody asked for. Answers how it ended, if it did.
async fn grant(
    core: &AgentState,
    up: &mut Up,
    (requested_state, waiting): (RestartKind, Waiting),
    requested: &mut mpsc::Receiver<RestartWaiter>,
) -> Option<End> {
    let RestartKind::Anew(requested_state) = requested_state else {
        close_for_good(core, up, waiting, requested).await;
        return Some(stopped());
    };
    let restarted = tokio::select! {
        restarted = restart(core, up, &requested_state) => restarted,
        () = core.stop.notified() => return Some(stopped()),
    };
    match restarted {
        Ok(()) => answer(Some(waiting), Ok(core.status().borrow().clone())),
        Err(error) if error.code == FailureCode::Extension => answer(Some(waiting), Err(refusal(&error))),
        Err(error) => {
            answer(Some(waiting), Err(refusal(&error)));
            core.telemetry.program_ended("chromium", Phase::Startup, None);
            core.telemetry.not_coming_back();
            let detail = format!("Chromium could not be started anew: {}", error.message);
            return Some((State::Exited { reason: ExitReason::Crashed }, detail));
        }
    }
    None
}

fn stopped() -> End {
    (State::Exited { reason: ExitReason::Shutdown }, "asked to end".to_owned())
}

fn exited(status: io::Result<ExitStatus>, chromium: &Chromium) -> End {
    let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
    let detail = format!("Chromium ended: {how}; {}", chromium.complaints());
    (State::Exited { reason: ExitReason::Crashed }, detail)
}

fn answer(waiting: Option<Waiting>, given: Result<Status, Refusal>) {
    if let Some(waiting) = waiting {
        // Whoever asked may have gone; then the events tell.
        drop(waiting.send(given));
    }
}

fn refusal(error: &StartError) -> Refusal {
    let code = match error.code {
        FailureCode::Extension => ErrorCode::NotAllowed,
        FailureCode::PageUnresponsive | FailureCode::DebuggingPort => ErrorCode::BrowserHung,
        _ => ErrorCode::Failed,
    };
    Refusal::new(code, &error.message)
}

/// The first wish of whoever holds back the start.
async fn first_requested_state(requested: &mut mpsc::Receiver<RestartWaiter>) -> (RestartRequest, Option<Waiting>) {
    loop {
        match requested.recv().await {
            Some(RestartWaiter { requested_state: RestartKind::Anew(requested_state), answer }) => {
                return (requested_state, Some(answer));
            }
            Some(RestartWaiter { requested_state: RestartKind::Close, answer: waiting }) => {
                answer(Some(waiting), Err(Refusal::new(ErrorCode::NotReady, "the browser is not started")));
            }
            None => std::future::pending().await,
        }
    }
}

/// Closes the browser, says so, and waits to be told to end.
async fn close_for_good(
    core: &AgentState,
    up: &mut Up,
    waiting: Waiting,
    requested: &mut mpsc::Receiver<RestartWaiter>,
) {
    let closing = async {
        core.update(|status| status.state = State::Starting);
        close_whole(core, &mut up.chromium).await;
        core.replace(None);
        core.chromedriver.end().await;
        core.update(|status| status.state = State::Closed);
        answer(Some(waiting), Ok(core.status().borrow().clone()));
        while let Some(RestartWaiter { requested_state, answer: waiting }) = requested.recv().await {
            answer(
                Some(waiting),
                match requested_state {
                    RestartKind::Close => Ok(core.status().borrow().clone()),
                    RestartKind::Anew(_) => Err(Refusal::new(ErrorCode::NotReady, "the browser is closed")),
                },
            );
        }
    };
    tokio::select! {
        () = closing => {}
        () = core.stop.notified() => {}
    }
}

/// What comes before the first start: the way out and the display.
async fn prepare(core: &AgentState) -> Result<Option<Arc<Display>>, StartError> {
    let config = &core.config;
    check(config)?;
    let forwarder = forward::bind(config.forwarder_port)
        .await
        .map_err(|e| StartError::new(FailureCode::Other, format_args!("the forwarder's port: {e}")))?;
    tokio::spawn(forward::serve(forwarder, config.egress_socket.clone(), Arc::clone(&core.failed_tunnels)));
    let display = if config.headless {
        None
    } else {
        let display = Display::start(&config.xvfb, config.viewport).await.map_err(display_failed)?;
        core.stage("display");
        Some(Arc::new(display))
    };
    Ok(display)
}

/// The first start.
async fn begin(
    core: &AgentState,
    display: Option<Arc<Display>>,
    requested_state: &RestartRequest,
) -> Result<Up, StartError> {
    let config = &core.config;
    take(core, requested_state).await?;
    let start = Start { viewport: config.viewport, before: None, restore: requested_state.profile };
    let up = launch(core, display, start).await?;
    if let (Some(url), Some(live)) = (&config.start_url, core.live()) {
        live.browser.open(url).await.map_err(|e| unresponsive(&e))?;
    }
    taken(core).await?;
    ready(core);
    Ok(up)
}

/// Ends the browser in good order and starts it anew with what it kept in its profile.
async fn restart(core: &AgentState, up: &mut Up, requested_state: &RestartRequest) -> Result<(), StartError> {
    let began = Instant::now();
    // What is being recorded goes on in a new part.
    let _paused = core.replays.pause().await;
    let before = match core.ready() {
        Some(live) if !requested_state.profile => live.browser.opened().await,
        _ => OpenTabs::default(),
    };
    core.update(|status| status.state = State::Starting);
    if requested_state.profile {
        // Nobody will ask for what it could still write.
        up.chromium.kill_whole().await;
    } else {
        close_whole(core, &mut up.chromium).await;
    }
    core.replace(None);
    core.chromedriver.end().await;
    take(core, requested_state).await?;
    let viewport = requested_state.viewport.unwrap_or_else(|| core.viewport());
    let mut display = up.display.take();
    if let (Some(shown), Some(size)) = (&display, requested_state.viewport) {
        match shown.resize(size).await {
            Err(DisplayError::OutOfRange(..)) => {
                shown.end().await;
                let larger = Display::start(&core.config.xvfb, size).await.map_err(display_failed)?;
                display = Some(Arc::new(larger));
            }
            other => other.map_err(display_failed)?,
        }
    }
    let start = Start { viewport, before: Some(&before), restore: true };
    *up = launch(core, display, start).await?;
    core.update(|status| status.viewport = viewport);
    let took = taken(core).await;
    // Without an extension that it does not take it is as good as before.
    if matches!(&took, Ok(()) | Err(StartError { code: FailureCode::Extension, .. })) {
        ready(core);
    }
    tracing::info!(took = ?began.elapsed(), "Chromium was started anew");
    took
}

/// Puts what was brought in, and waits for this start, in its place.
async fn take(core: &AgentState, requested_state: &RestartRequest) -> Result<(), StartError> {
    let config = &core.config;
    core.extensions.take(&config.extensions, &requested_state.extensions).map_err(not_in_place)?;
    if requested_state.profile {
        core.profiles.take(&config.profile).await.map_err(not_in_place)?;
    }
    Ok(())
}

/// How Chromium is started.
struct Start<'a> {
    viewport: Viewport,
    /// What was open in the one before; `None`: there was none.
    before: Option<&'a OpenTabs>,
    restore: bool,
}

/// Starts Chromium and has its page answer.
async fn launch(core: &AgentState, display: Option<Arc<Display>>, start: Start<'_>) -> Result<Up, StartError> {
    let config = &core.config;
    let Start { viewport, before, restore } = start;
    let extensions = core.extensions.paths(&config.extensions);
    let plan = Plan { viewport, extensions: &extensions, first_page: before.map(|_| MARKED), restore };
    let mut chromium = Chromium::spawn(config, &plan, display.as_deref().map(Display::name))?;
    core.stage("spawn");
    let path = chromium.listening().await?;
    core.stage("devtools_port");
    let (browser, version) = Browser::connect(config.debugging_port, &path, viewport, before.is_some())
        .await
        .map_err(|e| unresponsive(&e))?;
    core.stage("attach");
    let downloads = downloads::behavior(&config.profile);
    browser.cdp.report(None, "Browser.setDownloadBehavior", downloads).await.map_err(|e| unresponsive(&e))?;
    browser.first_answer(config.headless).await.map_err(|e| unresponsive(&e))?;
    browser.follow_pages(config.headless).await.map_err(|e| unresponsive(&e))?;
    if let Some(before) = before {
        browser.give_way(before).await.map_err(|e| unresponsive(&e))?;
        if config.headless
            && let Err(error) = browser.resize(viewport).await
        {
            tracing::warn!(%error, "not every restored page has its size");
        }
    }
    if let Some(display) = &display {
        // Chromium keeps a new window one pixel smaller than its display, so that no window manager takes it for full screen.
        display.resize(viewport).await.map_err(display_failed)?;
    }
    core.stage("evaluated");
    core.replace(Some(Live { browser, display: display.clone(), pid: chromium.pid() }));
    let argv = chromium.argv();
    core.update(|status| {
        status.browser_ws_path = path;
        status.browser_version = version.product;
        status.user_agent = version.user_agent;
        status.chromium_argv = argv;
    });
    Ok(Up { chromium, display })
}

fn ready(core: &AgentState) {
    core.update(|status| status.state = State::Ready);
}

/// Looks whether Chromium took every extension, and forgets those it did not.
async fn taken(core: &AgentState) -> Result<(), StartError> {
    let wanted = core.extensions.loaded().len();
    let Some(live) = core.live().filter(|_| wanted > 0) else { return Ok(()) };
    let deadline = Instant::now() + TAKEN;
    let refused = loop {
        let Some(paths) = live.browser.extensions().await.map_err(|e| unresponsive(&e))? else {
            tracing::warn!("this browser does not tell of its extensions");
            return Ok(());
        };
        let missing = core.extensions.missing(&core.config.extensions, &paths);
        if missing.is_empty() || Instant::now() >= deadline {
            break missing;
        }
        tokio::time::sleep(RETRY_BACKOFF).await;
    };
    if refused.is_empty() {
        return Ok(());
    }
    core.extensions.forget(&refused);
    let message = format!("Chromium does not take the extension {}", refused.join(", "));
    Err(StartError::new(FailureCode::Extension, message))
}

fn check(config: &AgentConfig) -> Result<(), StartError> {
    let refuse = |what: String| Err(StartError::new(FailureCode::Config, what));
    // A newer server may write for us as long as it speaks our version; an older one is understood.
    if config.version > PROTOCOL_VERSION {
        return refuse(format!("version {} is not spoken here", config.version));
    }
    let sides = [config.viewport.width, config.viewport.height];
    if sides.iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
        return refuse(format!("viewport: width and height must be between 1 and {MAX_SIDE}"));
    }
    match flags::reserved(&config.extra_chromium_args) {
        Some(flag) => refuse(format!("the switch {flag} is not allowed")),
        None => Ok(()),
    }
}

fn display_failed(error: DisplayError) -> StartError {
    StartError::new(FailureCode::Display, error)
}

fn not_in_place(error: io::Error) -> StartError {
    StartError::new(FailureCode::Other, format_args!("putting what was brought in into its place: {error}"))
}

fn unresponsive(error: &CdpError) -> StartError {
    let code = match error {
        CdpError::Connect(_) => FailureCode::DebuggingPort,
        CdpError::Closed => FailureCode::BrowserSpawn,
        CdpError::Timeout { .. } | CdpError::Refused { .. } | CdpError::Dialog(_) => FailureCode::PageUnresponsive,
    };
    StartError::new(code, error)
}

/// Closes a browser of which the profile is needed.
async fn close_whole(core: &AgentState, chromium: &mut Chromium) {
    tokio::time::sleep(STORAGE_SETTLES).await;
    close(core, chromium, CLOSING_WHOLE).await;
}

/// Lets the browser close by itself, so that its profile is whole, and kills it when it does not.
async fn close(core: &AgentState, chromium: &mut Chromium, within: Duration) {
    let requested = match core.live() {
        Some(live) => live.browser.close().await.is_ok(),
        None => false,
    };
    let group = chromium.group();
    if !requested || tokio::time::timeout(within, chromium.wait()).await.is_err() {
        chromium.kill_whole().await;
    } else {
        // Its helpers end a moment after it, and may still write until then.
        gone(group).await;
    }
}

async fn memory_exceeded(limit: Option<u64>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        tokio::time::sleep(MEMORY_INTERVAL).await;
        let over = tokio::task::spawn_blocking(move || casement_sandbox::over_limit(limit)).await;
        if matches!(over, Ok(true)) {
            return;
        }
    }
}
