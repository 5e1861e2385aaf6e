//! Maintains the audit trail: creates partitions ahead of time, deletes old records, and publishes the time up to which
//! this node's records are complete.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::audit::AuditRepository;
use casement_domain::node::Node;
use casement_telemetry::audit::BatchedAuditTrail;
use tokio_util::sync::CancellationToken;

use super::Job;
use crate::system::System;

/// Creates partitions ahead of time and drops records that are too old.
pub(crate) struct AuditRetention {
    pub(crate) repository: Arc<dyn AuditRepository>,
    pub(crate) retention: time::Duration,
}

#[async_trait]
impl Job for AuditRetention {
    fn name(&self) -> &'static str {
        "audit retention"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        let now = System.now();
        Ok(self.repository.tidy(now, now - self.retention).await?)
    }
}

/// Publishes to other nodes the time up to which this node's records are complete. The first run records the calls that
/// an earlier process of the node began.
pub(crate) struct AuditCompleteness {
    pub(crate) trail: Arc<BatchedAuditTrail>,
}

#[async_trait]
impl Job for AuditCompleteness {
    fn name(&self) -> &'static str {
        "audit completeness"
    }

    fn interval(&self) -> Duration {
        Node::HEARTBEAT.unsigned_abs()
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        Ok(self.trail.reconcile().await?)
    }
}
