//! Creates partitions for telemetry events ahead of time and drops events that are too old.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::telemetry::TelemetryStore;
use tokio_util::sync::CancellationToken;

use super::Job;
use crate::system::System;

pub(crate) struct TelemetryRetention {
    pub(crate) store: Arc<dyn TelemetryStore>,
    pub(crate) retention: time::Duration,
}

#[async_trait]
impl Job for TelemetryRetention {
    fn name(&self) -> &'static str {
        "telemetry retention"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        let now = System.now();
        Ok(self.store.tidy(now, now - self.retention).await?)
    }
}
