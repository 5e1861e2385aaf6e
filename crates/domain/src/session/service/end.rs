//! Ends sessions and releases their resources.

use std::collections::BTreeSet;

use super::super::{EndReason, IdOrName, Session, SessionEvent, SessionState};
use super::leave::CleanupWait;
use super::{EndSessionError, Sessions, not_found};
use crate::access::Scope;
use crate::ids::{BrowserId, InvocationId, SessionId};
use crate::store_error::{Replaced, StoreError};

impl Sessions {
    /// Ends a session of the project on request of the caller. Returns after the sandbox is removed, except for a
    /// recorded session: its sandbox remains until the background cleanup has stored the videos.
    ///
    /// # Errors
    /// See [`EndSessionError`].
    pub async fn delete(&self, scope: &Scope, which: &str) -> Result<(), EndSessionError> {
        let found = self.deps.sessions.find_in_project(scope.project_id(), &IdOrName::parse(which), false).await?;
        let session = found.ok_or_else(|| not_found(which))?;
        self.end(session.id, SessionEvent::Delete).await.map(|_| ()).map_err(|error| match error {
            EndSessionError::Refused(_) => not_found(which).into(),
            other => other,
        })
    }

    /// Ends a session because of `event`, with its sandbox and all connections. The owner of another node's session
    /// carries the end out; if it cannot be reached, its housekeeping does.
    ///
    /// # Errors
    /// See [`EndSessionError`].
    pub async fn end(&self, id: SessionId, event: SessionEvent) -> Result<Session, EndSessionError> {
        let ended = self.end_in_store(id, event).await?;
        if self.is_own(&ended) || event == SessionEvent::NodeLost {
            self.release_resources(&ended).await;
        } else {
            Box::pin(self.release_elsewhere(&ended)).await;
        }
        Ok(ended)
    }

    /// Stores the end of a session.
    pub(super) async fn end_in_store(&self, id: SessionId, event: SessionEvent) -> Result<Session, EndSessionError> {
        // The loop ends: every lost race means that the state advanced, and an ended session refuses the event.
        loop {
            let found = self.deps.sessions.find(id).await?;
            let current = found.ok_or_else(|| not_found(id.to_string()))?;
            let next = current.on(event, self.deps.clock.now())?;
            if self.deps.sessions.end(&current, &next).await? == Replaced::Yes {
                return Ok(next);
            }
        }
    }

    /// Returns the active sessions of an invocation.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn of_invocation(&self, invocation: InvocationId) -> Result<Vec<Session>, StoreError> {
        let mut found = self.deps.sessions.of_invocation(invocation).await?;
        found.retain(Session::is_active);
        Ok(found)
    }

    /// Ends the sessions of an invocation, including those that are starting.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn end_of_invocation(&self, invocation: InvocationId) -> Result<(), EndSessionError> {
        for session in self.deps.sessions.of_invocation(invocation).await? {
            let event = if session.is_active() { SessionEvent::Delete } else { SessionEvent::StartFailed };
            match self.end(session.id, event).await {
                // The session became active or ended in the meantime.
                Err(EndSessionError::Refused(_)) => match self.end(session.id, SessionEvent::Delete).await {
                    Err(EndSessionError::Refused(_) | EndSessionError::NotFound(_)) | Ok(_) => {}
                    Err(error) => return Err(error),
                },
                Err(EndSessionError::NotFound(_)) | Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) async fn end_quietly(&self, session: &Session, event: SessionEvent) {
        // The node's housekeeping retries after errors; see `check`.
        let _ = self.end(session.id, event).await;
    }

    /// Releases the connections, the browser and the pool slot of a session that is stored as ended.
    pub(super) async fn release_resources(&self, ended: &Session) {
        let Some(reason) = self.release_held(ended) else { return };
        if ended.pool.is_some() && ended.leaves_its_browser_untouched() {
            return;
        }
        if let Some(browser) = ended.browser.filter(|_| self.is_own(ended)) {
            self.save_and_clean_up(ended, browser, CleanupWait::after(reason)).await;
        } else {
            self.lost_with_its_node(ended).await;
        }
    }

    /// Releases what this node holds of a session that another node has ended: connections and timers. The node's
    /// housekeeping saves the session's data and removes its browser.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn ended_elsewhere(&self, id: SessionId) -> Result<(), StoreError> {
        let Some(session) = self.deps.sessions.find(id).await?.filter(|found| found.node == self.deps.node) else {
            return Ok(());
        };
        if self.release_held(&session).is_some() {
            self.deps.replays.wake_cleanup();
        }
        Ok(())
    }

    /// Releases what this node holds of an ended session, and wakes its pool. Returns why it has ended; `None` if it has
    /// not.
    pub(super) fn release_held(&self, session: &Session) -> Option<EndReason> {
        let SessionState::Ended(reason) = session.state else { return None };
        self.let_go(session);
        self.deps.recorder.ended(session.id);
        if let Some(pool) = &session.pool {
            self.deps.pools.wake(pool.id);
        }
        Some(reason)
    }

    /// Closes the connections of an ended session and stops its timers. Returns `false` if it has not ended.
    pub(super) fn let_go(&self, session: &Session) -> bool {
        let SessionState::Ended(reason) = session.state else { return false };
        let was_served = self.deps.activity.forget(session.id).is_some();
        self.deps.connections.close(session.id, reason);
        // The end is let go again when a notification or the cleanup of the browser repeats it.
        if was_served {
            self.deps.connections.ended(session, reason);
        }
        true
    }

    /// Ends the sandbox of an ending browser and deletes its row. The node's housekeeping retries after errors.
    pub async fn clean_up(&self, browser: BrowserId) {
        if self.deps.engine.end(browser).await.is_ok() {
            self.deps.proxies.forget(browser);
            let _ = self.deps.browsers.forget(browser).await;
        }
    }

    /// Cleans up ending browsers: those of this node at once, the others by their nodes, which are informed.
    pub(crate) async fn clean_up_discarded(&self, browsers: Vec<BrowserId>) {
        let mut others = BTreeSet::new();
        for browser in browsers {
            match self.deps.browsers.find(browser).await {
                Ok(Some(row)) if row.node == self.deps.node => self.clean_up(browser).await,
                Ok(Some(row)) => drop(others.insert(row.node)),
                // The browser is stored as ending: the housekeeping retries failures.
                Ok(None) | Err(_) => {}
            }
        }
        self.inform_of_ends(others).await;
    }
}
