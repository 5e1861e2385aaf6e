//! On which node a new session starts.

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use time::Duration;

use super::Node;
use crate::clock::{MonotonicClock, MonotonicTime};
use crate::ids::NodeId;
use crate::organization::{Limit, LimitExceeded};
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
    /// Whether it refuses sessions beyond its places. Otherwise their number is an estimate.
    pub limits_sessions: bool,
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

    /// Returns the room of a node that has just refused a session because it is full.
    fn refusing(self) -> Self {
        let places = self.places.unwrap_or(self.used);
        Self { places: Some(places), limits_sessions: true, used: self.used.max(places), ..self }
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
    /// Nowhere: each node that takes sessions is full, and limits them.
    Full(LimitExceeded),
    /// Nowhere: this node takes no sessions, and it reaches no node that does.
    Nowhere,
}

/// Returns where a session of this number of places starts that is requested at `own`: there if it has room, else on the
/// reachable node with the most room. If no node has room, the session starts on a node whose number of places is an
/// estimate, in the same order; its machine has the last word.
#[must_use]
pub fn place(own: NodeId, places: u32, rooms: &[NodeRoom]) -> Place {
    if rooms.iter().all(|room| room.node != own) {
        return Place::Here;
    }
    let is_open = |room: &NodeRoom| room.takes_sessions() && (room.node == own || room.is_reachable);
    let open: Vec<NodeRoom> = rooms.iter().copied().filter(is_open).collect();
    let best = |suits: &dyn Fn(&NodeRoom) -> bool| {
        let suitable = open.iter().filter(|room| suits(room));
        suitable.min_by_key(|room| (room.node != own, Reverse(room.free()), room.used, room.node))
    };
    match best(&|room| room.free() >= places).or_else(|| best(&|room| !room.limits_sessions)) {
        Some(room) if room.node == own => Place::Here,
        Some(room) => Place::Elsewhere(room.node),
        None => full(places, &open).map_or(Place::Nowhere, Place::Full),
    }
}

