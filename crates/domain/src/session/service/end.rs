//! A session ends, and what was its own is cleared away.

use super::super::{EndReason, IdOrName, Session, SessionEvent, SessionState};
use super::leave::Waits;
use super::{EndSessionError, Sessions};
use crate::access::Scope;
use crate::ids::{BrowserId, InvocationId, SessionId};
use crate::store_error::{Replaced, StoreError};

impl Sessions {
    /// Ends the project's session at its caller's wish. Returns once nothing of its sandbox is left, but for one that was recorded:
    /// its sandbox goes when its films are kept, which nobody waits for.
    ///
    /// # Errors
    /// See [`EndSessionError`].
    pub async fn delete(&self, scope: &Scope, which: &str) -> Result<(), EndSessionError> {
        let found = self.deps.sessions.find_in_project(scope.project_id(), &IdOrName::parse(which), false).await?;
        let session = found.ok_or_else(|| EndSessionError::NotFound(which.to_owned()))?;
        self.end(session.id, SessionEvent::Delete).await.map(|_| ()).map_err(|error| match error {
            EndSessionError::Refused(_) => EndSessionError::NotFound(which.to_owned()),
            other => other,
        })
    }

    /// Ends a session for the reason of `event`, with its sandbox and everything that is open into it.
    ///
    /// # Errors
    /// See [`EndSessionError`].
    pub async fn end(&self, id: SessionId, event: SessionEvent) -> Result<Session, EndSessionError> {
        // Ends: every lost race means that the session moved on, and from its end `on` refuses.
        loop {
            let found = self.deps.sessions.find(id).await?;
            let current = found.ok_or_else(|| EndSessionError::NotFound(id.to_string()))?;
            let next = current.on(event, self.deps.clock.now())?;
            if self.deps.sessions.end(&current, &next).await? == Replaced::LostRace {
                continue;
            }
            self.clear_away(&next).await;
            return Ok(next);
        }
    }

    /// The active sessions of an invocation.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn of_invocation(&self, invocation: InvocationId) -> Result<Vec<Session>, StoreError> {
        let mut found = self.deps.sessions.of_invocation(invocation).await?;
        found.retain(Session::is_active);
        Ok(found)
    }

    /// Ends the sessions of an invocation, those too that are only coming to be.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn end_of_invocation(&self, invocation: InvocationId) -> Result<(), EndSessionError> {
        for session in self.deps.sessions.of_invocation(invocation).await? {
            let event = if session.is_active() { SessionEvent::Delete } else { SessionEvent::StartFailed };
            match self.end(session.id, event).await {
                // It became active meanwhile, or ended.
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
        // What fails here, the node's housekeeping finds: see `check`.
        let _ = self.end(session.id, event).await;
    }

    /// After a session was stored as ended: its connections, its browser, its place in the pool.
    async fn clear_away(&self, ended: &Session) {
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
            let waits = if reason == EndReason::IdleTimeout { Waits::Nobody } else { Waits::ItsCaller };
            self.take_leave(ended, browser, waits).await;
        } else {
            self.lost_with_its_node(ended).await;
        }
    }

    /// Ends the sandbox of a browser that is marked as ending, and forgets it. What fails is done again by the node's
    /// housekeeping.
    pub async fn clean_up(&self, browser: BrowserId) {
        if self.deps.engine.end(browser).await.is_ok() {
            self.deps.proxies.forget(browser);
            let _ = self.deps.browsers.forget(browser).await;
        }
    }

    /// As [`clean_up`](Self::bury), if this node runs the browser: another's is buried by its own node's housekeeping.
    pub(crate) async fn bury_own(&self, browser: BrowserId) -> Result<(), StoreError> {
        if self.deps.browsers.find(browser).await?.is_some_and(|row| row.node == self.deps.node) {
            self.clean_up(browser).await;
        }
        Ok(())
    }
}
