//! What a process knows of its own node, in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use time::Duration;

use super::{Epoch, Heartbeat, Node, NodeCondition, NodeState};
use crate::clock::{MonotonicClock, MonotonicTime};
use crate::ids::NodeId;

/// The error of a node that had no contact with the store for so long that other nodes may have ended its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node has had no contact with the database for too long; its sessions may have ended")]
pub struct AwayFromStore;

/// What this process knows of its own node: the number of its run, whether it takes new sessions, and whether it may
/// answer for its sessions. Clones share their state, which each heartbeat refreshes.
#[derive(Clone)]
pub struct OwnState {
    id: NodeId,
    monotonic: Arc<dyn MonotonicClock>,
    run: Arc<Mutex<Run>>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    epoch: Epoch,
    state: NodeState,
    /// The end of the time that a drain gives sessions.
    drain_ends_at: Option<MonotonicTime>,
    /// The time at which the last successful heartbeat was sent.
    confirmed_at: MonotonicTime,
    /// Whether another node has ended the sessions of this run.
    is_lost: bool,
}

impl OwnState {
    /// Creates the state of a run that was announced just now.
    #[must_use]
    pub fn new(id: NodeId, epoch: Epoch, monotonic: Arc<dyn MonotonicClock>) -> Self {
        let run = Run::new(epoch, monotonic.monotonic_now());
        Self { id, monotonic, run: Arc::new(Mutex::new(run)) }
    }

    /// Returns the node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the number of the run. It changes when the node returns after it was lost.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.run.lock().epoch
    }

    /// Returns the state that the last heartbeat read.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.run.lock().state
    }

    /// Returns the condition: lost while this node may not answer for its sessions.
    #[must_use]
    pub fn condition(&self) -> NodeCondition {
        let run = *self.run.lock();
        match run.state {
            _ if !self.is_in_contact(&run) => NodeCondition::Lost,
            NodeState::Serving => NodeCondition::Serving,
            NodeState::Draining => NodeCondition::Draining,
            NodeState::Drained => NodeCondition::Drained,
        }
    }

    /// Returns whether this node may start browsers and take background work that needs them.
    #[must_use]
    pub fn takes_sessions(&self) -> bool {
        let run = *self.run.lock();
        run.state == NodeState::Serving && self.is_in_contact(&run)
    }

    /// Checks that this node may answer for its sessions: no other node can have ended them yet.
    ///
    /// # Errors
    /// [`AwayFromStore`] if the last successful heartbeat was sent [`Node::ANSWERS_FOR`] ago, or the node was lost.
    pub fn answers(&self) -> Result<(), AwayFromStore> {
        let run = *self.run.lock();
        if self.is_in_contact(&run) { Ok(()) } else { Err(AwayFromStore) }
    }

    /// Returns whether the time that the drain gives sessions is over.
    #[must_use]
    pub fn is_drain_over(&self) -> bool {
        let run = *self.run.lock();
        run.state == NodeState::Draining && run.drain_ends_at.is_some_and(|end| self.monotonic.monotonic_now() >= end)
    }

    /// Returns whether the node drains without a limit of time.
    #[must_use]
    pub fn drains_without_deadline(&self) -> bool {
        let run = *self.run.lock();
        run.state == NodeState::Draining && run.drain_ends_at.is_none()
    }

    /// Notes a successful heartbeat of this run, which was sent at `sent_at`.
    pub fn confirm(&self, heartbeat: Heartbeat, sent_at: MonotonicTime) {
        let now = self.monotonic.monotonic_now();
        let mut run = self.run.lock();
        run.state = heartbeat.state;
        run.drain_ends_at = heartbeat.drain_left.map(|left| now + left);
        run.confirmed_at = sent_at;
    }

    /// Notes that another node has ended the sessions of this run.
    pub fn lose(&self) {
        self.run.lock().is_lost = true;
    }

    /// Returns the rest of the time that a drain gives sessions; `None`: there is no limit.
    #[must_use]
    pub fn drain_left(&self) -> Option<Duration> {
        let end = self.run.lock().drain_ends_at?;
        Some((end - self.monotonic.monotonic_now()).max(Duration::ZERO))
    }

    /// Notes that the node has a new run, announced at `sent_at`, and has nothing of before. A node that drained goes on
    /// draining.
    pub fn rejoin(&self, epoch: Epoch, sent_at: MonotonicTime) {
        let mut run = self.run.lock();
        let state = if run.state == NodeState::Serving { NodeState::Serving } else { NodeState::Draining };
        *run = Run { state, drain_ends_at: run.drain_ends_at, ..Run::new(epoch, sent_at) };
    }

    fn is_in_contact(&self, run: &Run) -> bool {
        !run.is_lost && self.monotonic.monotonic_now() - run.confirmed_at < Node::ANSWERS_FOR
    }
}

