//! Nodes: running servers with a data directory each. Every session names the node that runs it.

mod input;
mod model;
mod own_state;
mod peers;
mod placement;
mod ports;
mod service;
mod transitions;
mod unreachable;
mod watch;

pub use input::{DrainRequest, MAX_DRAIN_SECONDS, NodeFilter};
pub use model::{ClusterEndpoint, Epoch, Fingerprint, Node, NodeCondition, NodeState, NodeStatus, StoredNode};
pub use own_state::{AwayFromStore, OwnState};
#[cfg(feature = "mocks")]
pub use peers::MockPeers;
pub use peers::{NoPeers, PeerError, PeerHandOut, PeerNotice, Peers};
#[cfg(feature = "mocks")]
pub use placement::MockNodeRooms;
pub use placement::{NodeRoom, NodeRooms, Place, Placement, place};
#[cfg(feature = "mocks")]
pub use ports::MockNodeRepository;
pub use ports::{Heartbeat, NodeRepository, StateChange};
pub use service::Nodes;
pub use transitions::{NodeEvent, NodeRefused};
pub use unreachable::{NotedPeers, UnreachableNodes};
pub use watch::{NodeWatch, SilentNode};
