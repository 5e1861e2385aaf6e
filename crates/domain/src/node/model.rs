//! The node.

use time::{Duration, OffsetDateTime};

use crate::ids::NodeId;

/// A running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The identifier, which the data directory stores, so it outlives the process.
    pub id: NodeId,
    /// The host name, for people.
    pub host: String,
    /// The address of the node's API.
    pub address: String,
    /// The time at which this run of the server began.
    pub started_at: OffsetDateTime,
}

impl Node {
    /// The interval of heartbeats.
    pub const HEARTBEAT: Duration = Duration::seconds(5);
    /// The time without a heartbeat after which the sessions of a node are ended as lost.
    pub const LOST_AFTER: Duration = Duration::seconds(45);
}
