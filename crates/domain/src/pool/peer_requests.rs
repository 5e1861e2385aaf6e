//! What a node does on request of another node: the receiving side of [`Peers`](crate::node::Peers).

use std::sync::Arc;

use super::{Leases, TicketNotifier};
use crate::ids::{SessionId, TicketId};
use crate::node::{PeerHandOut, PeerNotice};
use crate::profile::LoadedProfile;
use crate::session::{PoolWake, Session, Sessions};
use crate::store_error::StoreError;

/// The use cases that other nodes call. The caller has proven that it is a node of the database.
#[derive(Clone)]
pub struct PeerRequests {
    leases: Leases,
    sessions: Sessions,
    tickets: Arc<dyn TicketNotifier>,
    pools: Arc<dyn PoolWake>,
}

impl PeerRequests {
    /// Creates the use cases of the node that has these leases.
    #[must_use]
    pub fn new(leases: Leases) -> Self {
        let (tickets, pools) = (leases.deps.tickets.clone(), leases.deps.wake.clone());
        Self { sessions: leases.sessions.clone(), leases, tickets, pools }
    }

    /// Hands out the browser of a lease that another node has stored; see
    /// [`Peers::hand_out`](crate::node::Peers::hand_out).
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn hand_out(
        &self,
        session: SessionId,
        profile: Option<LoadedProfile>,
    ) -> Result<PeerHandOut, StoreError> {
        match self.own_lease(session).await? {
            Some(session) => self.leases.hand_out_here(&session, profile).await,
            None => Ok(PeerHandOut::NotAnswering),
        }
    }

    /// Takes back a session that did not reach its caller; see
    /// [`Peers::undelivered`](crate::node::Peers::undelivered).
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn undelivered(&self, session: SessionId) -> Result<(), StoreError> {
        match self.own_lease(session).await? {
            Some(session) => self.leases.undelivered(&session).await,
            None => Ok(()),
        }
    }

    /// Carries out the end of a session that another node has stored; see
    /// [`Peers::carry_out_end`](crate::node::Peers::carry_out_end).
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn carry_out_end(&self, session: SessionId) -> Result<(), StoreError> {
        self.sessions.carry_out_end(session).await
    }

    /// Acts on a notice.
    ///
    /// # Errors
    /// Returns the error of the store; the housekeeping of this node does the rest.
    pub async fn inform(&self, notice: PeerNotice) -> Result<(), StoreError> {
        match notice {
            PeerNotice::Ticket(ticket) => self.decided(ticket).await,
            PeerNotice::Pool(pool) => {
                self.pools.wake(pool);
                Ok(())
            }
            PeerNotice::Ended => self.sessions.carry_out_ends().await,
        }
    }

    /// Wakes the waiter of a decided ticket of this node. Without a waiter its caller has disconnected, and the ticket
    /// is abandoned.
    ///
    /// # Errors
    /// Returns the error of the store; the housekeeping of this node does the rest.
    pub async fn decided(&self, ticket: TicketId) -> Result<(), StoreError> {
        if self.wake(ticket) { Ok(()) } else { self.abandon(ticket).await }
    }

    /// Removes a ticket whose caller cannot be told. If it was granted and nobody has read that, the browser goes to the
    /// next ticket.
    ///
    /// # Errors
    /// Returns the error of the store; the housekeeping of this node does the rest.
    pub async fn abandon(&self, ticket: TicketId) -> Result<(), StoreError> {
        self.leases.abandon(ticket).await
    }

    /// Wakes the waiter of a decided ticket. Returns `false` if it does not wait at this node.
    #[must_use]
    pub fn wake(&self, ticket: TicketId) -> bool {
        self.tickets.wake(ticket)
    }

    async fn own_lease(&self, session: SessionId) -> Result<Option<Session>, StoreError> {
        let found = self.sessions.find(session).await?;
        Ok(found.filter(|session| session.is_active() && session.node == self.leases.deps.node))
    }
}
