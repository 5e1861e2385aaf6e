//! Ends of sessions that another node runs, and ends of this node's sessions that another node has stored.

use std::collections::BTreeSet;

use super::super::{Session, SessionEvent};
use super::leave::CleanupWait;
use super::{EndSessionError, Sessions};
use crate::browser::BrowserState;
use crate::ids::{NodeId, SessionId};
use crate::node::PeerNotice;
use crate::store_error::StoreError;

impl Sessions {
    pub(super) fn is_own(&self, session: &Session) -> bool {
        session.node == self.deps.node
    }

    /// Has the owner of an ended session carry out the end.
    pub(super) async fn release_elsewhere(&self, ended: &Session) {
        if let Some(pool) = &ended.pool {
            self.deps.pools.wake(pool.id);
        }
        // The owner's housekeeping finds the end if this does not reach it.
        let _ = self.deps.peers.carry_out_end(ended.node, ended.id).await;
    }

    /// Ends a session in the store only, because its owner does not answer. The owner's housekeeping carries out the
    /// end. A session that has ended is left as it is. Returns `false` if there is none.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub(crate) async fn end_unanswered(&self, id: SessionId, event: SessionEvent) -> Result<bool, StoreError> {
        match self.end_in_store(id, event).await {
            Ok(ended) => {
                if let Some(pool) = &ended.pool {
                    self.deps.pools.wake(pool.id);
                }
                Ok(true)
            }
            Err(EndSessionError::Store(error)) => Err(error),
            Err(EndSessionError::NotFound(_)) => Ok(false),
            Err(EndSessionError::Refused(_)) => Ok(true),
        }
    }

    /// Ends several sessions because of `event`: those of this node as [`end`](Self::end) does, the others in the store,
    /// of which their nodes are informed once each. A session that refuses the event is left out.
    ///
    /// # Errors
    /// Returns the error of the store; the sessions before have ended.
    pub(crate) async fn end_each(&self, sessions: Vec<Session>, event: SessionEvent) -> Result<(), StoreError> {
        let mut others = BTreeSet::new();
        let mut done = Ok(());
        for session in sessions {
            let ended = if self.is_own(&session) {
                self.end(session.id, event).await
            } else {
                others.insert(session.node);
                self.end_in_store(session.id, event).await
            };
            if let Err(EndSessionError::Store(error)) = ended {
                done = Err(error);
                break;
            }
        }
        self.inform_of_ends(others).await;
        done
    }

    /// Informs other nodes that some of their sessions or browsers are stored as ended or ending.
    pub(crate) async fn inform_of_ends(&self, nodes: BTreeSet<NodeId>) {
        for node in nodes {
            if node != self.deps.node {
                // The node's housekeeping finds the ends if this does not reach it.
                let _ = self.deps.peers.inform(node, PeerNotice::Ended).await;
            }
        }
    }

    /// Carries out the end of a session of this node that another node has stored. A session that has not ended, or of
    /// which nothing is left, is no error.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn carry_out_end(&self, id: SessionId) -> Result<(), StoreError> {
        let found = self.deps.sessions.find(id).await?;
        let Some(ended) = found.filter(|session| self.is_own(session)) else { return Ok(()) };
        let Some(reason) = self.release_held(&ended) else { return Ok(()) };
        let Some(browser) = ended.browser else { return Ok(()) };
        // Without this row the browser has been removed already, or it is idle again.
        let row = self.deps.browsers.find(browser).await?;
        if row.is_some_and(|row| row.state == BrowserState::Ending && row.session == Some(id)) {
            self.save_and_clean_up(&ended, browser, CleanupWait::after(reason)).await;
        }
        Ok(())
    }

    /// Carries out the ends of this node's sessions that other nodes have stored, and begins the cleanup of its ending
    /// browsers.
    ///
    /// # Errors
    /// Returns the error of the store; the next call does the rest.
    pub async fn carry_out_ends(&self) -> Result<(), StoreError> {
        self.deps.replays.wake_cleanup();
        // Read before the rows: a session that is watched afterwards has not ended.
        let watched = self.deps.activity.watched();
        let rows = self.deps.sessions.of_node(self.deps.node).await?;
        self.carry_out_missing(&watched, &rows).await
    }

    /// Carries out the end of each watched session that is not among the rows of sessions that have not ended.
    pub(super) async fn carry_out_missing(&self, watched: &[SessionId], rows: &[Session]) -> Result<(), StoreError> {
        let living: BTreeSet<SessionId> = rows.iter().map(|session| session.id).collect();
        for id in watched.iter().filter(|id| !living.contains(id)) {
            self.carry_out_end(*id).await?;
        }
        Ok(())
    }
}
