//! The detection of lost nodes.

use std::sync::Arc;

use parking_lot::Mutex;
use time::{Duration, OffsetDateTime};

use super::{Node, NodeRepository};
use crate::clock::{FirstSeen, MonotonicClock, MonotonicTime};
use crate::ids::NodeId;
use crate::store_error::StoreError;

/// The longest pause between two reads in which the silence of the other nodes counts.
const MAX_READ_INTERVAL: Duration = Duration::seconds(15);

/// A node that was silent for [`Node::LOST_AFTER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentNode {
    /// The node.
    pub id: NodeId,
    /// Its last heartbeat.
    pub heartbeat_at: OffsetDateTime,
}

/// Finds the nodes without a recent heartbeat. It measures the time for which this process has read the same heartbeat
/// of a node, because the clocks of the nodes and of the store may differ and may be set at any moment. Times in which
/// this process could not read do not count, because then the other nodes may not have been able to write.
pub struct NodeWatch {
    own: NodeId,
    nodes: Arc<dyn NodeRepository>,
    monotonic: Arc<dyn MonotonicClock>,
    heartbeats: Mutex<Heartbeats>,
}

#[derive(Default)]
struct Heartbeats {
    seen: FirstSeen<(NodeId, OffsetDateTime)>,
    last_read: Option<MonotonicTime>,
}

impl NodeWatch {
    /// Creates the watch of the node `own`.
    #[must_use]
    pub fn new(own: NodeId, nodes: Arc<dyn NodeRepository>, monotonic: Arc<dyn MonotonicClock>) -> Self {
        Self { own, nodes, monotonic, heartbeats: Mutex::default() }
    }

    /// Returns the other nodes with something left that sent no heartbeat for [`Node::LOST_AFTER`]. Must be called every
    /// few seconds.
    ///
    /// # Errors
    /// Returns the error of the store. The silence of all nodes counts anew then.
    pub async fn lost(&self) -> Result<Vec<SilentNode>, StoreError> {
        let mut nodes = match self.nodes.with_remains().await {
            Ok(nodes) => nodes,
            Err(error) => {
                *self.heartbeats.lock() = Heartbeats::default();
                return Err(error);
            }
        };
        nodes.retain(|(id, _)| *id != self.own);
        let now = self.monotonic.monotonic_now();
        let mut heartbeats = self.heartbeats.lock();
        if heartbeats.last_read.is_some_and(|last| now - last > MAX_READ_INTERVAL) {
            *heartbeats = Heartbeats::default();
        }
        heartbeats.last_read = Some(now);
        let silent = heartbeats.seen.seen_for(nodes, Node::LOST_AFTER, now);
        let mut lost: Vec<_> = silent.into_iter().map(|(id, heartbeat_at)| SilentNode { id, heartbeat_at }).collect();
        lost.sort_unstable_by_key(|node| node.id);
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::MockNodeRepository;
    use crate::testing::{FixedClock, NOON, node_id};

    fn other() -> NodeId {
        NodeId::from_ulid(ulid::Ulid(7))
    }

    fn lost_at(heartbeat_at: OffsetDateTime) -> Vec<SilentNode> {
        vec![SilentNode { id: other(), heartbeat_at }]
    }

    #[tokio::test]
    async fn a_node_is_lost_when_its_heartbeat_stays_the_same_whatever_the_clocks_say() {
        let clock = Arc::new(FixedClock::default());
        let mut nodes = MockNodeRepository::new();
        let past = NOON - Duration::DAY;
        let mut heartbeats = [NOON + Duration::HOUR, past, past, past, past, NOON].into_iter();
        nodes
            .expect_with_remains()
            .returning(move || Ok(vec![(node_id(), NOON), (other(), heartbeats.next().expect("six calls"))]));
        let watch = NodeWatch::new(node_id(), Arc::new(nodes), clock.clone());
        for lost in [vec![], vec![], vec![], vec![], lost_at(past), vec![]] {
            clock.step(Duration::hours(-5));
            assert_eq!(watch.lost().await.expect("an answer"), lost);
            clock.advance(Node::LOST_AFTER / 3);
        }
    }

    #[tokio::test]
    async fn no_node_is_lost_because_the_store_or_this_process_was_away() {
        let clock = Arc::new(FixedClock::default());
        let mut nodes = MockNodeRepository::new();
        let mut fails = [false, true, false, false, false, false, false].into_iter();
        nodes.expect_with_remains().returning(move || match fails.next() {
            Some(true) => Err(StoreError::unavailable("node.with_remains", "away")),
            _ => Ok(vec![(other(), NOON)]),
        });
        let watch = NodeWatch::new(node_id(), Arc::new(nodes), clock.clone());
        assert_eq!(watch.lost().await.expect("an answer"), []);
        clock.advance(Duration::seconds(10));
        assert!(watch.lost().await.is_err());
        // The node could not write either: its silence counts from now.
        clock.advance(Node::LOST_AFTER);
        assert_eq!(watch.lost().await.expect("an answer"), []);
        // This process was stopped.
        clock.advance(Node::LOST_AFTER);
        assert_eq!(watch.lost().await.expect("an answer"), []);
        for _ in 0..2 {
            clock.advance(MAX_READ_INTERVAL);
            assert_eq!(watch.lost().await.expect("an answer"), []);
        }
        clock.advance(MAX_READ_INTERVAL);
        assert_eq!(watch.lost().await.expect("an answer"), lost_at(NOON));
    }
}
