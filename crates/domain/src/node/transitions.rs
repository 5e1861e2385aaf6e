//! The state machine of a node.

use super::{NodeCondition, NodeState};
use crate::ids::NodeId;
use crate::text_enum::text_enum;

text_enum! {
    /// An event of a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NodeEvent {
        /// A run of the node begins, or returns after it was lost.
        Start => "start",
        /// The node is to take no new sessions.
        Drain => "drain",
        /// The node is to take new sessions again.
        Resume => "resume",
        /// The last session of the draining node has ended.
        Emptied => "emptied",
    }
}

/// The error of an event that the condition of the node does not allow; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {id} is {}, so '{}' is not possible", condition.as_str(), event.as_str())]
pub struct NodeRefused {
    /// The node.
    pub id: NodeId,
    /// Its condition.
    pub condition: NodeCondition,
    /// The event.
    pub event: NodeEvent,
}

impl NodeCondition {
    /// Returns the state of the node `id` after the event.
    ///
    /// # Errors
    /// [`NodeRefused`] if the event is not possible in this condition.
    pub fn on(self, event: NodeEvent, id: NodeId) -> Result<NodeState, NodeRefused> {
        use NodeEvent as E;

        match (self, event) {
            (_, E::Start) | (Self::Serving | Self::Draining | Self::Drained, E::Resume) => Ok(NodeState::Serving),
            (Self::Serving | Self::Draining, E::Drain) => Ok(NodeState::Draining),
            (Self::Drained, E::Drain) | (Self::Draining, E::Emptied) => Ok(NodeState::Drained),
            (Self::Lost, E::Drain | E::Resume | E::Emptied) | (Self::Serving | Self::Drained, E::Emptied) => {
                Err(NodeRefused { id, condition: self, event })
            }
        }
    }
}
