//! Keeps the sessions of an engine alive, and notices those that are lost.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use casement_domain::ids::BrowserId;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::Method;
use tokio::select;
use tokio::time::{Instant, sleep_until};

use crate::client::{Ask, MAX_ANSWER};
use crate::engine::{WebDriverEngine, sign_of_life};
use crate::error::GridError;
use crate::record::RemoteSession;

/// The longest time between two signs of life. It bounds the time until a lost session is noticed.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// The time between two checks of a session whose node is away.
const NODE_AWAY_INTERVAL: Duration = Duration::from_secs(2);
/// How long the server may not reach a node before the sessions of the node are lost.
const NODE_AWAY_WITHIN: Duration = Duration::from_secs(10);
/// The time between two checks of a session while the server is away.
const AWAY_INTERVAL: Duration = Duration::from_secs(3);
/// The time until a suspicion is checked, so that many of them are one check.
const SUSPICION: Duration = Duration::from_millis(100);
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of checks at the same time.
const MAX_CHECKS: usize = 32;

/// A session that the server does not have any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLost {
    /// The browser.
    pub browser: BrowserId,
    /// The reason for people, with the server's own words.
    pub reason: String,
}

/// The result of a check.
enum Sign {
    Alive,
    Lost(String),
    /// The server does not reach the node.
    NodeAway(String),
    /// The server does not respond; nothing is known of the session.
    Unknown,
}

impl WebDriverEngine {
    /// Keeps all tracked sessions alive until the future is dropped, and calls `lost` for each session that is lost,
    /// once. That is a session that the server says it does not have, or whose node the server has not reached for
    /// 10 s. A server that does not respond loses no session. A lost session is not tracked any more.
    ///
    /// `lost` must not block. An engine is watched by one task.
    pub async fn watch(&self, lost: impl Fn(SessionLost) + Send + Sync) {
        for live in self.state.lock().live.values_mut() {
            // The checks of an earlier watch have ended with it.
            live.is_checking = false;
        }
        let mut checks = FuturesUnordered::new();
        loop {
            let changed = self.changed.notified();
            let mut changed = pin!(changed);
            changed.as_mut().enable();
            let (due, next) = self.due(MAX_CHECKS - checks.len());
            checks.extend(due.into_iter().map(|session| self.check_session(session)));
            let is_full = checks.len() >= MAX_CHECKS;
            select! {
                Some((session, sign)) = checks.next() => {
                    if let Some(reason) = self.settle(&session, sign) {
                        lost(SessionLost { browser: session.browser, reason });
                    }
                }
                () = sleep_until(next), if !is_full => {}
                () = changed => {}
            }
        }
    }

    /// Checks a session at once, for example because its CDP connection broke.
    pub fn suspect(&self, browser: BrowserId) {
        if let Some(live) = self.state.lock().live.get_mut(&browser) {
            live.due = live.due.min(Instant::now() + SUSPICION);
            self.changed.notify_one();
        }
    }

    fn interval(&self) -> Duration {
        (self.config.session_timeout / 3).min(MAX_INTERVAL)
    }

    /// Takes up to `max` sessions that are due, and returns the time of the next one.
    fn due(&self, max: usize) -> (Vec<Arc<RemoteSession>>, Instant) {
        let now = Instant::now();
        let mut next = now + MAX_INTERVAL;
        let mut due = Vec::new();
        for live in self.state.lock().live.values_mut().filter(|live| !live.is_checking && !live.is_ending) {
            if live.due > now {
                next = next.min(live.due);
            } else if due.len() < max {
                live.is_checking = true;
                due.push(live.session.clone());
            }
        }
        (due, next)
    }

    async fn check_session(&self, session: Arc<RemoteSession>) -> (Arc<RemoteSession>, Sign) {
        let within = CHECK_TIMEOUT.min(self.client.command_timeout());
        let path = sign_of_life(&session.id);
        let ask = Ask { method: Method::GET, path: &path, body: None, within, max: MAX_ANSWER };
        let sign = match self.client.call(ask).await {
            Ok(_) => Sign::Alive,
            Err(GridError::NoSession { message }) => Sign::Lost(message),
            Err(GridError::NodeAway { message }) => Sign::NodeAway(message),
            Err(_) => Sign::Unknown,
        };
        (session, sign)
    }

    /// Notes the result of a check; returns the reason if the session is lost.
    fn settle(&self, session: &RemoteSession, sign: Sign) -> Option<String> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let live = state.live.get_mut(&session.browser).filter(|live| live.session.id == session.id)?;
        live.is_checking = false;
        if live.is_ending {
            return None;
        }
        let (pause, reason) = match sign {
            Sign::Alive => (self.interval(), None),
            Sign::Unknown => (self.interval().min(AWAY_INTERVAL), None),
            Sign::NodeAway(message) => (NODE_AWAY_INTERVAL, Some(message)),
            Sign::Lost(message) => {
                state.live.remove(&session.browser);
                return Some(format!("the WebDriver server does not have the session any more: {message}"));
            }
        };
        live.due = now + pause;
        let Some(message) = reason else {
            live.node_away = None;
            return None;
        };
        let since = *live.node_away.get_or_insert(now);
        if now - since < NODE_AWAY_WITHIN {
            return None;
        }
        state.live.remove(&session.browser);
        Some(format!("the WebDriver server does not reach the session's node any more: {message}"))
    }
}
