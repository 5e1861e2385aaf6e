//! Wakes the waiters of tickets that a transaction of this node has decided.

use std::sync::Arc;

use casement_domain::node::{PeerError, PeerNotice, Peers};
use casement_domain::pool::PeerRequests;
use casement_domain::{NodeId, TicketId};
use casement_postgres::{Database, Decided};
use tokio::runtime::Handle;
use tracing::debug;

/// Wakes the waiters of this node at once, and those of other nodes by a notice to the node. A node without a cluster
/// listener gets a notification of the database. If a node does not answer, its ticket leaves the queue, and the browser goes
/// to the next one: nobody would use it until the node is lost. Its caller enters the queue again, if the node lives.
#[derive(Clone)]
pub(crate) struct TicketReports {
    pub(crate) node: NodeId,
    pub(crate) requests: PeerRequests,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) database: Database,
    /// The runtime of the reports. A transaction may run on the runtime of a web worker, which may end.
    pub(crate) runtime: Handle,
}

impl TicketReports {
    /// Begins to report the tickets that transactions on the database decide.
    pub(crate) fn begin(self) {
        let database = self.database.clone();
        database.on_decided(move |decided| self.report(decided));
    }

    fn report(&self, decided: Vec<Decided>) {
        for (node, ticket) in decided {
            if node == self.node && self.requests.wake(ticket) {
                continue;
            }
            let reports = self.clone();
            self.runtime.spawn(async move { reports.report_one(node, ticket).await });
        }
    }

    async fn report_one(&self, node: NodeId, ticket: TicketId) {
        let reported = if node == self.node {
            self.requests.decided(ticket).await
        } else {
            match self.peers.inform(node, PeerNotice::Ticket(ticket)).await {
                Ok(()) => Ok(()),
                Err(PeerError::Refused { .. }) => self.database.notify_decided(&[(node, ticket)]).await,
                Err(PeerError::Unreachable(_) | PeerError::Unclear(_)) => self.requests.abandon(ticket).await,
            }
        };
        if let Err(error) = reported {
            debug!(%node, %ticket, %error, "a decided ticket cannot be reported; its node finds it later");
        }
    }
}
