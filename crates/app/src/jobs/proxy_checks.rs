//! Repeats the checks of proxies when they are due.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::proxy::Proxies;
use tokio_util::sync::CancellationToken;

use super::{Due, Job};

const BATCH: u32 = 8;

pub(crate) struct ProxyChecks {
    pub(crate) proxies: Proxies,
    pub(crate) due: Due,
}

#[async_trait]
impl Job for ProxyChecks {
    fn name(&self) -> &'static str {
        "proxy checks"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn wait_until_due(&mut self) {
        self.due.begins().await;
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        if !self.due.is_due() {
            return Ok(());
        }
        let checking = async {
            // Takes batches, so that other nodes can take a part of the due checks.
            while self.proxies.check_due(BATCH).await? == BATCH as usize {}
            Ok(())
        };
        stop.run_until_cancelled(checking).await.unwrap_or(Ok(()))
    }
}