impl Run {
    fn new(epoch: Epoch, now: MonotonicTime) -> Self {
        Self { epoch, state: NodeState::Serving, drain_ends_at: None, confirmed_at: now, is_lost: false }
    }
}

impl Node {
    /// The time after its last heartbeat for which a node answers for its sessions: less than [`Node::LOST_AFTER`], so
    /// that it has stopped when another node ends them.
    pub const ANSWERS_FOR: Duration = Duration::seconds(40);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FixedClock, node_id};

    fn beat(state: NodeState, drain_left: Option<Duration>) -> Heartbeat {
        Heartbeat { state, drain_left }
    }

    #[test]
    fn a_node_without_a_heartbeat_stops_answering_before_others_may_end_its_sessions() {
        const { assert!(Node::ANSWERS_FOR.whole_seconds() < Node::LOST_AFTER.whole_seconds()) };
        let clock = Arc::new(FixedClock::default());
        let own = OwnState::new(node_id(), Epoch(1), clock.clone());
        let sent_at = clock.monotonic_now();
        clock.advance(Node::ANSWERS_FOR - Duration::SECOND);
        assert_eq!((own.answers(), own.takes_sessions()), (Ok(()), true));
        // The time counts from the sending, because the store may have written before its response arrived.
        own.confirm(beat(NodeState::Serving, None), sent_at);
        clock.advance(Duration::SECOND);
        assert_eq!((own.answers(), own.takes_sessions()), (Err(AwayFromStore), false));
        own.confirm(beat(NodeState::Serving, None), clock.monotonic_now());
        assert_eq!(own.answers(), Ok(()));
    }

    #[test]
    fn a_lost_node_answers_again_only_under_a_new_number() {
        let clock = Arc::new(FixedClock::default());
        let own = OwnState::new(node_id(), Epoch(1), clock.clone());
        own.lose();
        own.confirm(beat(NodeState::Serving, None), clock.monotonic_now());
        assert_eq!((own.answers(), own.takes_sessions()), (Err(AwayFromStore), false));
        own.rejoin(Epoch(3), clock.monotonic_now());
        assert_eq!((own.answers(), own.takes_sessions(), own.epoch()), (Ok(()), true, Epoch(3)));
        own.confirm(beat(NodeState::Drained, Some(Duration::MINUTE)), clock.monotonic_now());
        own.rejoin(Epoch(4), clock.monotonic_now());
        assert_eq!((own.state(), own.drain_left()), (NodeState::Draining, Some(Duration::MINUTE)));
    }

    #[test]
    fn the_deadline_of_a_drain_counts_on_the_monotonic_clock() {
        let clock = Arc::new(FixedClock::default());
        let own = OwnState::new(node_id(), Epoch(1), clock.clone());
        own.confirm(beat(NodeState::Draining, None), clock.monotonic_now());
        assert!(!own.takes_sessions() && own.drains_without_deadline() && !own.is_drain_over());
        own.confirm(beat(NodeState::Draining, Some(Duration::seconds(10))), clock.monotonic_now());
        clock.step(Duration::HOUR);
        assert!(!own.drains_without_deadline() && !own.is_drain_over());
        clock.advance(Duration::seconds(10));
        assert!(own.is_drain_over());
        own.confirm(beat(NodeState::Serving, None), clock.monotonic_now());
        assert!(own.takes_sessions() && !own.is_drain_over());
    }
}
