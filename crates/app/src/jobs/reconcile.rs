//! Reconciles the store with the browsers of this node, in case notifications or events were lost.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::pool::PoolFiller;
use casement_domain::session::Sessions;
use tokio_util::sync::CancellationToken;

use super::{Job, TicketNotifications};

pub(crate) struct Reconcile {
    pub(crate) sessions: Sessions,
    pub(crate) filler: PoolFiller,
    pub(crate) tickets: TicketNotifications,
}

#[async_trait]
impl Job for Reconcile {
    fn name(&self) -> &'static str {
        "reconcile"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        self.sessions.check().await?;
        self.filler.clear_lost().await?;
        Ok(self.tickets.wake_decided().await?)
    }
}
