//! Records that this node is alive, and reads its state. It is a job of its own, because other jobs may take long.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::MonotonicClock as _;
use casement_domain::node::{Node, NodeRepository, OwnState};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Job, NodeReturn};
use crate::system::System;

/// Wakes the jobs about the state of this node. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct NodeWaker {
    /// The stored state of this node may have changed.
    stored: Arc<Notify>,
    /// The heartbeat has read another state.
    read: Arc<Notify>,
}

impl NodeWaker {
    /// Reads the state of this node again soon.
    pub(crate) fn read_soon(&self) {
        self.stored.notify_one();
    }

    /// Resolves when the heartbeat has read another state.
    pub(crate) async fn changed(&self) {
        self.read.notified().await;
    }
}

pub(crate) struct Heartbeat {
    pub(crate) own: OwnState,
    pub(crate) nodes: Arc<dyn NodeRepository>,
    pub(crate) waker: NodeWaker,
    pub(crate) node_return: NodeReturn,
}

#[async_trait]
impl Job for Heartbeat {
    fn name(&self) -> &'static str {
        "heartbeat"
    }

    fn interval(&self) -> Duration {
        Node::HEARTBEAT.unsigned_abs()
    }

    async fn wait_until_due(&mut self) {
        self.waker.stored.notified().await;
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        let (before, sent_at) = (self.own.state(), System.monotonic_now());
        match self.nodes.heartbeat(self.own.id(), self.own.epoch()).await? {
            Some(heartbeat) => {
                self.own.confirm(heartbeat, sent_at);
                if heartbeat.state != before {
                    info!(state = heartbeat.state.as_str(), "the state of this node has changed");
                    self.waker.read.notify_one();
                }
            }
            None => {
                self.own.lose();
                warn!("other nodes have ended the sessions of this one while it was away");
                self.node_return.run().await?;
                self.waker.read.notify_one();
            }
        }
        Ok(())
    }
}
