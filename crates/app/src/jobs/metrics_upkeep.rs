//! Sets the metrics that no event updates, and compacts the histograms of the metrics recorder.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use super::{Job, Spares};
use crate::egress::SandboxEgress;

pub(crate) struct MetricsUpkeep {
    pub(crate) metrics: PrometheusHandle,
    pub(crate) sandbox_egress: Arc<SandboxEgress>,
    pub(crate) spares: Spares,
}

#[async_trait]
impl Job for MetricsUpkeep {
    fn name(&self) -> &'static str {
        "metrics upkeep"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        self.sandbox_egress.measure();
        metrics::gauge!("casement_spare_browsers").set(f64::from(self.spares.ready()));
        self.metrics.run_upkeep();
        Ok(())
    }
}
