//! The life of the agent: sockets, browser, end.

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::browser::Browser;
use crate::cdp::CdpError;
use crate::chromedriver::Chromedriver;
use crate::chromium::{Chromium, StartError};
use crate::core::{Core, Live};
use crate::dial::{self, Ports};
use crate::display::Display;
use crate::protocol::{AgentConfig, ExitReason, FailureCode, MAX_SIDE, PROTOCOL_VERSION, State};
use crate::{flags, forward, memory, serve};

/// How often the memory is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_secs(2);
/// How long a browser may take to close itself when asked.
const CLOSING: Duration = Duration::from_secs(2);
/// How long those who listen have to read how it ended: the end of a browser that was up, and of one that never came up.
const LINGER_EXITED: Duration = Duration::from_secs(2);
const LINGER_FAILED: Duration = Duration::from_secs(10);

/// Why the agent could not even begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The sockets it serves were not handed to it.
    #[error("the agent needs its two listening sockets as descriptors 3 and 4, and LISTEN_FDS=2: {0}")]
    Sockets(#[source] io::Error),
    /// The configuration is missing or not readable.
    #[error("reading {path}: {source}")]
    Config {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused something basic.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Runs the agent with the configuration at `config` until its browser is gone or it is told to end.
///
/// The two listening unix sockets are inherited as descriptors 3 (`agent`) and 4 (`dial`), announced by `LISTEN_FDS=2` in the
/// environment. Builds its own single-threaded runtime, so it must not be called from within another.
pub fn run(config: &Path) -> ExitCode {
    let began = Instant::now();
    match begin(config, began) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the agent could not begin");
            ExitCode::FAILURE
        }
    }
}

