//! The ports of nodes.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::Node;
use crate::ids::NodeId;
use crate::store_error::StoreError;

/// Where nodes are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait NodeRepository: Send + Sync {
    /// Stores the node, or what changed of it since its last life. It lives now, as with [`heartbeat`](Self::heartbeat).
    async fn announce(&self, node: &Node) -> Result<(), StoreError>;

    /// The node lives now, by the store's own clock, which all nodes share.
    async fn heartbeat(&self, id: NodeId) -> Result<(), StoreError>;

    /// The nodes that have sessions, browsers or waiters, with the last word of each.
    async fn with_remains(&self) -> Result<Vec<(NodeId, OffsetDateTime)>, StoreError>;
}
