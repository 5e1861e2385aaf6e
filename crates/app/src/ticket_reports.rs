//! Wakes the waiters of tickets that a transaction of this node has decided.

use std::sync::Arc;

use casement_domain::node::{PeerNotice, Peers};
use casement_domain::pool::PeerRequests;
use casement_domain::{NodeId, TicketId};
use casement_postgres::{Database, Decided};
use tokio::runtime::Handle;
use tracing::debug;

/// Wakes the waiters of this node at once, and those of other nodes by a notice to the node. A node that does not
/// receive the notice gets a notification of the database.
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
                Err(_) => self.database.notify_decided(&[(node, ticket)]).await,
            }
        };
        if let Err(error) = reported {
            debug!(%node, %ticket, %error, "a decided ticket cannot be reported; its node finds it later");
        }
    }
}
