//! Reconciles leases and tickets whose commit outcome is unknown, when the store answers again.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::pool::Leases;
use tokio_util::sync::CancellationToken;

use super::Job;

pub(crate) struct UncertainWrites {
    pub(crate) leases: Leases,
}

#[async_trait]
impl Job for UncertainWrites {
    fn name(&self) -> &'static str {
        "uncertain writes"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        Ok(self.leases.reconcile().await?)
    }
}
