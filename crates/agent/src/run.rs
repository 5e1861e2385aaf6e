//! Runs the agent: takes over its sockets, starts the browser, and ends with it.

use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::browser_handle::BrowserHandle;
use crate::browser_state::BrowserStates;
use crate::chromedriver::Chromedriver;
use crate::computer::Computer;
use crate::curl::Curl;
use crate::egress::FailedTunnels;
use crate::event_stream::StatusReports;
use crate::extension::Extensions;
use crate::login_page::LoginPage;
use crate::process::Processes;
use crate::profile::Profiles;
use crate::replay::Replays;
use crate::restart::RestartOperation;
use crate::restart_queue::RestartQueue;
use crate::screen::ScreenOperations;
use crate::screen_capture::ScreenCapture;
use crate::script::{Repl, Runner, RunnerConfig, Scripts};
use crate::serve::{self, Operations};
use crate::server_contact::ServerContact;
use crate::status::StatusPublisher;
use crate::supervisor::{End, Supervisor};
use crate::telemetry::Telemetry;
use crate::view::Views;
use crate::webmcp::WebMcp;
use crate::{dial, priority};
use casement_agent_protocol::{AgentConfig, ExitReason, State};

/// The time for event readers to read the end event, after a browser that was ready and after one that did not start.
const EXITED_LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const FAILED_LINGER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time within which the server must read the profile or the recordings of a browser that ended by itself.
const READ_LINGER_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason why the agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The listening sockets were not inherited.
    #[error("the agent needs its two listening sockets as descriptors 3 and 4, and LISTEN_FDS=2: {0}")]
    Sockets(#[source] io::Error),
    /// The configuration is missing or invalid.
    #[error("reading {path}: {source}")]
    Config {
        /// The path of the configuration.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The kernel refused a basic operation.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Runs the agent with the configuration at `config` until the browser ends or a shutdown is requested.
///
/// Inherits the two listening unix sockets as descriptors 3 (`agent`) and 4 (`dial`), announced by `LISTEN_FDS=2` in
/// the environment. Builds its own single-threaded runtime, so it must not be called from within another.
pub fn run(config: &Path) -> ExitCode {
    let started_at = Instant::now();
    match start(config, started_at) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the agent could not start");
            ExitCode::FAILURE
        }
    }
}

