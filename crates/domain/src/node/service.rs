//! The use cases of nodes.

use std::sync::Arc;

use time::Duration;

use super::{
    DrainRequest, NodeEvent, NodeFilter, NodeRefused, NodeRepository, NodeState, NodeStatus, OwnState, StateChange,
};
use crate::error::{NotFound, SpecificError, UseCaseError};
use crate::ids::NodeId;
use crate::page::{Listed, Page};
use crate::store_error::{Replaced, StoreError};

impl SpecificError for NodeRefused {}

/// The use cases of nodes. Any node may change any other: the change is stored, and the other node reads it.
#[derive(Clone)]
pub struct Nodes {
    nodes: Arc<dyn NodeRepository>,
}

impl Nodes {
    /// Creates the use cases.
    #[must_use]
    pub fn new(nodes: Arc<dyn NodeRepository>) -> Self {
        Self { nodes }
    }

    /// Returns the nodes, by host and id.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(&self, filter: &NodeFilter, page: Page) -> Result<Listed<NodeStatus>, StoreError> {
        self.nodes.list(filter, page).await
    }

    /// Returns the node with this identifier.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, id: &str) -> Result<NodeStatus, UseCaseError> {
        let missing = || NotFound::new("node", id);
        let parsed = id.parse().map_err(|_| missing())?;
        Ok(self.nodes.status(parsed).await?.ok_or_else(missing)?)
    }

    /// Drains the node: it takes no new sessions from now on, and its sessions live until they end or the deadline is
    /// over. A repeated drain changes only the deadline, if the new one is earlier.
    ///
    /// # Errors
    /// An invalid deadline; [`NotFound`]; [`NodeRefused`] for a lost node; the error of the store.
    pub async fn drain(&self, id: &str, request: DrainRequest) -> Result<NodeStatus, UseCaseError<NodeRefused>> {
        let deadline = request.parse()?;
        self.change(id, NodeEvent::Drain, deadline).await
    }

    /// Lets a draining or drained node take new sessions again.
    ///
    /// # Errors
    /// [`NotFound`]; [`NodeRefused`] for a lost node; the error of the store.
    pub async fn resume(&self, id: &str) -> Result<NodeStatus, UseCaseError<NodeRefused>> {
        self.change(id, NodeEvent::Resume, None).await
    }

    /// Drains a node by its own order, with the time that its sessions have.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    pub async fn drain_own(&self, id: NodeId, deadline: Option<Duration>) -> Result<(), UseCaseError<NodeRefused>> {
        self.change(&id.to_string(), NodeEvent::Drain, deadline).await.map(drop)
    }

    /// Makes the own draining node drained if nothing is left on it. Returns whether it did.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn finish_drain(&self, own: &OwnState) -> Result<bool, StoreError> {
        if own.state() != NodeState::Draining {
            return Ok(false);
        }
        self.nodes.finish_drain(own.id(), own.epoch()).await
    }

    async fn change(
        &self,
        id: &str,
        event: NodeEvent,
        drain: Option<Duration>,
    ) -> Result<NodeStatus, UseCaseError<NodeRefused>> {
        // This loop ends: each lost race means that another change succeeded.
        loop {
            let status = self.get(id).await?;
            let (node, from, epoch) = (status.stored.node.id, status.stored.state, status.stored.epoch);
            let to = status.condition().on(event, node)?;
            if from == to && drain.is_none() {
                return Ok(status);
            }
            let change = StateChange { epoch, from, to, drain };
            if self.nodes.change_state(node, change).await? == Replaced::Yes {
                return Ok(self.get(id).await?);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Epoch, MockNodeRepository};
    use crate::testing::{node_id, node_status};

    fn stored(state: NodeState, is_silent: bool) -> NodeStatus {
        let mut status = node_status();
        status.stored.state = state;
        NodeStatus { is_silent, ..status }
    }

    #[tokio::test]
    async fn a_drain_is_stored_for_the_run_that_was_read_and_tried_again_after_a_lost_race() {
        let mut nodes = MockNodeRepository::new();
        let mut found = [NodeState::Serving, NodeState::Serving, NodeState::Draining].into_iter();
        nodes.expect_status().times(3).returning(move |_| Ok(found.next().map(|state| stored(state, false))));
        let mut results = [Replaced::LostRace, Replaced::Yes].into_iter();
        nodes.expect_change_state().times(2).returning(move |id, change| {
            let drain = Some(Duration::seconds(60));
            let expected = StateChange { epoch: Epoch(4), from: NodeState::Serving, to: NodeState::Draining, drain };
            assert_eq!((id, change), (node_id(), expected));
            Ok(results.next().expect("two calls"))
        });
        let drained = Nodes::new(Arc::new(nodes));
        let drained = drained.drain(&node_id().to_string(), DrainRequest { deadline_seconds: Some(60) }).await;
        assert_eq!(drained.expect("drains").stored.state, NodeState::Draining);
    }

    #[tokio::test]
    async fn a_repeated_drain_and_a_needless_resume_change_nothing() {
        for (state, drains) in [(NodeState::Draining, true), (NodeState::Drained, true), (NodeState::Serving, false)] {
            let mut nodes = MockNodeRepository::new();
            nodes.expect_status().times(1).returning(move |_| Ok(Some(stored(state, false))));
            let (nodes, id) = (Nodes::new(Arc::new(nodes)), node_id().to_string());
            let result = if drains { nodes.drain(&id, DrainRequest::default()).await } else { nodes.resume(&id).await };
            assert_eq!(result.expect("the node as it is").stored.state, state);
        }
    }

    #[tokio::test]
    async fn a_lost_node_and_an_unknown_one_are_not_drained() {
        let mut nodes = MockNodeRepository::new();
        nodes.expect_status().returning(|id| Ok((id == node_id()).then(|| stored(NodeState::Serving, true))));
        let nodes = Nodes::new(Arc::new(nodes));
        let refused = nodes.drain(&node_id().to_string(), DrainRequest::default()).await.expect_err("lost");
        assert!(matches!(refused, UseCaseError::Specific(NodeRefused { event: NodeEvent::Drain, .. })), "{refused}");
        for id in ["x".to_owned(), NodeId::from_ulid(ulid::Ulid(9)).to_string()] {
            let refused = nodes.resume(&id).await.expect_err("unknown");
            assert!(matches!(refused, UseCaseError::NotFound(_)), "{refused}");
        }
        let refused = nodes.drain("x", DrainRequest { deadline_seconds: Some(-1) }).await.expect_err("invalid");
        assert!(matches!(refused, UseCaseError::Invalid(_)), "{refused}");
    }
}
