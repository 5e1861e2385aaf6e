//! Exports audit records to the buckets of the operator, when records were written or a destination was changed.

use std::time::Duration;

use async_trait::async_trait;
use casement_telemetry::audit_export::AuditExporter;
use tokio_util::sync::CancellationToken;

use super::Job;

/// The time after which records of nodes that have ended are exported, and those whose notification was lost.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct AuditExportJob {
    pub(crate) exporter: AuditExporter,
    /// The time for which records collect.
    pub(crate) interval: Duration,
}

#[async_trait]
impl Job for AuditExportJob {
    fn name(&self) -> &'static str {
        "audit export"
    }

    fn interval(&self) -> Duration {
        self.interval.max(MAX_INTERVAL)
    }

    async fn wait_until_due(&mut self) {
        self.exporter.wait_until_due().await;
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        // An object that is not finished is written again by the next run.
        Ok(stop.run_until_cancelled(self.exporter.run()).await.unwrap_or(Ok(()))?)
    }
}
