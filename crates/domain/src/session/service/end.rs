//! Ends sessions and releases their resources.

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

    /// Ends a session because of `event`, with its sandbox and all connections.
    ///
    /// # Errors
    /// See [`EndSessionError`].
    pub async fn end(&self, id: SessionId, event: SessionEvent) -> Result<Session, EndSessionError> {
        // The loop ends: every lost race means that the state advanced, and an ended session refuses the event.
        loop {
            let found = self.deps.sessions.find(id).await?;
            let current = found.ok_or_else(|| not_found(id.to_string()))?;
            let next = current.on(event, self.deps.clock.now())?;
            if self.deps.sessions.end(&current, &next).await? == Replaced::LostRace {
                continue;
            }
            self.release_resources(&next).await;
            return Ok(next);
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
    async fn release_resources(&self, ended: &Session) {
        let SessionState::Ended(reason) = ended.state else { return };
        self.deps.activity.forget(ended.id);
        self.deps.connections.close(ended.id, reason);
        self.deps.recorder.ended(ended.id);
        if let Some(pool) = &ended.pool {
            self.deps.pools.wake(pool.id);
            if ended.leaves_its_browser_untouched() {
                return;
            }
        }
        if let Some(browser) = ended.browser.filter(|_| ended.node == self.deps.node) {
            let wait = if reason == EndReason::IdleTimeout { CleanupWait::Deferred } else { CleanupWait::ForProfile };
            self.save_and_clean_up(ended, browser, wait).await;
        } else {
            self.lost_with_its_node(ended).await;
        }
    }

    /// Ends the sandbox of an ending browser and deletes its row. The node's housekeeping retries after errors.
    pub async fn clean_up(&self, browser: BrowserId) {
        if self.deps.engine.end(browser).await.is_ok() {
            self.deps.proxies.forget(browser);
            let _ = self.deps.browsers.forget(browser).await;
        }
    }

    /// Like [`clean_up`](Self::clean_up), if this node runs the browser; other nodes clean up their own browsers.
    pub(crate) async fn clean_up_own(&self, browser: BrowserId) -> Result<(), StoreError> {
        if self.deps.browsers.find(browser).await?.is_some_and(|row| row.node == self.deps.node) {
            self.clean_up(browser).await;
        }
        Ok(())
    }
}
