//! The ports of nodes.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Epoch, Fingerprint, Node, StoredNode};
use crate::ids::NodeId;
use crate::store_error::StoreError;

/// The port to the stored nodes.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait NodeRepository: Send + Sync {
    /// Stores the node, or its changes since the last run, with a [`heartbeat`](Self::heartbeat). The node is serving
    /// then. Returns the number of the run, which is higher than that of all runs before.
    async fn announce(&self, node: &Node) -> Result<Epoch, StoreError>;

    /// Returns the node; `None` if it never started.
    async fn find(&self, id: NodeId) -> Result<Option<StoredNode>, StoreError>;

    /// Returns the node whose present key has this fingerprint.
    async fn find_by_key(&self, fingerprint: Fingerprint) -> Result<Option<StoredNode>, StoreError>;

    /// Stores a heartbeat of the node, by the store's own clock, which all nodes share.
    async fn heartbeat(&self, id: NodeId) -> Result<(), StoreError>;

    /// Returns the nodes that have sessions, browsers or waiters, with the last heartbeat of each.
    async fn with_remains(&self) -> Result<Vec<(NodeId, OffsetDateTime)>, StoreError>;
}
