//! The detection of lost nodes.

use std::sync::Arc;

use parking_lot::Mutex;
use time::OffsetDateTime;

use super::{Node, NodeRepository};
use crate::clock::{FirstSeen, MonotonicClock};
use crate::ids::NodeId;
use crate::store_error::StoreError;

/// Finds the nodes without a recent heartbeat. It measures the time for which this process has read the same heartbeat
/// of a node, because the clocks of the nodes and of the store may differ and may be set at any moment.
pub struct NodeWatch {
    own: NodeId,
    nodes: Arc<dyn NodeRepository>,
    monotonic: Arc<dyn MonotonicClock>,
    heartbeats: Mutex<FirstSeen<(NodeId, OffsetDateTime)>>,
}

impl NodeWatch {
    /// Creates the watch of the node `own`.
    #[must_use]
    pub fn new(own: NodeId, nodes: Arc<dyn NodeRepository>, monotonic: Arc<dyn MonotonicClock>) -> Self {
        Self { own, nodes, monotonic, heartbeats: Mutex::default() }
    }

    /// Returns the other nodes with sessions, browsers or waiters that sent no heartbeat for [`Node::LOST_AFTER`]. Must
    /// be called every few seconds.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn lost(&self) -> Result<Vec<NodeId>, StoreError> {
        let mut nodes = self.nodes.with_remains().await?;
        nodes.retain(|(id, _)| *id != self.own);
        let mut heartbeats = self.heartbeats.lock();
        let silent = heartbeats.seen_for(nodes, Node::LOST_AFTER, self.monotonic.monotonic_now());
        let mut lost: Vec<NodeId> = silent.into_iter().map(|(id, _)| id).collect();
        lost.sort_unstable();
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::node::MockNodeRepository;
    use crate::testing::{FixedClock, NOON, node_id};

    #[tokio::test]
    async fn a_node_is_lost_when_its_heartbeat_stays_the_same_whatever_the_clocks_say() {
        let (other, clock) = (NodeId::from_ulid(ulid::Ulid(7)), Arc::new(FixedClock::default()));
        let mut nodes = MockNodeRepository::new();
        let mut heartbeats = vec![NOON + Duration::HOUR, NOON - Duration::DAY, NOON - Duration::DAY, NOON].into_iter();
        nodes
            .expect_with_remains()
            .returning(move || Ok(vec![(node_id(), NOON), (other, heartbeats.next().expect("four calls"))]));
        let watch = NodeWatch::new(node_id(), Arc::new(nodes), clock.clone());
        for lost in [vec![], vec![], vec![other], vec![]] {
            clock.step(Duration::hours(-5));
            assert_eq!(watch.lost().await.expect("an answer"), lost);
            clock.advance(Node::LOST_AFTER);
        }
    }
}
