//! Exports the stored telemetry of lost nodes, on one of the living nodes.

use std::time::Duration;

use async_trait::async_trait;
use casement_telemetry::destinations::DestinationExporter;
use tokio_util::sync::CancellationToken;

use super::Job;

pub(crate) struct TelemetryTakeover {
    pub(crate) exporter: DestinationExporter,
}

#[async_trait]
impl Job for TelemetryTakeover {
    fn name(&self) -> &'static str {
        "telemetry takeover"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        Ok(self.exporter.take_over().await?)
    }
}
