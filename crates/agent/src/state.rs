//! What the parts of the agent share: the state of the browser, who listens for it, and when a server last spoke.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};

use crate::browser::Browser;
use crate::chromedriver::Chromedriver;
use crate::computer::Computer;
use crate::display::Display;
use crate::egress::FailedTunnels;
use crate::extension::Extensions;
use crate::fs::Watches;
use crate::login_page::LoginPage;
use crate::process::Processes;
use crate::process::tree::is_stopped;
use crate::profile::Profiles;
use crate::replay::Replays;
use crate::reply::Refusal;
use crate::restart::Restarts;
use crate::script::Scripts;
use crate::telemetry::Telemetry;
use crate::view::Views;
use casement_agent_protocol::{AgentConfig, ErrorCode, PROTOCOL_VERSION, Stage, State, Status, Viewport};

/// The running browser and, where there is one, its display.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) browser: Arc<Browser>,
    pub(crate) display: Option<Arc<Display>>,
    /// Chromium's main process.
    pub(crate) pid: Option<u32>,
}

/// State shared by the sockets and the browser's keeper.
#[derive(Debug)]
pub(crate) struct AgentState {
    pub(crate) config: AgentConfig,
    live: Mutex<Option<Arc<Live>>>,
    pub(crate) chromedriver: Chromedriver,
    pub(crate) restarts: Restarts,
    pub(crate) extensions: Extensions,
    pub(crate) profiles: Profiles,
    /// Asked to end.
    pub(crate) stop: Notify,
    /// Pictures taken at once: each needs several times the memory of the display.
    pub(crate) pictures: Semaphore,
    pub(crate) login_page: LoginPage,
    pub(crate) processes: Processes,
    pub(crate) replays: Replays,
    pub(crate) scripts: Scripts,
    pub(crate) computer: Computer,
    pub(crate) views: Views,
    pub(crate) telemetry: Telemetry,
    pub(crate) watches: Arc<Watches>,
    pub(crate) failed_tunnels: Arc<FailedTunnels>,
    status: watch::Sender<Status>,
    idle_end: watch::Sender<u64>,
    /// Why the browser is gone, for people. Set before the state that says so.
    detail: Mutex<String>,
    began: Instant,
    contact: Mutex<Instant>,
    /// A server has spoken at least once.
    taken_over: AtomicBool,
    streams: AtomicUsize,
    reported: AtomicUsize,
}

impl AgentState {
    pub(crate) fn new(config: AgentConfig, began: Instant) -> Self {
        let status = Status {
            version: PROTOCOL_VERSION,
            nonce: config.nonce.clone(),
            state: State::Starting,
            browser_ws_path: String::new(),
            browser_version: String::new(),
            user_agent: String::new(),
            chromium_argv: Vec::new(),
            viewport: config.viewport,
            stages: Vec::new(),
        };
        Self {
            idle_end: watch::Sender::new(config.idle_end_seconds),
            chromedriver: Chromedriver::new(config.chromedriver.clone(), config.chromedriver_port),
            restarts: Restarts::new(),
            extensions: Extensions::default(),
            profiles: Profiles::default(),
            config,
            live: Mutex::default(),
            stop: Notify::new(),
            pictures: Semaphore::new(2),
            login_page: LoginPage::default(),
            processes: Processes::default(),
            replays: Replays::default(),
            scripts: Scripts::default(),
            computer: Computer::default(),
            views: Views::default(),
            telemetry: Telemetry::default(),
            watches: Arc::default(),
            failed_tunnels: Arc::default(),
            status: watch::Sender::new(status),
            detail: Mutex::new(String::new()),
            began,
            contact: Mutex::new(Instant::now()),
            taken_over: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            reported: AtomicUsize::new(0),
        }
    }

    /// The status now, and as it changes.
    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Notes that the start came past `name`.
    pub(crate) fn stage(&self, name: &str) {
        let ms = self.began.elapsed().as_secs_f64() * 1000.0;
        self.status.send_modify(|status| status.stages.push(Stage { name: name.to_owned(), ms }));
    }

    /// Changes the status for everybody who watches it.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_modify(change);
    }

    /// The last word on the browser.
    pub(crate) fn end(&self, state: State, detail: String) {
        *self.detail.lock() = detail;
        self.status.send_modify(|status| status.state = state);
    }

    /// Why the browser is gone, for people.
    pub(crate) fn detail(&self) -> String {
        self.detail.lock().clone()
    }

    /// The browser, if it may be asked something.
    pub(crate) fn ready(&self) -> Option<Arc<Live>> {
        matches!(self.status.borrow().state, State::Ready).then(|| self.live())?
    }

    /// The browser, if it may be asked something and can answer.
    ///
    /// # Errors
    /// It is not up, or its process is stopped.
    pub(crate) fn usable(&self) -> Result<Arc<Live>, Refusal> {
        let live = self.ready().ok_or_else(|| Refusal::new(ErrorCode::NotReady, "the browser is not ready"))?;
        if live.pid.is_some_and(is_stopped) {
            let message = "the browser's process is stopped: it answers nothing until it goes on";
            return Err(Refusal::new(ErrorCode::BrowserHung, message));
        }
        Ok(live)
    }

    /// The browser that was started last, unless it is being replaced.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.live.lock().clone()
    }

    /// Puts another browser in place; `None` while there is none.
    pub(crate) fn replace(&self, live: Option<Live>) {
        *self.live.lock() = live.map(Arc::new);
    }

    /// The viewport in force.
    pub(crate) fn viewport(&self) -> Viewport {
        self.status.borrow().viewport
    }

    /// A server spoke.
    pub(crate) fn touch(&self) {
        self.taken_over.store(true, Ordering::Relaxed);
        *self.contact.lock() = Instant::now();
    }

    /// How many seconds without a word from a server end the sandbox; 0: none do.
    pub(crate) fn idle_end(&self) -> watch::Receiver<u64> {
        self.idle_end.subscribe()
    }

    /// Changes that.
    pub(crate) fn end_when_idle_for(&self, seconds: u64) {
        self.idle_end.send_replace(seconds);
    }

    /// How long no server has spoken. None while one listens to the events.
    pub(crate) fn idle(&self) -> Option<Duration> {
        (self.streams.load(Ordering::Relaxed) == 0).then(|| self.contact.lock().elapsed())
    }

    /// Whether a server has ever spoken.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Somebody was told how it ended.
    pub(crate) fn report(&self) {
        self.reported.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether somebody was told how it ended and nobody else waits to be.
    pub(crate) fn everybody_knows(&self) -> bool {
        self.reported.load(Ordering::Relaxed) > 0 && self.streams.load(Ordering::Relaxed) == 0
    }

    /// Counts a listener to the events for as long as the guard lives.
    pub(crate) fn listener(self: &Arc<Self>) -> Listener {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Listener(Arc::clone(self))
    }
}

/// One open event stream.
#[derive(Debug)]
pub(crate) struct Listener(Arc<AgentState>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.touch();
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
