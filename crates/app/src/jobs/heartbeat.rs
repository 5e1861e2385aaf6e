//! Records that this node is alive, and reads its state. It is a job of its own, because other jobs may take long.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::MonotonicClock as _;
use casement_domain::node::{Node, NodeRepository, OwnState};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Job, NodeReturn};
use crate::system::System;

/// Informs about the state of this node. Clones share it.
#[derive(Clone)]
pub(crate) struct NodeWaker {
    /// The stored state of this node may have changed.
    stored: Arc<Notify>,
    /// The heartbeat has read another state.
    read: watch::Sender<()>,
}

impl Default for NodeWaker {
    fn default() -> Self {
        Self { stored: Arc::default(), read: watch::Sender::new(()) }
    }
}

impl NodeWaker {
    /// Reads the state of this node again soon.
    pub(crate) fn read_soon(&self) {
        self.stored.notify_one();
    }

    /// Returns the receiver of the changes that the heartbeat reads from now on.
    pub(crate) fn changes(&self) -> StateChanges {
        StateChanges(self.read.subscribe())
    }
}

/// Receives the changes of the state of this node.
pub(crate) struct StateChanges(watch::Receiver<()>);

impl StateChanges {
    /// Resolves when the heartbeat has read another state since the last call. Cancel safe.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The heartbeat has ended, so nothing changes any more.
            std::future::pending::<()>().await;
        }
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
                    self.waker.read.send_replace(());
                }
            }
            None => {
                self.own.lose();
                warn!("other nodes have ended the sessions of this one while it was away");
                self.node_return.run().await?;
                self.waker.read.send_replace(());
            }
        }
        Ok(())
    }
}
