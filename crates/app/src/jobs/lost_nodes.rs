//! Ends the sessions, tickets and invocations of lost nodes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::Clock as _;
use casement_domain::invocation::Runs;
use casement_domain::node::NodeWatch;
use casement_domain::pool::WaitQueue;
use casement_domain::session::Sessions;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Job;
use crate::system::System;

pub(crate) struct LostNodes {
    pub(crate) others: NodeWatch,
    pub(crate) wait_queue: Arc<dyn WaitQueue>,
    pub(crate) sessions: Sessions,
    pub(crate) runs: Runs,
}

#[async_trait]
impl Job for LostNodes {
    fn name(&self) -> &'static str {
        "lost nodes"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        for node in self.others.lost().await? {
            warn!(%node, "a node is lost; its sessions end");
            self.wait_queue.clear(node, System.now()).await?;
            self.sessions.mark_node_lost(node).await?;
            self.runs.mark_node_lost(node).await?;
        }
        Ok(())
    }
}
