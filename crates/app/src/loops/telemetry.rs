//! Room for telemetry ahead of time, and an end to what is too old.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::Clock as _;
use casement_domain::telemetry::TelemetryStore;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::system::System;

const EVERY: Duration = Duration::from_secs(3600);

/// Runs until `stop`. `kept`: how long events are kept.
pub(crate) async fn keep_telemetry(store: Arc<dyn TelemetryStore>, kept: time::Duration, stop: CancellationToken) {
    let mut tick = tokio::time::interval(EVERY);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let now = System.now();
        if let Err(error) = store.tidy(now, now - kept).await {
            warn!(%error, "the telemetry could not be tidied; trying again in an hour");
        }
    }
}
