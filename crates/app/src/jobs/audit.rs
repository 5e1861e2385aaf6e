//! Publishes the time up to which this node's audit records are complete.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::node::Node;
use casement_domain::{MonotonicClock as _, MonotonicTime};
use casement_telemetry::audit::BatchedAuditTrail;
use tokio_util::sync::CancellationToken;

use super::{Due, Job};
use crate::system::System;

/// The interval of the reports of a node that is alone.
const ALONE: time::Duration = time::Duration::seconds(15);

/// Publishes to other nodes the time up to which this node's records are complete, and records the calls that stopped
/// processes began. A node that is alone reports more rarely: nobody waits for its reports, which only have to stay recent, so
/// that its records are stored without a lock.
pub(crate) struct AuditCompleteness {
    trail: Arc<BatchedAuditTrail>,
    others: Due,
    abandoned: Due,
    reported_at: Option<MonotonicTime>,
}

impl AuditCompleteness {
    /// `others` says whether there are other nodes, `abandoned` whether calls were abandoned.
    pub(crate) fn new(trail: Arc<BatchedAuditTrail>, others: Due, abandoned: Due) -> Self {
        Self { trail, others, abandoned, reported_at: None }
    }
}

#[async_trait]
impl Job for AuditCompleteness {
    fn name(&self) -> &'static str {
        "audit completeness"
    }

    fn interval(&self) -> Duration {
        Node::HEARTBEAT.unsigned_abs()
    }

    async fn wait_until_due(&mut self) {
        tokio::select! {
            () = self.others.begins() => {}
            () = self.abandoned.begins() => {}
        }
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        let now = System.monotonic_now();
        let is_late = self.reported_at.is_none_or(|at| now - at >= ALONE - Node::HEARTBEAT / 2);
        if is_late || self.others.is_due() {
            self.trail.report().await?;
            self.reported_at = Some(now);
        }
        if self.abandoned.is_due() {
            self.trail.recover().await?;
        }
        Ok(())
    }
}
