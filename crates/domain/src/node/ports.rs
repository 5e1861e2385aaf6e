//! What nodes need from outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::Node;
use crate::ids::NodeId;
use crate::store_error::StoreError;

/// Where nodes are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait NodeRepository: Send + Sync {
    /// Stores the node, or what changed of it since its last life.
    async fn announce(&self, node: &Node) -> Result<(), StoreError>;

    /// The node lives at `at`.
    async fn heartbeat(&self, id: NodeId, at: OffsetDateTime) -> Result<(), StoreError>;

    /// The nodes that have sessions, browsers or waiters but were silent since `before`.
    async fn silent_since(&self, before: OffsetDateTime) -> Result<Vec<NodeId>, StoreError>;
}
