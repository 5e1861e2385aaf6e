//! Tickets that transactions of this process have decided, which are reported after the commit.
//!
//! `NOTIFY` in a granting transaction would make all commits wait for one lock of the whole database, so the notification
//! is a statement of its own, and the process may have a faster way ([`Database::on_decided`]). A report that is lost,
//! because the process was killed in between, costs the waiter up to the interval at which its node looks for decided
//! tickets.

use std::fmt;
use std::sync::{Arc, OnceLock};

use casement_domain::node::UnreachableNodes;
use casement_domain::{NodeId, StoreError, TicketId};
use diesel::sql_types::{Array, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::column::Column;
use crate::database::Database;

/// The channel on which a node is notified of decided tickets. The payload is the id of a ticket.
#[must_use]
pub fn node_channel(node: NodeId) -> String {
    format!("casement_node_{node}")
}

/// A decided ticket with the node of its waiter.
pub type Decided = (NodeId, TicketId);

type Receiver = Box<dyn Fn(Vec<Decided>) + Send + Sync>;

/// Which tickets are decided, and what is done with them.
#[derive(Clone, Default)]
pub(crate) struct Decisions {
    /// The receiver of decided tickets, if the process has one.
    receiver: Arc<OnceLock<Receiver>>,
    /// The nodes that this process cannot reach, if it knows them.
    unreachable: Arc<OnceLock<UnreachableNodes>>,
}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decisions").field("unreachable", &self.unreachable).finish_non_exhaustive()
    }
}

impl Database {
    /// Sets what is done with tickets that a transaction of this process has decided, after its commit. Without it they
    /// are reported by [`notify_decided`](Self::notify_decided). Only the first call has an effect.
    pub fn on_decided(&self, receiver: impl Fn(Vec<Decided>) + Send + Sync + 'static) {
        let _ = self.decisions().receiver.set(Box::new(receiver));
    }

    /// Grants no tickets of these nodes, and leases none of their browsers, as long as they are in the list. Only the first
    /// call has an effect.
    pub fn avoid(&self, unreachable: UnreachableNodes) {
        let _ = self.decisions().unreachable.set(unreachable);
    }

    /// Returns the nodes that are avoided now.
    pub(crate) fn avoided(&self) -> Vec<Column<NodeId>> {
        let avoided = self.decisions().unreachable.get().map(UnreachableNodes::all).unwrap_or_default();
        avoided.into_iter().map(Column).collect()
    }

    /// Reports decided tickets to the nodes of their waiters by notifications of the database, on the channels of the
    /// nodes ([`node_channel`]).
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn notify_decided(&self, decided: &[Decided]) -> Result<(), StoreError> {
        let (channels, tickets): (Vec<_>, Vec<_>) =
            decided.iter().map(|(node, ticket)| (node_channel(*node), ticket.to_string())).unzip();
        let work = async |connection: &mut AsyncPgConnection| {
            let notifying =
                diesel::sql_query("SELECT pg_notify(channel, ticket) FROM unnest($1, $2) AS decided (channel, ticket)");
            let notifying = notifying.bind::<Array<Text>, _>(&channels).bind::<Array<Text>, _>(&tickets);
            notifying.execute(connection).await?;
            Ok(())
        };
        self.call("wait_queue.notify", work).await
    }

    /// Reports what a transaction has decided, after its commit.
    pub(crate) async fn report(&self, decided: Vec<Decided>) {
        if decided.is_empty() {
            return;
        }
        match self.decisions().receiver.get() {
            Some(receiver) => receiver(decided),
            // The nodes of the waiters find the tickets later.
            None => drop(self.notify_decided(&decided).await),
        }
    }
}
