//! Housekeeping: the recurring work of a node for its sessions.

use time::Duration;

use super::super::{EndReason, Session, SessionEvent, SessionState};
use super::{EndSessionError, Sessions};
use crate::browser::BrowserState;
use crate::ids::{BrowserId, SessionId};
use crate::store_error::StoreError;
use crate::telemetry::Event;

/// The maximum duration of a start. An older reservation counts as abandoned.
const MAX_START: Duration = Duration::minutes(5);

impl Sessions {
    /// Handles a browser of this node that ended by itself.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn browser_lost(&self, browser: BrowserId, event: SessionEvent) -> Result<(), StoreError> {
        let row = self.deps.browsers.find(browser).await?;
        let pool = row.as_ref().and_then(|row| row.pool);
        // Discards the browser before reading its session: in the other order an idle browser could be leased in
        // between, and the row of a leased browser must stay until its session has ended.
        if !self.deps.browsers.discard(browser).await?
            && let Some(session) = self.deps.sessions.of_browser(browser).await?
        {
            return match self.end(session.id, event).await {
                Err(EndSessionError::Store(error)) => Err(error),
                _ => Ok(()),
            };
        }
        match row {
            // The browser is ending; its session may have left data.
            Some(row) => self.clean_up_browser(&row).await?,
            None => self.clean_up(browser).await,
        }
        if let Some(pool) = pool {
            self.deps.pools.wake(pool);
        }
        Ok(())
    }

    /// Adds an event to the telemetry of the session that uses the browser.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn note(&self, browser: BrowserId, event: Event) -> Result<(), StoreError> {
        if let Some(session) = self.deps.sessions.of_browser(browser).await? {
            self.deps.recorder.note(session.id, event);
        }
        Ok(())
    }

    /// Ends the sessions of this node whose idle timeout has passed, and stores the times of last use.
    ///
    /// # Errors
    /// Returns the error of the store; the next call does the rest.
    pub async fn sweep_idle(&self) -> Result<(), StoreError> {
        let changes = self.deps.activity.take_changes();
        if !changes.is_empty() {
            self.deps.sessions.note_activity(&changes).await?;
        }
        for id in self.deps.activity.idle() {
            match self.end(id, SessionEvent::IdleTimeout).await {
                Err(EndSessionError::Store(error)) => return Err(error),
                Err(_) => drop(self.deps.activity.forget(id)),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Finds sessions of this node that are unknown here because an answer of the store was lost. Active ones are
    /// watched from now on: they end with their idle timeout, or when their browser was missing for longer than a start
    /// may take. Reservations that are older than that end, and so do sessions of partly deleted pools. Carries out the
    /// ends that other nodes have stored.
    ///
    /// # Errors
    /// Returns the error of the store; the next call does the rest.
    pub async fn check(&self) -> Result<(), StoreError> {
        // Read before the rows: a session that is watched afterwards has not ended.
        let watched = self.deps.activity.watched();
        let all = self.deps.sessions.of_node(self.deps.node).await?;
        self.carry_out_missing(&watched, &all).await?;
        let mut unsettled = Vec::new();
        for session in &all {
            match session.state {
                SessionState::Active => {
                    self.watch(session);
                    if self.is_without_browser(session) {
                        unsettled.push(session.id);
                    }
                }
                SessionState::Starting => unsettled.push(session.id),
                SessionState::Ended(_) => {}
            }
        }
        for forgotten in self.unsettled_for(unsettled, MAX_START) {
            let Some(session) = all.iter().find(|session| session.id == forgotten) else { continue };
            let event = if session.is_active() { SessionEvent::Crash } else { SessionEvent::StartFailed };
            self.end_quietly(session, event).await;
        }
        for session in self.deps.sessions.of_deleted_pools(self.deps.node).await? {
            if let Err(EndSessionError::Store(error)) = self.end(session.id, SessionEvent::Delete).await {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the sessions of `now` that have been unsettled for `long`.
    fn unsettled_for(&self, now: Vec<SessionId>, long: Duration) -> Vec<SessionId> {
        let mut seen = self.unsettled.lock();
        seen.seen_for(now, long, self.deps.monotonic.monotonic_now())
    }

    /// Resumes the sessions of this node after a restart: sessions whose browser is in `alive` continue with their idle
    /// timeouts, others end as crashed, and reservations end. Returns the browsers that must not be ended.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn adopt(&self, alive: &[BrowserId]) -> Result<Vec<BrowserId>, StoreError> {
        let mut stored = Vec::new();
        for session in self.deps.sessions.of_node(self.deps.node).await? {
            let living = session.browser.filter(|id| session.is_active() && alive.contains(id));
            if let Some(browser) = living {
                self.deps.activity.take_up(&session);
                self.watch(&session);
                stored.push(browser);
                continue;
            }
            let event = if session.is_active() { SessionEvent::Crash } else { SessionEvent::StartFailed };
            if let Err(EndSessionError::Store(error)) = self.end(session.id, event).await {
                return Err(error);
            }
        }
        for browser in self.deps.browsers.of_node(self.deps.node).await? {
            match browser.state {
                BrowserState::Idle if alive.contains(&browser.id) => stored.push(browser.id),
                BrowserState::Leased if stored.contains(&browser.id) => {}
                // The background cleanup saves the session's data and then removes the browser.
                BrowserState::Ending if alive.contains(&browser.id) && self.unsaved(&browser).await?.is_some() => {
                    stored.push(browser.id);
                }
                _ => self.clean_up_browser(&browser).await?,
            }
        }
        Ok(stored)
    }

    fn is_without_browser(&self, session: &Session) -> bool {
        session.browser.is_none_or(|browser| !self.deps.engine.is_known(browser))
    }

    fn watch(&self, session: &Session) {
        self.deps.activity.watch(session);
        if session.telemetry.is_some() {
            self.deps.recorder.take_up(session);
        }
    }

    /// Releases what this node holds for the sessions of a lost node, which [`NodeRepository::lose`] has ended: pools,
    /// open connections and recordings. Reports their profiles and videos as lost.
    ///
    /// [`NodeRepository::lose`]: crate::node::NodeRepository::lose
    pub async fn mark_node_lost(&self, ended: &[Session]) {
        for session in ended {
            self.release_resources(session).await;
        }
    }

    /// Closes what this node still holds for sessions that another node has ended while this one was away. Their
    /// browsers are not ended.
    ///
    /// # Errors
    /// Returns the error of the store; the next call does the rest.
    pub async fn drop_ended(&self) -> Result<(), StoreError> {
        // Read before the rows: a session that is watched afterwards has not ended.
        let watched = self.deps.activity.watched();
        let living = self.deps.sessions.of_node(self.deps.node).await?;
        for id in watched {
            if living.iter().any(|session| session.id == id) {
                continue;
            }
            let served = self.deps.activity.forget(id);
            self.deps.connections.close(id, EndReason::NodeLost);
            if let Some(session) = served {
                self.deps.connections.ended(&session, EndReason::NodeLost);
            }
            self.deps.recorder.ended(id);
        }
        Ok(())
    }

    /// Ends everything of this node because the deadline of its drain is over: active sessions as drained, and those
    /// that are starting as failed.
    ///
    /// # Errors
    /// Returns the error of the store; the next call does the rest.
    pub async fn end_drained(&self) -> Result<(), StoreError> {
        for session in self.deps.sessions.of_node(self.deps.node).await? {
            let event = if session.is_active() { SessionEvent::NodeDrained } else { SessionEvent::StartFailed };
            if let Err(EndSessionError::Store(error)) = self.end(session.id, event).await {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the browsers of this node that no session uses: idle ones, and those that are starting for a pool. Other
    /// nodes replace them.
    ///
    /// # Errors
    /// Returns the error of the store; the next call does the rest.
    pub async fn discard_unused(&self) -> Result<(), StoreError> {
        for browser in self.deps.browsers.of_node(self.deps.node).await? {
            let is_unused = matches!(browser.state, BrowserState::Idle | BrowserState::Warming);
            if !is_unused || !self.deps.browsers.discard(browser.id).await? {
                continue;
            }
            if browser.state == BrowserState::Idle {
                self.clean_up(browser.id).await;
            }
            if let Some(pool) = browser.pool {
                self.deps.pools.wake(pool);
            }
        }
        Ok(())
    }
}