fn begin(path: &Path, began: Instant) -> Result<ExitCode, AgentError> {
    casement_sandbox::leave_session_keyring()?;
    // Before anything can open a descriptor of its own.
    let (agent, dial) = inherited().map_err(AgentError::Sockets)?;
    let unreadable = |source| AgentError::Config { path: path.display().to_string(), source };
    let text = std::fs::read(path).map_err(unreadable)?;
    let config: AgentConfig = serde_json::from_slice(&text).map_err(|e| unreadable(e.into()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
    let code = runtime.block_on(life(config, agent, dial, began))?;
    // A blocked capture must not hold up the end.
    runtime.shutdown_background();
    Ok(code)
}

/// Takes the listening sockets. They are marked to be closed in every program started from here.
fn inherited() -> io::Result<(StdUnixListener, StdUnixListener)> {
    let mut inherited = listenfd::ListenFd::from_env();
    let mut take = |index: usize| {
        inherited.take_unix_listener(index)?.ok_or_else(|| io::Error::other(format!("socket {index} is missing")))
    };
    let sockets = (take(0)?, take(1)?);
    sockets.0.set_nonblocking(true)?;
    sockets.1.set_nonblocking(true)?;
    Ok(sockets)
}

async fn life(
    config: AgentConfig,
    agent: StdUnixListener,
    dial: StdUnixListener,
    began: Instant,
) -> Result<ExitCode, AgentError> {
    let (agent, dial) = (UnixListener::from_std(agent)?, UnixListener::from_std(dial)?);
    let mut terminate = signal(SignalKind::terminate())?;
    let core = Arc::new(Core::new(config, began));
    let chromedriver = Chromedriver::new(core.config.chromedriver.clone(), core.config.chromedriver_port);
    let ports = Ports { debugging: core.config.debugging_port, chromedriver };
    tokio::spawn(serve::serve(agent, Arc::clone(&core)));
    let dialler = tokio::spawn(dial::serve(dial, Arc::new(ports)));
    let keeper = {
        let core = Arc::clone(&core);
        async move { keep(&core).await }
    };
    let watched = async {
        tokio::select! {
            _ = terminate.recv() => core.stop.notify_one(),
            () = forsaken(&core) => {
                tracing::warn!("no server spoke for the configured time");
                core.end(State::Exited { reason: ExitReason::Idle }, "no server spoke".to_owned());
                core.stop.notify_one();
            }
        }
        std::future::pending::<()>().await;
    };
    let (state, detail) = tokio::select! {
        ended = keeper => ended,
        () = watched => (State::Exited { reason: ExitReason::Shutdown }, String::new()),
    };
    dialler.abort();
    let code = conclude(&core, state, detail).await;
    Ok(code)
}

/// Tells how it ended and gives those who listen the time to read it.
async fn conclude(core: &Core, state: State, detail: String) -> ExitCode {
    // The idle end has been said already, and a browser closed for it is no news.
    let known = matches!(core.status().borrow().state, State::Exited { .. });
    if !known {
        tracing::info!(?state, detail, "the browser is gone");
        core.end(state.clone(), detail);
    }
    let linger = if matches!(state, State::Failed { .. }) { LINGER_FAILED } else { LINGER_EXITED };
    let deadline = Instant::now() + linger;
    while Instant::now() < deadline && !core.everybody_knows() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The last line is handed over, not yet written.
    tokio::time::sleep(Duration::from_millis(50)).await;
    match state {
        State::Exited { reason: ExitReason::Shutdown | ExitReason::Idle } => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Returns when no server has spoken for the time that is in force.
async fn forsaken(core: &Core) {
    let mut limits = core.idle_end();
    loop {
        let limit = match *limits.borrow_and_update() {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        };
        let left = match (limit, core.idle()) {
            (Some(limit), Some(idle)) if idle >= limit => return,
            (Some(limit), idle) => limit - idle.unwrap_or_default(),
            (None, _) => Duration::MAX,
        };
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            Ok(()) = limits.changed() => {}
        }
    }
}

/// Brings the browser up, watches it, and answers how it ended.
async fn keep(core: &Arc<Core>) -> (State, String) {
    let stopped = || (State::Exited { reason: ExitReason::Shutdown }, "asked to end".to_owned());
    let mut chromium = tokio::select! {
        started = start(core) => match started {
            Ok(chromium) => chromium,
            Err(error) => {
                let message = error.message;
                return (State::Failed { code: error.code, message: message.clone() }, message);
            }
        },
        () = core.stop.notified() => return stopped(),
    };
    let exited = |status: io::Result<std::process::ExitStatus>, complaints: String| {
        let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        (State::Exited { reason: ExitReason::Crashed }, format!("Chromium ended: {how}; {complaints}"))
    };
    tokio::select! {
        status = chromium.wait() => exited(status, chromium.complaints()),
        () = memory_exceeded(core.config.memory_limit_bytes) => {
            chromium.kill();
            drop(chromium.wait().await);
            (State::Exited { reason: ExitReason::Oom }, "the memory limit of the session was exceeded".to_owned())
        }
        () = core.stop.notified() => {
            close(core, &mut chromium).await;
            stopped()
        }
    }
}

async fn start(core: &Core) -> Result<Chromium, StartError> {
    let config = &core.config;
    check(config)?;
    let forwarder = forward::bind(config.forwarder_port)
        .await
        .map_err(|e| StartError::new(FailureCode::Other, format_args!("the forwarder's port: {e}")))?;
    tokio::spawn(forward::serve(forwarder, config.egress_socket.clone()));
    let display = if config.headless {
        None
    } else {
        let display = Display::start(&config.xvfb, config.viewport).await;
        let display = display.map_err(|e| StartError::new(FailureCode::Display, e))?;
        core.stage("display");
        Some(display)
    };
    let mut chromium = Chromium::spawn(config, display.as_ref().map(Display::name))?;
    core.stage("spawn");
    let path = chromium.listening().await?;
    core.stage("devtools_port");
    let (browser, version) =
        Browser::connect(config.debugging_port, &path, config.viewport).await.map_err(|e| unresponsive(&e))?;
    core.stage("attach");
    browser.first_answer(config.headless).await.map_err(|e| unresponsive(&e))?;
    if let Some(display) = &display {
        // Chromium keeps a new window one pixel smaller than its display, so that no window manager takes it for full screen.
        display.resize(config.viewport).await.map_err(|e| StartError::new(FailureCode::Display, e))?;
    }
    core.stage("evaluated");
    if let Some(url) = &config.start_url {
        browser.open(url).await.map_err(|e| unresponsive(&e))?;
    }
    drop(core.live.set(Live { browser, display }));
    let argv = chromium.argv();
    core.update(|status| {
        status.state = State::Ready;
        status.browser_ws_path = path;
        status.browser_version = version.product;
        status.user_agent = version.user_agent;
        status.chromium_argv = argv;
    });
    Ok(chromium)
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

fn unresponsive(error: &CdpError) -> StartError {
    let code = match error {
        CdpError::Connect(_) => FailureCode::DebuggingPort,
        CdpError::Closed => FailureCode::BrowserSpawn,
        CdpError::Timeout { .. } | CdpError::Refused { .. } => FailureCode::PageUnresponsive,
    };
    StartError::new(code, error)
}

/// Lets the browser close by itself, so that its profile is whole, and kills it when it does not.
async fn close(core: &Core, chromium: &mut Chromium) {
    let asked = match core.live.get() {
        Some(live) => live.browser.close().await.is_ok(),
        None => false,
    };
    if !asked || tokio::time::timeout(CLOSING, chromium.wait()).await.is_err() {
        chromium.kill();
        drop(chromium.wait().await);
    }
}

async fn memory_exceeded(limit: Option<u64>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        tokio::time::sleep(MEMORY_INTERVAL).await;
        let over = tokio::task::spawn_blocking(move || memory::over_limit(limit)).await;
        if matches!(over, Ok(true)) {
            return;
        }
    }
}
