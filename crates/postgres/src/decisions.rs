//! Tickets that transactions of this process have decided, which are reported after the commit.
//!
//! `NOTIFY` in a granting transaction would make all commits wait for one lock of the whole database, so the notification
//! is a statement of its own, and the process may have a faster way ([`Database::on_decided`]). A report that is lost,
//! because the process was killed in between, costs the waiter up to the interval at which its node looks for decided
//! tickets.

use std::fmt;
use std::sync::{Arc, OnceLock};

use casement_domain::{NodeId, StoreError, TicketId};
use diesel::sql_types::{Array, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::database::Database;

/// The channel on which a node is notified of decided tickets. The payload is the id of a ticket.
#[must_use]
pub fn node_channel(node: NodeId) -> String {
    format!("casement_node_{node}")
}

/// A decided ticket with the node of its waiter.
pub type Decided = (NodeId, TicketId);

type Receiver = Box<dyn Fn(Vec<Decided>) + Send + Sync>;

/// The receiver of decided tickets, if the process has one.
#[derive(Clone, Default)]
pub(crate) struct Decisions(Arc<OnceLock<Receiver>>);

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Decisions").field(&self.0.get().is_some()).finish()
    }
}

impl Database {
    /// Sets what is done with tickets that a transaction of this process has decided, after its commit. Without it they
    /// are reported by [`notify_decided`](Self::notify_decided). Only the first call has an effect.
    pub fn on_decided(&self, receiver: impl Fn(Vec<Decided>) + Send + Sync + 'static) {
        let _ = self.decisions().0.set(Box::new(receiver));
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
        match self.decisions().0.get() {
            Some(receiver) => receiver(decided),
            // The nodes of the waiters find the tickets later.
            None => drop(self.notify_decided(&decided).await),
        }
    }
}
