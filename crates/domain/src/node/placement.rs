//! On which node a new session starts.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use time::Duration;

use super::Node;
use crate::clock::{MonotonicClock, MonotonicTime};
use crate::ids::NodeId;
use crate::store_error::StoreError;

/// The room of a node that is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRoom {
    /// The node.
    pub node: NodeId,
    /// Whether it takes new sessions.
    pub is_serving: bool,
    /// Whether other nodes reach it.
    pub is_reachable: bool,
    /// The places for which it has room; `None` if it does not say.
    pub places: Option<u32>,
    /// The places of its browsers that are not ending, and of its sessions that start. Spare browsers do not count.
    pub used: u32,
}

impl NodeRoom {
    /// Returns whether the node takes sessions at all.
    fn takes_sessions(&self) -> bool {
        self.is_serving && self.places != Some(0)
    }

    fn free(&self) -> u32 {
        self.places.map_or(u32::MAX, |places| places.saturating_sub(self.used))
    }
}

/// The port to the stored rooms of nodes.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait NodeRooms: Send + Sync {
    /// Returns the rooms of `own` and of all nodes that sent a heartbeat within [`Node::LEASED_WITHIN`].
    async fn rooms(&self, own: NodeId) -> Result<Vec<NodeRoom>, StoreError>;
}

/// Where a new session starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this node.
    Here,
    /// On this other node, which this node reaches.
    Elsewhere(NodeId),
    /// Nowhere: this node takes no sessions, and it reaches no node that does.
    Nowhere,
}

/// Returns where a session of this number of places starts that is requested at `own`: there if it has room, else on the
/// reachable node with the most room. If no node has room, it starts at `own`, whose machine has the last word; the number
/// of places is an estimate. If `own` takes no sessions, it starts on the node that is least full.
#[must_use]
pub fn place(own: NodeId, places: u32, rooms: &[NodeRoom]) -> Place {
    let here = rooms.iter().find(|room| room.node == own);
    let takes_here = here.is_none_or(NodeRoom::takes_sessions);
    if takes_here && here.is_none_or(|room| room.free() >= places) {
        return Place::Here;
    }
    let others = rooms.iter().filter(|room| room.node != own && room.is_reachable && room.takes_sessions());
    let most_room = others.min_by_key(|room| (Reverse(room.free()), room.used, room.node));
    match most_room {
        Some(room) if room.free() >= places || !takes_here => Place::Elsewhere(room.node),
        _ if takes_here => Place::Here,
        _ => Place::Nowhere,
    }
}

/// The use case.
#[derive(Clone)]
pub struct Placement {
    own: NodeId,
    rooms: Arc<dyn NodeRooms>,
    monotonic: Arc<dyn MonotonicClock>,
    /// The time until which this node counts as the only one, so that a single node reads nothing for each session.
    alone_until: Arc<Mutex<Option<MonotonicTime>>>,
}

impl Placement {
    /// How long a node that found no other one does not look again.
    const ALONE: Duration = Node::HEARTBEAT;

    /// Creates the use case of the node `own`.
    #[must_use]
    pub fn new(own: NodeId, rooms: Arc<dyn NodeRooms>, monotonic: Arc<dyn MonotonicClock>) -> Self {
        Self { own, rooms, monotonic, alone_until: Arc::default() }
    }

    /// Chooses the node on which a session of this number of places starts; see [`place`].
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn choose(&self, places: u32) -> Result<Place, StoreError> {
        let now = self.monotonic.monotonic_now();
        if self.alone_until.lock().is_some_and(|until| now < until) {
            return Ok(Place::Here);
        }
        let rooms = self.rooms.rooms(self.own).await?;
        let is_alone = rooms.iter().all(|room| room.node == self.own && room.takes_sessions());
        *self.alone_until.lock() = is_alone.then(|| now + Self::ALONE);
        Ok(place(self.own, places, &rooms))
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;
    use crate::testing::{FixedClock, node_id};

    fn room(n: u128, places: u32, used: u32) -> NodeRoom {
        let node = NodeId::from_ulid(Ulid::from_parts(3, n));
        NodeRoom { node, is_serving: true, is_reachable: true, places: Some(places), used }
    }

    #[test]
    fn a_session_starts_where_it_was_requested_or_where_most_room_is() {
        let other = |n| Place::Elsewhere(room(n, 0, 0).node);
        let draining = NodeRoom { is_serving: false, ..room(1, 10, 0) };
        for (rooms, places, expected) in [
            (vec![room(1, 10, 9), room(2, 90, 0)], 1, Place::Here),
            (vec![room(1, 10, 9), room(2, 90, 0)], 2, other(2)),
            (vec![room(1, 10, 10), room(2, 10, 7), room(3, 10, 6)], 1, other(3)),
            (vec![room(1, 10, 10), NodeRoom { is_reachable: false, ..room(2, 10, 0) }], 1, Place::Here),
            (vec![room(1, 10, 10), NodeRoom { is_serving: false, ..room(2, 10, 0) }], 1, Place::Here),
            (vec![room(1, 10, 10), room(2, 10, 10)], 1, Place::Here),
            (vec![NodeRoom { places: None, ..room(1, 0, 99) }, room(2, 10, 0)], 1, Place::Here),
            (vec![draining, room(2, 10, 12), room(3, 10, 11)], 1, other(3)),
            (vec![room(1, 0, 0), room(2, 10, 1)], 1, other(2)),
            (vec![room(1, 0, 0), room(2, 0, 0)], 1, Place::Nowhere),
            (vec![draining], 1, Place::Nowhere),
            (vec![], 1, Place::Here),
        ] {
            assert_eq!(place(node_id(), places, &rooms), expected, "{places} of {rooms:?}");
        }
    }

    #[tokio::test]
    async fn a_node_that_is_alone_reads_nothing_for_each_session() {
        let clock = Arc::new(FixedClock::default());
        let mut rooms = MockNodeRooms::new();
        let mut found = vec![vec![room(1, 10, 10), room(2, 10, 0)], vec![room(1, 10, 10)]];
        rooms.expect_rooms().times(2).returning(move |_| Ok(found.pop().expect("two reads")));
        let placement = Placement::new(node_id(), Arc::new(rooms), clock.clone());
        for _ in 0..3 {
            assert_eq!(placement.choose(1).await.expect("a place"), Place::Here);
        }
        clock.advance(Node::HEARTBEAT);
        assert_eq!(placement.choose(1).await.expect("a place"), Place::Elsewhere(room(2, 0, 0).node));
    }
}
