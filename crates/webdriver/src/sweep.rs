//! Ends the sessions of this installation that nobody knows.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use casement_domain::backoff::Backoff;
use casement_domain::ids::BrowserId;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::capabilities;
use crate::engine::{Unclaimed, WebDriverEngine};
use crate::error::GridError;
use crate::listing::{Listed, sessions};
use crate::record::RemoteSession;

/// How long a session may appear after the longest start.
const LATE: Duration = Duration::from_secs(30);
/// How long the end of a session is tried whose node the server does not reach: longer than a Selenium Grid takes to
/// give up a node.
const LEFTOVER_WITHIN: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// The maximum number of sessions that the task which cleans up remembers.
const MAX_REMEMBERED: usize = 10_000;

/// What a sweep found on the server.
#[derive(Debug, Default, PartialEq)]
pub struct Swept {
    /// The sessions of known browsers. There is more than one of a browser if the answer to a start was lost and the
    /// browser was started again.
    pub found: HashMap<BrowserId, Vec<RemoteSession>>,
    /// The number of sessions of this installation that were ended.
    pub ended: usize,
    /// The sessions of this installation that could not be ended, each with the reason.
    pub failed: Vec<(String, GridError)>,
}

impl WebDriverEngine {
    /// Lists the sessions on the server, and ends those with the mark of this installation whose browser is neither
    /// known nor tracked, or tracked with another session. Never touches other sessions.
    ///
    /// # Errors
    /// [`GridError::Unsupported`] if the server lists no sessions, or any other error. Nothing was ended.
    pub async fn sweep(&self, known: &HashSet<BrowserId>) -> Result<Swept, GridError> {
        let mut swept = Swept::default();
        for session in self.own_sessions().await? {
            match self.role(&session, known) {
                Role::Leave => {}
                Role::Keep(browser) => {
                    let read = capabilities::session(&self.config, browser, session.id, session.capabilities);
                    if let Ok(session) = read {
                        let session = self.with_debugger(session).await;
                        swept.found.entry(browser).or_default().push(session);
                    }
                }
                Role::End => match self.delete(&session.id).await {
                    Ok(()) => swept.ended += 1,
                    Err(error) => swept.failed.push((session.id, error)),
                },
            }
        }
        Ok(swept)
    }

    /// Lists the sessions with the mark of this installation.
    async fn own_sessions(&self) -> Result<Vec<Listed>, GridError> {
        let mut listed = sessions(&self.client).await?;
        listed.retain(|session| session.owner.as_deref() == Some(self.config.owner.as_str()));
        Ok(listed)
    }

    /// Returns whether the session is found by its mark.
    pub(crate) async fn is_listed(&self, session: &RemoteSession) -> Result<bool, GridError> {
        let browser = session.browser.to_string();
        let mut listed = self.own_sessions().await?.into_iter();
        Ok(listed.any(|other| other.id == session.id && other.browser.as_deref() == Some(browser.as_str())))
    }

    fn role(&self, session: &Listed, known: &HashSet<BrowserId>) -> Role {
        let Some(browser) = session.browser.as_deref().and_then(|text| text.parse().ok()) else { return Role::End };
        let state = self.state.lock();
        match state.live.get(&browser) {
            Some(live) if live.session.id == session.id => Role::Keep(browser),
            // A start that is under way has created it, or will replace it.
            _ if state.starting.contains_key(&browser) => Role::Leave,
            Some(_) => Role::End,
            None if known.contains(&browser) => Role::Keep(browser),
            None => Role::End,
        }
    }

    /// Leaves a browser that the server may still start to the task that cleans up.
    pub(crate) fn disown(&self, browser: BrowserId) {
        let until = Instant::now() + self.config.whole_start() + LATE;
        let mut state = self.state.lock();
        if state.unclaimed.len() < MAX_REMEMBERED {
            let unclaimed = state.unclaimed.entry(browser).or_insert(Unclaimed { count: 0, until });
            unclaimed.count += 1;
            unclaimed.until = until;
        }
        drop(state);
        self.clean_up();
    }

    /// Leaves a session of a node that the server does not reach to the task that cleans up.
    pub(crate) fn leave(&self, id: &str) {
        let until = Instant::now() + LEFTOVER_WITHIN;
        let mut state = self.state.lock();
        if state.leftovers.len() < MAX_REMEMBERED {
            state.leftovers.insert(id.to_owned(), until);
        }
        drop(state);
        self.clean_up();
    }

    fn clean_up(&self) {
        // Without a runtime this program is ending; its next start sweeps.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.state.lock();
        if !state.is_cleaning {
            state.is_cleaning = true;
            let engine = self.clone();
            runtime.spawn(async move { engine.clean_up_until_nothing_is_left().await });
        }
    }

    async fn clean_up_until_nothing_is_left(&self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        loop {
            sleep(backoff.next_pause()).await;
            self.end_leftovers().await;
            self.end_unclaimed().await;
            let mut state = self.state.lock();
            let now = Instant::now();
            state.unclaimed.retain(|_, unclaimed| unclaimed.count > 0 && unclaimed.until > now);
            state.leftovers.retain(|_, until| *until > now);
            if state.unclaimed.is_empty() && state.leftovers.is_empty() {
                state.is_cleaning = false;
                return;
            }
        }
    }

    async fn end_leftovers(&self) {
        let ids: Vec<_> = self.state.lock().leftovers.keys().cloned().collect();
        for id in ids {
            match self.delete(&id).await {
                Ok(()) => drop(self.state.lock().leftovers.remove(&id)),
                Err(GridError::NodeAway { .. }) => {}
                // The others would fail as well.
                Err(_) => return,
            }
        }
    }

    async fn end_unclaimed(&self) {
        if self.state.lock().unclaimed.is_empty() {
            return;
        }
        let listed = match self.own_sessions().await {
            Ok(listed) => listed,
            Err(error @ GridError::Unsupported { .. }) => {
                tracing::warn!(engine = %self.name(), %error, "a session may be left on the server until it is idle");
                self.state.lock().unclaimed.clear();
                return;
            }
            Err(_) => return,
        };
        for session in listed {
            let browser = session.browser.as_deref().and_then(|text| text.parse().ok());
            let is_unclaimed = |browser: &BrowserId| {
                let state = self.state.lock();
                let is_live = state.live.get(browser).is_some_and(|live| live.session.id == session.id);
                state.unclaimed.contains_key(browser) && !is_live && !state.starting.contains_key(browser)
            };
            let Some(browser) = browser.filter(is_unclaimed) else { continue };
            if self.delete(&session.id).await.is_ok() {
                tracing::info!(engine = %self.name(), %browser, "ended a session that nobody waited for");
                if let Some(unclaimed) = self.state.lock().unclaimed.get_mut(&browser) {
                    unclaimed.count = unclaimed.count.saturating_sub(1);
                }
            }
        }
    }
}

/// What a sweep does with a session of this installation.
enum Role {
    Keep(BrowserId),
    Leave,
    End,
}