fn start(path: &Path, started_at: Instant) -> Result<ExitCode, AgentError> {
    casement_sandbox::leave_session_keyring()?;
    // Before any other descriptor is opened.
    let (agent, dial) = inherited_sockets().map_err(AgentError::Sockets)?;
    let unreadable = |source| AgentError::Config { path: path.display().to_string(), source };
    let text = std::fs::read(path).map_err(unreadable)?;
    let config: AgentConfig = serde_json::from_slice(&text).map_err(|e| unreadable(e.into()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
    let code = runtime.block_on(run_until_end(config, agent, dial, started_at))?;
    // A blocked screenshot must not delay the end.
    runtime.shutdown_background();
    Ok(code)
}

/// Takes the inherited listening sockets. They are marked as close-on-exec, so that no started program inherits them.
fn inherited_sockets() -> io::Result<(StdUnixListener, StdUnixListener)> {
    let mut inherited = listenfd::ListenFd::from_env();
    let mut take = |index: usize| {
        inherited.take_unix_listener(index)?.ok_or_else(|| io::Error::other(format!("socket {index} is missing")))
    };
    let sockets = (take(0)?, take(1)?);
    sockets.0.set_nonblocking(true)?;
    sockets.1.set_nonblocking(true)?;
    Ok(sockets)
}

/// Handles the signals that the server's parent may have ignored, as `nohup` and a shell's `&` do. Every started
/// program inherits an ignored signal, so that keys of a terminal such as Ctrl-C could not end it; a handled signal is
/// reset to its default.
fn restore_ignored_signals() -> io::Result<()> {
    for one in
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::USR1, Signal::USR2]
    {
        drop(signal(SignalKind::from_raw(one.as_raw()))?);
    }
    Ok(())
}

/// The parts that detect and report the end of the agent.
struct Agent {
    status: StatusPublisher,
    contact: Arc<ServerContact>,
    shutdown: Arc<Notify>,
    profiles: Arc<Profiles>,
    replays: Arc<Replays>,
    telemetry: Arc<Telemetry>,
    /// True if the profile is saved even when the browser ends by itself.
    saves_profile: bool,
}

/// Builds all parts, each with the handles that it uses.
fn assemble(config: AgentConfig, started_at: Instant) -> (Agent, Operations, Supervisor, Arc<Chromedriver>) {
    let status = StatusPublisher::new(&config, started_at);
    let browser = BrowserHandle::new(status.clone(), config.debugging_port, config.remote.clone());
    let contact = Arc::new(ServerContact::new(config.idle_end_seconds));
    let shutdown = Arc::new(Notify::new());
    let failed_tunnels = Arc::new(FailedTunnels::default());
    let capture = ScreenCapture::default();
    let (queue, restarts) = RestartQueue::new();
    let chromedriver = Arc::new(Chromedriver::new(config.chromedriver.clone(), config.chromedriver_port));
    let telemetry = Arc::new(Telemetry::new(browser.clone(), capture.clone(), Arc::clone(&failed_tunnels)));
    let extensions = Arc::new(Extensions::new(config.extensions.clone()));
    let profiles = Arc::new(Profiles::new(config.profile.clone(), status.clone(), queue.clone()));
    let replays = Arc::new(Replays::new(browser.clone(), Arc::clone(&telemetry), config.ffmpeg.clone()));
    let runner = Arc::new(Runner::new(browser.clone(), Arc::clone(&telemetry), RunnerConfig::of(&config)));
    let agent = Agent {
        status: status.clone(),
        contact: Arc::clone(&contact),
        shutdown: Arc::clone(&shutdown),
        profiles: Arc::clone(&profiles),
        replays: Arc::clone(&replays),
        telemetry: Arc::clone(&telemetry),
        saves_profile: config.keeps_profile,
    };
    let scripts = Arc::new(Scripts::new(Arc::clone(&runner)));
    let operations = Operations {
        contact: Arc::clone(&contact),
        shutdown: Arc::clone(&shutdown),
        reports: StatusReports { status, contact: Arc::clone(&contact) },
        screen: ScreenOperations {
            browser: browser.clone(),
            capture: capture.clone(),
            replays: Arc::clone(&replays),
            contact,
        },
        restart: RestartOperation {
            queue,
            extensions: Arc::clone(&extensions),
            profiles: Arc::clone(&profiles),
            chromium: config.chromium.clone(),
        },
        states: BrowserStates::new(browser.clone()),
        computer: Arc::new(Computer::new(browser.clone(), Arc::clone(&chromedriver))),
        curl: Curl::new(browser.clone(), Arc::clone(&failed_tunnels)),
        login_page: LoginPage::new(browser.clone()),
        processes: Processes::new(browser.clone()),
        watches: Arc::default(),
        profiles: Arc::clone(&profiles),
        extensions: Arc::clone(&extensions),
        replays: Arc::clone(&replays),
        repl: Repl::new(runner),
        scripts: Arc::clone(&scripts),
        telemetry: Arc::clone(&telemetry),
        views: Views::new(browser.clone(), capture),
        webmcp: WebMcp::new(browser.clone(), scripts),
    };
    let supervisor = Supervisor {
        config,
        browser,
        restarts,
        chromedriver: Arc::clone(&chromedriver),
        extensions,
        profiles,
        replays,
        telemetry,
        failed_tunnels,
        shutdown,
    };
    (agent, operations, supervisor, chromedriver)
}

async fn run_until_end(
    config: AgentConfig,
    agent_socket: StdUnixListener,
    dial_socket: StdUnixListener,
    started_at: Instant,
) -> Result<ExitCode, AgentError> {
    let (agent_socket, dial_socket) = (UnixListener::from_std(agent_socket)?, UnixListener::from_std(dial_socket)?);
    let mut terminate = signal(SignalKind::terminate())?;
    restore_ignored_signals()?;
    priority::lower();
    let debugging_port = config.remote.is_none().then_some(config.debugging_port);
    let (agent, operations, mut supervisor, chromedriver) = assemble(config, started_at);
    tokio::spawn(serve::serve(agent_socket, operations));
    let dialler = tokio::spawn(dial::serve(dial_socket, debugging_port, chromedriver));
    let end_requested = async {
        tokio::select! {
            _ = terminate.recv() => agent.shutdown.notify_one(),
            () = agent.contact.first_request_missed() => agent.end_idle("no server has taken the sandbox over"),
            () = agent.contact.idle_timeout_expired() => agent.end_idle("no server request for the configured time"),
        }
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = supervisor.run() => end,
        () = end_requested => unreachable!("it waits for ever"),
    };
    dialler.abort();
    Ok(agent.conclude(end).await)
}

impl Agent {
    fn end_idle(&self, why: &str) {
        tracing::warn!(why, "the sandbox ends");
        self.status.end(State::Exited { reason: ExitReason::Idle }, "no server spoke".to_owned());
        self.shutdown.notify_one();
    }

    /// Reports the end, waits until it was read or the time for it is over, and returns the exit code of the agent.
    async fn conclude(&self, End { state, detail }: End) -> ExitCode {
        // An end by the idle timeout was reported before the browser was closed.
        if !matches!(self.status.state(), State::Exited { .. }) {
            tracing::info!(state = state.name(), detail, "the browser has ended");
            self.telemetry.drain().await;
            self.status.end(state.clone(), detail);
        }
        let is_unrequested = matches!(
            state,
            State::Exited { reason: ExitReason::Crashed | ExitReason::Oom | ExitReason::Closed | ExitReason::Hung }
        );
        if is_unrequested && (self.saves_profile || self.profiles.was_loaded() || !self.replays.is_empty()) {
            self.replays.stop_all();
            tokio::select! {
                () = self.reads_ended() => {}
                () = self.shutdown.notified() => {}
            }
        }
        let linger = if matches!(state, State::Failed { .. }) { FAILED_LINGER_TIMEOUT } else { EXITED_LINGER_TIMEOUT };
        let deadline = Instant::now() + linger;
        while Instant::now() < deadline && !self.contact.is_end_reported() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The last line is queued, but not written yet.
        tokio::time::sleep(Duration::from_millis(50)).await;
        match state {
            State::Exited { reason: ExitReason::Shutdown | ExitReason::Idle } => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    /// Returns once the profile and the recordings have not been read for a while, and no recording is being completed.
    async fn reads_ended(&self) {
        let mut deadline = Instant::now() + READ_LINGER_TIMEOUT;
        while Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if self.profiles.is_read() || self.replays.is_busy() {
                deadline = Instant::now() + READ_LINGER_TIMEOUT;
            }
        }
    }
}