/// Returns the limit that a session would exceed where none of these nodes has room for it; `None` without nodes.
fn full(requested: u32, open: &[NodeRoom]) -> Option<LimitExceeded> {
    let sum = |number: fn(&NodeRoom) -> u32| open.iter().map(number).fold(0, u32::saturating_add);
    let (value, used) = (sum(|room| room.places.unwrap_or(room.used)), sum(|room| room.used));
    if open.len() > 1 && used.saturating_add(requested) > value {
        return Some(LimitExceeded { limit: Limit::AllNodesSessions, value, used, requested });
    }
    // Several nodes have some places left each, but none has enough.
    let most_room = open.iter().max_by_key(|room| room.free())?;
    let value = most_room.places.unwrap_or(most_room.used);
    Some(LimitExceeded { limit: Limit::NodeSessions, value, used: most_room.used, requested })
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

    /// Chooses the node on which a session of this number of places starts; see [`place`]. The nodes in `refused` have
    /// refused it because they are full.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn choose(&self, places: u32, refused: &[NodeId]) -> Result<Place, StoreError> {
        let now = self.monotonic.monotonic_now();
        if refused.is_empty() && self.alone_until.lock().is_some_and(|until| now < until) {
            return Ok(Place::Here);
        }
        let mut rooms = self.rooms.rooms(self.own).await?;
        let is_alone = rooms.iter().all(|room| room.node == self.own && room.takes_sessions());
        *self.alone_until.lock() = is_alone.then(|| now + Self::ALONE);
        for room in rooms.iter_mut().filter(|room| refused.contains(&room.node)) {
            *room = room.refusing();
        }
        Ok(place(self.own, places, &rooms))
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;
    use crate::testing::{FixedClock, node_id};

    fn room(n: u128, places: u32, used: u32) -> NodeRoom {
        let (node, places) = (NodeId::from_ulid(Ulid::from_parts(3, n)), Some(places));
        NodeRoom { node, is_serving: true, is_reachable: true, places, limits_sessions: false, used }
    }

    fn limited(n: u128, places: u32, used: u32) -> NodeRoom {
        NodeRoom { limits_sessions: true, ..room(n, places, used) }
    }

    fn draining(room: NodeRoom) -> NodeRoom {
        NodeRoom { is_serving: false, ..room }
    }

    fn unreachable(room: NodeRoom) -> NodeRoom {
        NodeRoom { is_reachable: false, ..room }
    }

    fn other(n: u128) -> Place {
        Place::Elsewhere(room(n, 0, 0).node)
    }

    fn full(limit: Limit, (value, used): (u32, u32), requested: u32) -> Place {
        Place::Full(LimitExceeded { limit, value, used, requested })
    }

    fn check(cases: impl IntoIterator<Item = (Vec<NodeRoom>, u32, Place)>) {
        for (rooms, places, expected) in cases {
            assert_eq!(place(node_id(), places, &rooms), expected, "{places} of {rooms:?}");
        }
    }

    #[test]
    fn a_session_starts_where_it_was_requested_or_where_most_room_is() {
        check([
            (vec![room(1, 10, 9), room(2, 90, 0)], 1, Place::Here),
            (vec![limited(1, 10, 9), limited(2, 90, 0)], 1, Place::Here),
            (vec![room(1, 10, 9), room(2, 90, 0)], 2, other(2)),
            (vec![room(1, 10, 10), room(2, 10, 7), limited(3, 10, 6)], 1, other(3)),
            (vec![room(1, 10, 10), room(2, 20, 14), room(3, 10, 4)], 1, other(3)),
            (vec![unreachable(room(1, 10, 9)), room(2, 90, 0)], 1, Place::Here),
            (vec![NodeRoom { places: None, ..room(1, 0, 99) }, room(2, 10, 0)], 1, Place::Here),
            (vec![], 1, Place::Here),
        ]);
    }

    #[test]
    fn without_room_a_session_starts_where_the_number_of_places_is_an_estimate() {
        check([
            (vec![room(1, 10, 10), room(2, 10, 10)], 1, Place::Here),
            (vec![room(1, 10, 12), limited(2, 10, 10)], 1, Place::Here),
            (vec![room(1, 10, 10), unreachable(room(2, 10, 0))], 1, Place::Here),
            (vec![room(1, 10, 10), draining(room(2, 10, 0))], 1, Place::Here),
            (vec![limited(1, 10, 10), room(2, 10, 12), room(3, 10, 11)], 1, other(3)),
            (vec![draining(room(1, 10, 0)), room(2, 10, 12), room(3, 10, 11)], 1, other(3)),
        ]);
    }

    #[test]
    fn a_node_that_takes_no_sessions_places_them_elsewhere_or_nowhere() {
        check([
            (vec![draining(limited(1, 10, 0)), limited(2, 10, 9)], 1, other(2)),
            (vec![limited(1, 0, 0), room(2, 10, 1)], 1, other(2)),
            (vec![limited(1, 0, 0), limited(2, 0, 0)], 1, Place::Nowhere),
            (vec![draining(room(1, 10, 0))], 1, Place::Nowhere),
            (vec![draining(room(1, 10, 0)), unreachable(room(2, 10, 0))], 1, Place::Nowhere),
        ]);
    }

    #[test]
    fn where_all_nodes_limit_their_sessions_and_are_full_the_answer_names_what_is_full() {
        let (one, all) = (Limit::NodeSessions, Limit::AllNodesSessions);
        check([
            (vec![limited(1, 10, 10)], 1, full(one, (10, 10), 1)),
            (vec![limited(1, 10, 9)], 2, full(one, (10, 9), 2)),
            (vec![limited(1, 10, 10), unreachable(limited(2, 10, 0))], 1, full(one, (10, 10), 1)),
            (vec![limited(1, 10, 10), limited(2, 20, 20), limited(3, 0, 0)], 1, full(all, (30, 30), 1)),
            // A pool has more browsers than the node has places.
            (vec![limited(1, 10, 13), limited(2, 20, 20)], 1, full(all, (30, 33), 1)),
            // Together they have room for it.
            (vec![limited(1, 10, 8), limited(2, 20, 17)], 4, full(one, (20, 17), 4)),
            (vec![draining(limited(1, 10, 0)), limited(2, 20, 20)], 1, full(one, (20, 20), 1)),
        ]);
    }

    #[tokio::test]
    async fn a_node_that_is_alone_reads_nothing_for_each_session() {
        let clock = Arc::new(FixedClock::default());
        let mut rooms = MockNodeRooms::new();
        let mut found = vec![vec![room(1, 10, 10), room(2, 10, 0)], vec![room(1, 10, 10)]];
        rooms.expect_rooms().times(2).returning(move |_| Ok(found.pop().expect("two reads")));
        let placement = Placement::new(node_id(), Arc::new(rooms), clock.clone());
        for _ in 0..3 {
            assert_eq!(placement.choose(1, &[]).await.expect("a place"), Place::Here);
        }
        clock.advance(Node::HEARTBEAT);
        assert_eq!(placement.choose(1, &[]).await.expect("a place"), other(2));
    }

    #[tokio::test]
    async fn a_node_that_has_refused_a_session_is_not_chosen_again() {
        let mut rooms = MockNodeRooms::new();
        // What was read before the other sessions were stored.
        rooms.expect_rooms().returning(|_| Ok(vec![limited(1, 10, 9), limited(2, 10, 5), limited(3, 10, 6)]));
        let placement = Placement::new(node_id(), Arc::new(rooms), Arc::new(FixedClock::default()));
        let nodes = [1, 2, 3].map(|n| room(n, 0, 0).node);
        for (refused, expected) in [(0, Place::Here), (1, other(2)), (2, other(3))] {
            assert_eq!(placement.choose(1, &nodes[..refused]).await.expect("a place"), expected, "{refused}");
        }
        let expected = full(Limit::AllNodesSessions, (30, 30), 1);
        assert_eq!(placement.choose(1, &nodes).await.expect("an answer"), expected);
    }

    #[tokio::test]
    async fn a_lonely_node_that_refuses_a_session_looks_for_others_at_once() {
        let mut rooms = MockNodeRooms::new();
        let mut found =
            vec![vec![limited(1, 10, 10), limited(2, 10, 0)], vec![limited(1, 10, 10)], vec![limited(1, 10, 9)]];
        rooms.expect_rooms().times(3).returning(move |_| Ok(found.pop().expect("three reads")));
        let placement = Placement::new(node_id(), Arc::new(rooms), Arc::new(FixedClock::default()));
        for (refused, expected) in [
            (0, Place::Here),
            (0, Place::Here),
            (1, full(Limit::NodeSessions, (10, 10), 1)),
            (0, Place::Here),
            (1, other(2)),
        ] {
            assert_eq!(placement.choose(1, &[node_id()][..refused]).await.expect("an answer"), expected);
        }
    }
}
