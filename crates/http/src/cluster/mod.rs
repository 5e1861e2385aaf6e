//! Requests between nodes: a request for a session of another node is relayed to that node.
//!
//! The node that a client reaches, the entrance, authenticates the caller, counts the call and records it. Then it sends
//! the request to the owner of the session, over TLS with keys that both sides have pinned, and passes the response. A
//! relayed request is never relayed again.

mod body;
mod calls;
mod connections;
mod forward;
mod headers;
mod identity;
mod lifetime;
mod listener;
mod owners;
mod peers;
mod relayed;
mod send;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use casement_domain::{
    NodeId, StoreError,
    node::{Epoch, Fingerprint, NodeRepository},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use self::connections::Endpoint;
pub(crate) use self::{
    calls::answer_call,
    connections::NodeConnections,
    forward::{Destination, forward, forward_bytes, forward_upgrade},
    headers::{Hop, admit, mark_as_full},
    lifetime::Lifetime,
    listener::accept,
    owners::Owners,
    peers::PATH,
    relayed::{keep_response, relayed_response},
};
pub use self::{
    identity::{IdentityError, NodeIdentity},
    owners::Owner,
    peers::NodeCalls,
};

/// This node among the nodes of its database. Clones share everything.
#[derive(Clone)]
pub struct Cluster {
    node: NodeId,
    epoch: Arc<AtomicI64>,
    identity: NodeIdentity,
    nodes: Arc<dyn NodeRepository>,
    /// How other nodes are reached.
    endpoints: Arc<Mutex<HashMap<NodeId, Endpoint>>>,
    /// The nodes that have proved their keys.
    peers: Arc<Mutex<HashMap<Fingerprint, NodeId>>>,
    /// The present run of each node that was reached, as the store said it after the last change of a node.
    runs: Arc<watch::Sender<HashMap<NodeId, Epoch>>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("node", &self.node).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates the description of this node, in its run `epoch`.
    #[must_use]
    pub fn new(node: NodeId, epoch: Epoch, identity: NodeIdentity, nodes: Arc<dyn NodeRepository>) -> Self {
        Self {
            node,
            epoch: Arc::new(AtomicI64::new(epoch.0)),
            identity,
            nodes,
            endpoints: Arc::default(),
            peers: Arc::default(),
            runs: Arc::new(watch::Sender::new(HashMap::new())),
        }
    }

    /// Notes that the node has a new run. Requests that are meant for an earlier one are refused.
    pub fn begin_run(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::SeqCst);
    }

    /// Reads the runs of the nodes that this node has reached, because a node came, was lost or changed its state. Requests
    /// that wait for an earlier run end.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn nodes_changed(&self) -> Result<(), StoreError> {
        let reached: Vec<NodeId> = self.endpoints.lock().keys().copied().collect();
        for node in reached {
            if let Some(stored) = self.nodes.find(node).await? {
                self.runs.send_modify(|runs| {
                    runs.insert(node, stored.epoch);
                });
            }
        }
        Ok(())
    }

    /// Waits until this run of a node is over: the node was lost, or has started again.
    async fn until_over(self, node: NodeId, run: Epoch) {
        let mut runs = self.runs.subscribe();
        drop(runs.wait_for(|runs| runs.get(&node).is_some_and(|present| *present > run)).await);
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::SeqCst))
    }
}
