//! The cleanup of leases that reached no caller: abandoned tickets, undelivered sessions and uncertain writes.

use super::uncertain_writes::{self, UncertainWrite};
use super::{Leases, TicketOutcome};
use crate::ids::{SessionId, TicketId};
use crate::session::{EndSessionError, Session, SessionEvent};
use crate::store_error::StoreError;

impl Leases {
    /// Removes the ticket of a disconnected caller. If it was granted just then, the browser goes to the next waiter.
    ///
    /// # Errors
    /// Returns the error of the store; [`reconcile`](Self::reconcile) tries again.
    pub async fn abandon(&self, ticket: TicketId) -> Result<(), StoreError> {
        match self
            .deps
            .wait_queue
            .leave(ticket)
            .await
            .inspect_err(|_| self.uncertain_write(UncertainWrite::Ticket(ticket)))?
        {
            TicketOutcome::Granted(session) => self.undelivered(&session).await,
            _ => Ok(()),
        }
    }

    /// Returns the browser of an undelivered session to the pool, unless the session was found and used meanwhile.
    ///
    /// # Errors
    /// Returns the error of the store; [`reconcile`](Self::reconcile) tries again.
    pub async fn undelivered(&self, session: &Session) -> Result<(), StoreError> {
        if session.node != self.deps.node {
            return self.undelivered_elsewhere(session).await;
        }
        let untouched = self.sessions.activity().take_back(session);
        let event = if untouched { SessionEvent::Undelivered } else { SessionEvent::StartFailed };
        self.end_session(session.id, event)
            .await
            .inspect_err(|_| self.uncertain_write(UncertainWrite::Lease(session.id)))?;
        // Also if another call had ended it.
        self.sessions.activity().forget(session.id);
        Ok(())
    }

    /// Has the owner of a session take it back. If the owner does not answer, the session ends with its browser, since
    /// nobody knows here whether it was used.
    async fn undelivered_elsewhere(&self, session: &Session) -> Result<(), StoreError> {
        if self.sessions.peers().undelivered(session.node, session.id).await.is_ok() {
            return Ok(());
        }
        self.sessions
            .end_unanswered(session.id, SessionEvent::StartFailed)
            .await
            .inspect_err(|_| self.uncertain_write(UncertainWrite::Lease(session.id)))?;
        Ok(())
    }

    /// Ends a session. Returns `false` if there is none.
    pub(super) async fn end_session(&self, session: SessionId, by: SessionEvent) -> Result<bool, StoreError> {
        match self.sessions.end(session, by).await {
            Err(EndSessionError::Store(error)) => Err(error),
            Err(EndSessionError::NotFound(_)) => Ok(false),
            Ok(_) | Err(_) => Ok(true),
        }
    }

    pub(super) fn uncertain_write(&self, what: UncertainWrite) {
        self.uncertain.note(what, self.deps.monotonic.monotonic_now());
    }

    /// Reconciles uncertain writes of callers that received an error: their tickets leave the queue, and their leases
    /// end with the browser, since the session could be found and used meanwhile.
    ///
    /// # Errors
    /// Returns the error of the store; the next call does the rest.
    pub async fn reconcile(&self) -> Result<(), StoreError> {
        let mut open = self.uncertain.take();
        let (mut pending, mut done) = (Vec::new(), Ok(()));
        while let Some((uncertain_write, since)) = open.pop() {
            match self.reconcile_one(uncertain_write).await {
                Ok(found) if found || uncertain_writes::is_over(since, self.deps.monotonic.monotonic_now()) => {}
                Ok(_) => pending.push((uncertain_write, since)),
                // The store will refuse again, so the write is given up.
                Err(StoreError::Broken { .. })
                    if uncertain_writes::is_over(since, self.deps.monotonic.monotonic_now()) => {}
                Err(error) => {
                    pending.push((uncertain_write, since));
                    done = Err(error);
                    break;
                }
            }
        }
        pending.append(&mut open);
        self.uncertain.put_back(pending);
        done
    }

    /// Returns whether the write was found in the store.
    async fn reconcile_one(&self, uncertain_write: UncertainWrite) -> Result<bool, StoreError> {
        match uncertain_write {
            UncertainWrite::Lease(session) => self.end_session(session, SessionEvent::StartFailed).await,
            UncertainWrite::Ticket(ticket) => match self.deps.wait_queue.leave(ticket).await? {
                TicketOutcome::Granted(session) => {
                    self.uncertain_write(UncertainWrite::Lease(session.id));
                    Ok(true)
                }
                outcome => Ok(outcome != TicketOutcome::Gone),
            },
        }
    }
}
