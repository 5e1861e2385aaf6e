//! Records that this node is alive. It is a job of its own, because other jobs may take long.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::NodeId;
use casement_domain::node::{Node, NodeRepository};
use tokio_util::sync::CancellationToken;

use super::Job;

pub(crate) struct Heartbeat {
    pub(crate) node: NodeId,
    pub(crate) nodes: Arc<dyn NodeRepository>,
}

#[async_trait]
impl Job for Heartbeat {
    fn name(&self) -> &'static str {
        "heartbeat"
    }

    fn interval(&self) -> Duration {
        Node::HEARTBEAT.unsigned_abs()
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        Ok(self.nodes.heartbeat(self.node).await?)
    }
}
