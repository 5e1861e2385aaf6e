//! The nodes that did not answer lately, and calls that notice it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use time::Duration;

use super::{PeerError, PeerHandOut, PeerNotice, Peers};
use crate::clock::{MonotonicClock, MonotonicTime};
use crate::ids::{NodeId, SessionId};
use crate::profile::LoadedProfile;

/// The nodes that did not answer the last call of this node. Their callers are granted no browsers, which could not be
/// delivered, and their browsers are not leased.
///
/// A node leaves the list with the next call that it answers, when a node changes its state, or after
/// [`UnreachableNodes::FORGOTTEN_AFTER`], so that it is tried again.
#[derive(Clone)]
pub struct UnreachableNodes {
    clock: Arc<dyn MonotonicClock>,
    since: Arc<Mutex<HashMap<NodeId, MonotonicTime>>>,
}

impl fmt::Debug for UnreachableNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnreachableNodes").field(&*self.since.lock()).finish()
    }
}

impl UnreachableNodes {
    /// The time after which a node is tried again.
    pub const FORGOTTEN_AFTER: Duration = Duration::seconds(15);

    /// Creates an empty list.
    #[must_use]
    pub fn new(clock: Arc<dyn MonotonicClock>) -> Self {
        Self { clock, since: Arc::default() }
    }

    /// Returns the nodes.
    #[must_use]
    pub fn all(&self) -> Vec<NodeId> {
        let mut since = self.since.lock();
        if since.is_empty() {
            return Vec::new();
        }
        let now = self.clock.monotonic_now();
        since.retain(|_, noted| now - *noted < Self::FORGOTTEN_AFTER);
        since.keys().copied().collect()
    }

    /// Adds a node.
    pub fn add(&self, node: NodeId) {
        self.since.lock().insert(node, self.clock.monotonic_now());
    }

    /// Empties the list, because a node came, was lost or changed its state: one that starts again is not passed over.
    pub fn forget_all(&self) {
        self.since.lock().clear();
    }

    fn note<T>(&self, node: NodeId, result: &Result<T, PeerError>) {
        match result {
            Err(PeerError::Unreachable(_) | PeerError::Unclear(_)) => self.add(node),
            Ok(_) | Err(PeerError::Refused { .. }) => drop(self.since.lock().remove(&node)),
        }
    }
}

/// Calls of other nodes that note which of them do not answer.
pub struct NotedPeers {
    peers: Arc<dyn Peers>,
    unreachable: UnreachableNodes,
}

impl NotedPeers {
    /// Notes the results of these calls.
    #[must_use]
    pub fn new(peers: Arc<dyn Peers>, unreachable: UnreachableNodes) -> Self {
        Self { peers, unreachable }
    }
}

#[async_trait]
impl Peers for NotedPeers {
    async fn hand_out(
        &self,
        owner: NodeId,
        session: SessionId,
        profile: Option<LoadedProfile>,
    ) -> Result<PeerHandOut, PeerError> {
        let result = self.peers.hand_out(owner, session, profile).await;
        self.unreachable.note(owner, &result);
        result
    }

    async fn undelivered(&self, owner: NodeId, session: SessionId) -> Result<(), PeerError> {
        let result = self.peers.undelivered(owner, session).await;
        self.unreachable.note(owner, &result);
        result
    }

    async fn carry_out_end(&self, owner: NodeId, session: SessionId) -> Result<(), PeerError> {
        let result = self.peers.carry_out_end(owner, session).await;
        self.unreachable.note(owner, &result);
        result
    }

    async fn inform(&self, node: NodeId, notice: PeerNotice) -> Result<(), PeerError> {
        let result = self.peers.inform(node, notice).await;
        self.unreachable.note(node, &result);
        result
    }
}
