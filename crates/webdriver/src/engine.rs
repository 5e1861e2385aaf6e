//! The engine: it starts and ends sessions of a WebDriver server, and counts them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use casement_domain::backoff::Backoff;
use casement_domain::browser::Shape;
use casement_domain::engine::EngineName;
use casement_domain::ids::BrowserId;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::capabilities::{self, DOWNLOADS};
use crate::cdp;
use crate::client::{Ask, Client, MAX_ANSWER};
use crate::config::{ConfigError, WebDriverConfig};
use crate::dial::{Channel, Endpoint, GridStream, dial_debugger};
use crate::error::GridError;
use crate::ready_socket::ReadySocket;
use crate::record::{Cdp, RemoteSession};

/// How long the end of a session is repeated, after the time of a command.
const END_WITHIN: Duration = Duration::from_secs(30);
/// How long the end of a session is repeated whose node the server does not reach.
const NODE_AWAY_WITHIN: Duration = Duration::from_secs(10);
/// How long it is remembered whether the nodes hand out downloads.
const DOWNLOADS_AGE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The engine on a WebDriver server. Clones share its sessions and connections.
#[derive(Clone)]
pub struct WebDriverEngine {
    pub(crate) config: Arc<WebDriverConfig>,
    pub(crate) client: Client,
    pub(crate) state: Arc<Mutex<State>>,
    /// Notifies the watch of a session that is to be checked.
    pub(crate) changed: Arc<Notify>,
}

/// The sessions of an engine.
#[derive(Default)]
pub(crate) struct State {
    /// The browsers that are being started.
    pub(crate) starting: HashMap<BrowserId, u32>,
    pub(crate) live: HashMap<BrowserId, Live>,
    /// The browsers that the server may still start although nobody waits for them.
    pub(crate) unclaimed: HashMap<BrowserId, Unclaimed>,
    /// The ended sessions of nodes that the server does not reach, each with the time until which their end is tried.
    pub(crate) leftovers: HashMap<String, Instant>,
    /// Whether all nodes hand out downloads, and when that was requested.
    pub(crate) downloads: Option<(Instant, bool)>,
    /// True while a task cleans up.
    pub(crate) is_cleaning: bool,
}

/// Sessions of a browser that the server may still create although nobody waits for them.
pub(crate) struct Unclaimed {
    /// How many there may be.
    pub(crate) count: usize,
    /// Until when they may appear.
    pub(crate) until: Instant,
}

/// A session that exists.
pub(crate) struct Live {
    pub(crate) session: Arc<RemoteSession>,
    /// The time of the next check.
    pub(crate) due: Instant,
    pub(crate) is_checking: bool,
    pub(crate) is_ending: bool,
    /// Since when the server does not reach the node.
    pub(crate) node_away: Option<Instant>,
    /// The CDP WebSocket that the first client uses.
    pub(crate) ready_socket: Option<ReadySocket>,
}

impl State {
    pub(crate) fn used(&self) -> usize {
        self.live.len() + self.starting.values().map(|count| *count as usize).sum::<usize>()
    }
}

impl fmt::Debug for WebDriverEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebDriverEngine {} at {}", self.config.name, self.config.url())
    }
}

impl WebDriverEngine {
    /// Creates the engine. It asks nothing of the server.
    ///
    /// # Errors
    /// [`ConfigError`] with the first setting that breaks a rule.
    pub fn new(config: WebDriverConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let client = Client::new(&config)?;
        let state = Arc::new(Mutex::new(State::default()));
        Ok(Self { config: Arc::new(config), client, state, changed: Arc::new(Notify::new()) })
    }

