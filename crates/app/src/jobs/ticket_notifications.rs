//! Receives the notifications of the database: wakes the waiters of this node when their tickets are decided, and the
//! heartbeat when the state of this node was changed; applies the changes of all nodes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::pool::{Leases, PeerRequests, WaitQueue};
use casement_domain::{NodeId, StoreError, TicketId};
use casement_postgres::{
    CHANGES_CHANNEL, NODES_CHANNEL, NotificationEvent, NotificationHub, UnknownChange, node_channel,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{ChangeHandler, Job, NodeWaker};

#[derive(Clone)]
pub(crate) struct TicketNotifications {
    pub(crate) node: NodeId,
    pub(crate) node_waker: NodeWaker,
    pub(crate) notifications: NotificationHub,
    pub(crate) wait_queue: Arc<dyn WaitQueue>,
    pub(crate) leases: Leases,
    pub(crate) requests: PeerRequests,
    pub(crate) changes: ChangeHandler,
}

impl TicketNotifications {
    /// Wakes the waiters of all decided tickets, in case notifications were lost. Abandons tickets without a waiter,
    /// because their callers have disconnected.
    pub(crate) async fn wake_decided(&self) -> Result<(), StoreError> {
        for ticket in self.wait_queue.decided(self.node).await? {
            self.requests.decided(ticket).await?;
        }
        Ok(())
    }

    async fn handle(&self, notification: NotificationEvent) {
        match notification {
            NotificationEvent::Notification { channel, payload } if channel == NODES_CHANNEL => {
                if payload.parse() == Ok(self.node) {
                    self.node_waker.read_soon();
                }
                self.changes.nodes_changed();
            }
            NotificationEvent::Notification { channel, payload } if channel == CHANGES_CHANNEL => {
                match payload.parse() {
                    Ok(change) => self.changes.apply(change),
                    // A newer version may know more changes.
                    Err(UnknownChange) => debug!(payload, "ignored an unknown change"),
                }
            }
            NotificationEvent::Notification { payload, .. } => match payload.parse() {
                Ok(ticket) => self.decided(ticket),
                Err(_) => warn!(payload, "ignored an invalid notification about tickets"),
            },
            // Notifications may have been lost before this event.
            NotificationEvent::Listening => {
                self.node_waker.read_soon();
                self.changes.apply_all();
                if let Err(error) = self.reconcile().await {
                    warn!(%error, "cannot read the tickets that were decided while notifications were interrupted");
                }
            }
        }
    }

    /// Wakes the waiter, in a task of its own, because a ticket without a waiter takes calls to the store.
    fn decided(&self, ticket: TicketId) {
        let requests = self.requests.clone();
        tokio::spawn(async move { requests.decided(ticket).await });
    }

    async fn reconcile(&self) -> Result<(), StoreError> {
        self.wake_decided().await?;
        self.leases.reconcile().await
    }
}

#[async_trait]
impl Job for TicketNotifications {
    fn name(&self) -> &'static str {
        "ticket notifications"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        let channels = vec![node_channel(self.node), NODES_CHANNEL.to_owned(), CHANGES_CHANNEL.to_owned()];
        let mut notifications = self.notifications.subscribe(channels);
        while let Some(notification) = stop.run_until_cancelled(notifications.next()).await {
            self.handle(notification).await;
        }
        Ok(())
    }
}
