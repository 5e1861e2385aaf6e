//! The life of the agent: sockets, browser, end.

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::state::AgentState;
use crate::{dial, keeper, priority, serve};
use casement_agent_protocol::{AgentConfig, ExitReason, State};

/// How long those who listen have to read how it ended: the end of a browser that was up, and of one that never came up.
const LINGER_EXITED: Duration = Duration::from_secs(2);
const LINGER_FAILED: Duration = Duration::from_secs(10);
/// How long whoever wants the profile or the films of a browser that ended by itself has to begin to read them.
const LINGER_READ: Duration = Duration::from_secs(30);
/// How long a server that has begun this sandbox has to speak to it for the first time: one that ended meanwhile never does.
const TAKE_OVER: Duration = Duration::from_secs(45);

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

/// Whoever started the server may have had signals ignored, as `nohup` and a shell's `&` do, and that is passed on to all that is started:
/// no key of a terminal would end a program here. What is handled is a program's own again in whatever is started from now on.
fn undo_ignored_signals() -> io::Result<()> {
    for one in
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::USR1, Signal::USR2]
    {
        drop(signal(SignalKind::from_raw(one.as_raw()))?);
    }
    Ok(())
}

async fn life(
    config: AgentConfig,
    agent: StdUnixListener,
    dial: StdUnixListener,
    began: Instant,
) -> Result<ExitCode, AgentError> {
    let (agent, dial) = (UnixListener::from_std(agent)?, UnixListener::from_std(dial)?);
    let mut terminate = signal(SignalKind::terminate())?;
    undo_ignored_signals()?;
    priority::step_back();
    let core = Arc::new(AgentState::new(config, began));
    tokio::spawn(serve::serve(agent, Arc::clone(&core)));
    let dialler = tokio::spawn(dial::serve(dial, Arc::clone(&core)));
    let keeper = {
        let core = Arc::clone(&core);
        async move { keeper::keep(&core).await }
    };
    let watched = async {
        tokio::select! {
            _ = terminate.recv() => core.stop.notify_one(),
            () = never_taken_over(&core) => {
                tracing::warn!("no server has taken the sandbox over");
                core.end(State::Exited { reason: ExitReason::Idle }, "no server spoke".to_owned());
                core.stop.notify_one();
            }
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
async fn conclude(core: &AgentState, state: State, detail: String) -> ExitCode {
    // The idle end has been said already, and a browser closed for it is no news.
    let known = matches!(core.status().borrow().state, State::Exited { .. });
    if !known {
        tracing::info!(?state, detail, "the browser is gone");
        core.telemetry.drain().await;
        core.end(state.clone(), detail);
    }
    let by_itself = matches!(
        state,
        State::Exited { reason: ExitReason::Crashed | ExitReason::Oom | ExitReason::Closed | ExitReason::Hung }
    );
    if by_itself && (core.config.keeps_profile || core.profiles.was_loaded() || core.replays.are_buffered()) {
        core.replays.stop_all();
        tokio::select! {
            () = unread(core) => {}
            () = core.stop.notified() => {}
        }
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

/// Returns when nobody has read the profile or a film for a while, and no film is being made.
async fn unread(core: &AgentState) {
    let mut deadline = Instant::now() + LINGER_READ;
    while Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if core.profiles.is_read() || core.replays.are_busy() {
            deadline = Instant::now() + LINGER_READ;
        }
    }
}

/// Returns if no server speaks within the time that it has for that.
async fn never_taken_over(core: &AgentState) {
    tokio::time::sleep(TAKE_OVER).await;
    if core.is_taken_over() {
        std::future::pending().await
    }
}

/// Returns when no server has spoken for the time that is in force.
async fn forsaken(core: &AgentState) {
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
