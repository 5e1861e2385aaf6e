//! Room for audit records ahead of time, and an end to those that are too old; and what nodes tell each other of theirs.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::Clock as _;
use casement_domain::audit::AuditRepository;
use casement_domain::node::Node;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::system::System;
use casement_telemetry::audit::GroupedTrail;

const EVERY: Duration = Duration::from_secs(3600);

/// Runs until `stop`. `kept`: how long records are kept.
pub(crate) async fn keep_audit(repository: Arc<dyn AuditRepository>, kept: time::Duration, stop: CancellationToken) {
    let mut tick = tokio::time::interval(EVERY);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let now = System.now();
        if let Err(error) = repository.tidy(now, now - kept).await {
            warn!(%error, "the audit records could not be tidied; trying again in an hour");
        }
    }
}

/// Runs until `stop`. The first time is at once: calls that an earlier run of this node had begun are recorded.
pub(crate) async fn tend_trail(trail: Arc<GroupedTrail>, stop: CancellationToken) {
    let mut tick = tokio::time::interval(Node::HEARTBEAT.unsigned_abs());
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        if let Err(error) = trail.tend().await {
            debug!(%error, "the audit records of this node are not said to be complete; trying again");
        }
    }
}
