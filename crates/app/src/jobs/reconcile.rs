//! Reconciles the store with the browsers of this node, in case notifications or events were lost.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::pool::PoolFiller;
use casement_domain::session::Sessions;
use tokio_util::sync::CancellationToken;

use super::{Due, Job, TicketNotifications};

pub(crate) struct Reconcile {
    pub(crate) sessions: Sessions,
    pub(crate) filler: PoolFiller,
    pub(crate) tickets: TicketNotifications,
    /// The store has sessions of this node.
    pub(crate) due_sessions: Due,
    /// The store has tickets of this node.
    pub(crate) due_tickets: Due,
}

#[async_trait]
impl Job for Reconcile {
    fn name(&self) -> &'static str {
        "reconcile"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn wait_until_due(&mut self) {
        tokio::select! {
            () = self.due_sessions.begins() => {}
            () = self.due_tickets.begins() => {}
        }
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        // A session that is watched and not stored has ended.
        if self.due_sessions.is_due() || self.sessions.activity().sessions() > 0 {
            self.sessions.check().await?;
        }
        self.filler.clear_lost().await?;
        if self.due_tickets.is_due() {
            self.tickets.wake_decided().await?;
        }
        Ok(())
    }
}
