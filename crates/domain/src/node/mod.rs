//! Nodes: running servers with a data directory each. Every session names the node that runs it.

mod model;
mod peers;
mod placement;
mod ports;
mod service;

pub use model::{ClusterEndpoint, Epoch, Fingerprint, Node, NodeState, StoredNode};
#[cfg(feature = "mocks")]
pub use peers::MockPeers;
pub use peers::{NoPeers, PeerError, PeerHandOut, PeerNotice, Peers};
#[cfg(feature = "mocks")]
pub use placement::MockNodeRooms;
pub use placement::{NodeRoom, NodeRooms, Place, Placement, place};
#[cfg(feature = "mocks")]
pub use ports::MockNodeRepository;
pub use ports::NodeRepository;
pub use service::NodeWatch;