    /// Returns the name of the engine.
    #[must_use]
    pub fn name(&self) -> &EngineName {
        &self.config.name
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &WebDriverConfig {
        &self.config
    }

    /// Returns how many sessions count against `max_sessions`: those that are started, tracked or ended.
    #[must_use]
    pub fn used(&self) -> usize {
        self.state.lock().used()
    }

    /// Starts a browser and tracks its session. `requested`: W3C capabilities of the client for whom it is started; those
    /// of the configuration come before them. If the future is dropped or the answer is lost, a task ends the session
    /// that the server may have created.
    ///
    /// # Errors
    /// [`GridError::Full`] if the engine has no room, [`GridError::Busy`] if the server has none, or any other error.
    pub async fn start(
        &self,
        browser: BrowserId,
        shape: &Shape,
        requested: &Map<String, Value>,
    ) -> Result<RemoteSession, GridError> {
        let starting = Starting::begin(self, browser)?;
        let downloads = match self.has_downloads().await {
            Ok(downloads) => downloads,
            Err(error) => {
                starting.nothing_is_left();
                return Err(error);
            }
        };
        let body = capabilities::request(&self.config, browser, shape, requested, downloads);
        let within = self.config.whole_start();
        let ask = Ask { method: Method::POST, path: "/session", body: Some(&body), within, max: MAX_ANSWER };
        let answer = self.client.call(ask).await;
        let read = answer.and_then(|answer| capabilities::read(&self.config, browser, answer));
        let read = read.and_then(|session| capabilities::with_requested(&self.config, session, requested));
        let mut session = match read {
            Ok(session) => session,
            Err(error) => {
                // The nodes may have changed.
                self.state.lock().downloads = None;
                if !error.is_uncertain() {
                    starting.nothing_is_left();
                }
                return Err(self.reason_of(error).await);
            }
        };
        if !downloads && !self.config.capabilities.contains_key(DOWNLOADS) {
            // A node says what it could do, even if it was not requested and is not done.
            session.capabilities.remove(DOWNLOADS);
        }
        let session = self.with_debugger(session).await;
        starting.succeed(&session);
        Ok(session)
    }

    /// Returns whether all nodes of the server hand out downloads, as they said within the last minute. Fails only if
    /// the server cannot be reached at all.
    async fn has_downloads(&self) -> Result<bool, GridError> {
        if let Some((_, has)) = self.state.lock().downloads.filter(|(at, _)| at.elapsed() < DOWNLOADS_AGE) {
            return Ok(has);
        }
        let status = match self.status().await {
            Ok(status) => status,
            Err(error @ GridError::Unreachable { .. }) => return Err(error),
            Err(_) => return Ok(false),
        };
        let has = status.nodes.is_some_and(|nodes| nodes.all_have_downloads);
        self.state.lock().downloads = Some((Instant::now(), has));
        Ok(has)
    }

    /// Replaces the CDP of a session by the browser's own port, if a chromedriver of this machine has started it.
    pub(crate) async fn with_debugger(&self, mut session: RemoteSession) -> RemoteSession {
        if let Some(port) = capabilities::debugger_port(&self.config, &session.capabilities) {
            match cdp::browser_path(port, session.browser).await {
                Ok(path) => session.cdp = Cdp::Debugger { port, path },
                Err(error) => tracing::warn!(engine = %self.name(), %error, "the browser's CDP is not on this machine"),
            }
        }
        session
    }

    /// Explains why the server gave no session.
    async fn reason_of(&self, error: GridError) -> GridError {
        let message = match &error {
            GridError::Refused { code, message } if code == "session not created" && is_about_room(message) => message,
            GridError::Timeout { .. } => "",
            _ => return error,
        };
        let Some(room) = self.status().await.ok().and_then(|status| status.lack_of_room()) else {
            return if message.is_empty() { error } else { GridError::Busy { reason: message.to_owned() } };
        };
        let reason = if message.is_empty() { room } else { format!("{message} ({room})") };
        GridError::Busy { reason }
    }

    /// Tracks a session that exists, for example after a restart of this program. It counts against `max_sessions`, but
    /// is not refused by it.
    pub fn track(&self, session: RemoteSession) {
        let live = Live {
            due: Instant::now(),
            is_checking: false,
            is_ending: false,
            node_away: None,
            ready_socket: None,
            session: Arc::new(session),
        };
        self.state.lock().live.insert(live.session.browser, live);
        self.changed.notify_one();
    }

    /// Ends a session. It is repeated until the server says that the session does not exist, for at most 30 s after the
    /// time of a command. A missing session is not an error; one whose node the server does not reach is left to a task
    /// that ends it as soon as the node is back.
    ///
    /// # Errors
    /// Any [`GridError`]; the session still counts against `max_sessions`.
    pub async fn end(&self, session: &RemoteSession) -> Result<(), GridError> {
        if let Some(live) = self.state.lock().live.get_mut(&session.browser) {
            live.is_ending |= live.session.id == session.id;
        }
        let begun = Instant::now();
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        loop {
            let error = match self.delete(&session.id).await {
                Ok(()) => break,
                Err(error) => error,
            };
            let pause = backoff.next_pause();
            let spent = begun.elapsed() + pause;
            match error {
                GridError::NodeAway { .. } if spent > NODE_AWAY_WITHIN => {
                    self.leave(&session.id);
                    break;
                }
                GridError::Unauthorized { .. } | GridError::Redirect { .. } => return Err(error),
                error if spent > END_WITHIN + self.client.command_timeout() => return Err(error),
                _ => sleep(pause).await,
            }
        }
        let mut state = self.state.lock();
        if state.live.get(&session.browser).is_some_and(|live| live.session.id == session.id) {
            state.live.remove(&session.browser);
        }
        Ok(())
    }

    /// Asks the server to end a session. A missing session is not an error.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), GridError> {
        match self.client.command(Method::DELETE, &format!("/session/{id}")).await {
            Ok(_) | Err(GridError::NoSession { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the server has the session. The question is a sign of life.
    ///
    /// # Errors
    /// Any [`GridError`] except [`GridError::NoSession`], if that is unknown.
    pub async fn is_active(&self, session: &RemoteSession) -> Result<bool, GridError> {
        match self.client.command(Method::GET, &sign_of_life(&session.id)).await {
            Ok(_) => Ok(true),
            Err(GridError::NoSession { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a stream to the server for a channel of a session, and says what a request over it must hold.
    ///
    /// # Errors
    /// [`GridError::Unsupported`] if the session does not have the channel, or [`GridError::Unreachable`].
    pub async fn connect(
        &self,
        session: &RemoteSession,
        channel: Channel,
    ) -> Result<(GridStream, Endpoint), GridError> {
        let dialer = self.client.dialer();
        let path = match (channel, &session.cdp) {
            (Channel::Cdp, Cdp::Debugger { port, path }) => {
                let headers = http::HeaderMap::new();
                let endpoint = Endpoint { host: format!("localhost:{port}"), path: path.clone(), headers };
                return Ok((dial_debugger(*port, session.browser).await?, endpoint));
            }
            (Channel::Cdp, Cdp::Path(path)) => path.clone(),
            (Channel::Bidi, _) => session.bidi.clone().ok_or(GridError::Unsupported { what: "WebDriver BiDi" })?,
            (Channel::Http, _) => dialer.address().prefix.clone(),
        };
        let endpoint = Endpoint { host: dialer.address().authority(), path, headers: dialer.headers() };
        Ok((dialer.dial().await?, endpoint))
    }
}

/// The path of a command that asks nothing of the page, and that no dialog of the page delays.
pub(crate) fn sign_of_life(id: &str) -> String {
    format!("/session/{id}/timeouts")
}

/// Returns whether a refused session was refused for want of a place.
fn is_about_room(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let phrases = ["request timed out", "no node", "queue", "unable to find provider", "environment is not available"];
    phrases.iter().any(|phrase| message.contains(phrase))
}

/// A start that is under way. Dropped, it leaves the browser to the task that cleans up.
struct Starting<'a> {
    engine: &'a WebDriverEngine,
    browser: BrowserId,
    may_leave_one: bool,
}

impl<'a> Starting<'a> {
    fn begin(engine: &'a WebDriverEngine, browser: BrowserId) -> Result<Self, GridError> {
        let mut state = engine.state.lock();
        if let Some(max) = engine.config.max_sessions.filter(|max| state.used() >= *max as usize) {
            return Err(GridError::Full { max });
        }
        *state.starting.entry(browser).or_default() += 1;
        Ok(Self { engine, browser, may_leave_one: true })
    }

    fn nothing_is_left(mut self) {
        self.may_leave_one = false;
    }

    fn succeed(mut self, session: &RemoteSession) {
        self.may_leave_one = false;
        self.engine.track(session.clone());
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let mut state = self.engine.state.lock();
        if let Some(count) = state.starting.get_mut(&self.browser) {
            *count -= 1;
            if *count == 0 {
                state.starting.remove(&self.browser);
            }
        }
        drop(state);
        if self.may_leave_one {
            self.engine.disown(self.browser);
        }
    }
}
