//! The node.

use time::{Duration, OffsetDateTime};

use crate::ids::NodeId;

/// A running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which one; kept in its data directory, so it outlives the process.
    pub id: NodeId,
    /// The host's name, for people.
    pub host: String,
    /// Where its API listens.
    pub address: String,
    /// When this life of it began.
    pub started_at: OffsetDateTime,
}

impl Node {
    /// How often a node says that it lives.
    pub const HEARTBEAT: Duration = Duration::seconds(5);
    /// After how long a silence its sessions are ended as lost.
    pub const LOST_AFTER: Duration = Duration::seconds(45);
}
