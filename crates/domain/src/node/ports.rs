//! The ports of nodes.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{Epoch, Fingerprint, Node, NodeFilter, NodeState, NodeStatus, SilentNode, StoredNode};
use crate::ids::NodeId;
use crate::page::{Listed, Page};
use crate::session::Session;
use crate::store_error::{Replaced, StoreError};

/// What a node reads when it stores its heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The state.
    pub state: NodeState,
    /// The rest of the time that a drain gives sessions, by the clock of the store; `None`: no limit.
    pub drain_left: Option<Duration>,
}

/// A change of the state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The run that changes.
    pub epoch: Epoch,
    /// The state from which it changes.
    pub from: NodeState,
    /// The new state.
    pub to: NodeState,
    /// The time that a drain gives sessions, from now on; `None`: as before. The earlier of two ends counts. A node that
    /// serves again has none.
    pub drain: Option<Duration>,
}

/// The port to the stored nodes.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait NodeRepository: Send + Sync {
    /// Stores the node, or its changes since the last run, with a [`heartbeat`](Self::heartbeat). The node is serving
    /// then. Returns the number of the run, which is higher than that of all runs before. Notifies all nodes.
    async fn announce(&self, node: &Node) -> Result<Epoch, StoreError>;

    /// Returns the node; `None` if it never started.
    async fn find(&self, id: NodeId) -> Result<Option<StoredNode>, StoreError>;

    /// Returns the node whose present key has this fingerprint.
    async fn find_by_key(&self, fingerprint: Fingerprint) -> Result<Option<StoredNode>, StoreError>;

    /// Returns the node with its condition and its load; `None` if it never started.
    async fn status(&self, id: NodeId) -> Result<Option<NodeStatus>, StoreError>;

    /// Returns the nodes with their conditions and their load, by host and id. Nodes that have been silent for
    /// [`Node::LISTED_FOR`] are left out.
    async fn list(&self, filter: &NodeFilter, page: Page) -> Result<Listed<NodeStatus>, StoreError>;

    /// Stores a heartbeat of this run of the node, by the store's own clock, which all nodes share. Returns `None`, and
    /// stores nothing, if the run has ended: another one began, or the node was [lost](Self::lose).
    async fn heartbeat(&self, id: NodeId, epoch: Epoch) -> Result<Option<Heartbeat>, StoreError>;

    /// Changes the state of the run, if it still has the state from which it changes, and notifies all nodes.
    async fn change_state(&self, id: NodeId, change: StateChange) -> Result<Replaced, StoreError>;

    /// Makes the draining run drained, if it has no sessions, browsers, running invocations and waiting callers. Returns
    /// whether it did.
    async fn finish_drain(&self, id: NodeId, epoch: Epoch) -> Result<bool, StoreError>;

    /// Returns the nodes that have sessions, browsers, running invocations or waiters, with the last heartbeat of each.
    async fn with_remains(&self) -> Result<Vec<(NodeId, OffsetDateTime)>, StoreError>;

    /// Ends the run of a node that is still silent: raises its epoch, ends its sessions and deletes the rows of its
    /// browsers, in one transaction, which also notifies all nodes. Returns the ended sessions; `None` if the node has sent
    /// a heartbeat meanwhile.
    async fn lose(&self, node: SilentNode, at: OffsetDateTime) -> Result<Option<Vec<Session>>, StoreError>;
}
