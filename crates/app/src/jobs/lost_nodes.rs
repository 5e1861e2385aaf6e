//! Ends the sessions, tickets and invocations of lost nodes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::invocation::Runs;
use casement_domain::node::{NodeRepository, NodeWatch};
use casement_domain::pool::WaitQueue;
use casement_domain::session::Sessions;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Due, Job};
use crate::system::System;

pub(crate) struct LostNodes {
    pub(crate) others: NodeWatch,
    pub(crate) nodes: Arc<dyn NodeRepository>,
    pub(crate) wait_queue: Arc<dyn WaitQueue>,
    pub(crate) sessions: Sessions,
    pub(crate) runs: Runs,
    /// There are other nodes.
    pub(crate) due: Due,
}

#[async_trait]
impl Job for LostNodes {
    fn name(&self) -> &'static str {
        "lost nodes"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn wait_until_due(&mut self) {
        self.due.begins().await;
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        if !self.due.is_due() {
            return Ok(());
        }
        for silent in self.others.lost().await? {
            let node = silent.id;
            // Read before the node is lost: it may return at once, and take others.
            let running = self.runs.of_node(node).await?;
            let Some(ended) = self.nodes.lose(silent, System.now()).await? else { continue };
            metrics::counter!("casement_nodes_lost_total").increment(1);
            warn!(%node, sessions = ended.len(), "a node is lost; its sessions have ended");
            self.runs.mark_node_lost(running).await?;
            self.wait_queue.clear(node, System.now()).await?;
            self.sessions.mark_node_lost(&ended).await;
        }
        Ok(())
    }
}
