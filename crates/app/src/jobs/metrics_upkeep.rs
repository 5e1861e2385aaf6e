//! Sets the metrics that no event updates, and compacts the histograms of the metrics recorder.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::node::{NodeCondition, OwnState};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use super::{Job, Spares};
use crate::egress::SandboxEgress;

pub(crate) struct MetricsUpkeep {
    pub(crate) metrics: PrometheusHandle,
    pub(crate) sandbox_egress: Arc<SandboxEgress>,
    pub(crate) spares: Spares,
    pub(crate) own: OwnState,
    /// The number of sessions for which this node has room.
    pub(crate) max_sessions: u32,
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
        metrics::gauge!("casement_node_max_sessions").set(f64::from(self.max_sessions));
        let condition = self.own.condition();
        for other in NodeCondition::ALL {
            let value = if other == condition { 1.0 } else { 0.0 };
            metrics::gauge!("casement_node_state", "state" => other.as_str()).set(value);
        }
        self.metrics.run_upkeep();
        Ok(())
    }
}
