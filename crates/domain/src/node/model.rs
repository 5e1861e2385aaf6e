//! The node.

use std::fmt;

use time::{Duration, OffsetDateTime};

use crate::ids::NodeId;
use crate::session::Tags;
use crate::text_enum::text_enum;

/// A run of a node. The number rises with each start of the node, and when the node is lost. Only the run with the
/// highest number acts for the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The SHA-256 checksum of the public key by which a node proves its identity to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// How other nodes reach a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEndpoint {
    /// The address of the cluster listener, as `host:port`.
    pub address: String,
    /// The key that the listener must prove to have.
    pub fingerprint: Fingerprint,
}

/// Whether a node takes new sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// It takes new sessions.
    #[default]
    Serving,
    /// It takes no new session; its sessions live on.
    Draining,
    /// It takes no new session and has none.
    Drained,
}

impl NodeState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Serving, Self::Draining, Self::Drained];

    /// Returns the name in the API and in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }
}

/// A running server, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The identifier, which the data directory stores, so it outlives the process.
    pub id: NodeId,
    /// The host name, for people.
    pub host: String,
    /// The address of the node's API.
    pub address: String,
    /// How other nodes reach it; `None`: they do not.
    pub cluster: Option<ClusterEndpoint>,
    /// The number of sessions for which it has room.
    pub max_sessions: u32,
    /// Whether it refuses further sessions. Otherwise the number is an estimate.
    pub limits_sessions: bool,
    /// The memory of the machine, in MiB.
    pub memory_mib: u64,
    /// The labels that its operator gave it.
    pub labels: Tags,
    /// The version of the program.
    pub version: String,
    /// The time at which this run of the server began.
    pub started_at: OffsetDateTime,
}

impl Node {
    /// The interval of heartbeats.
    pub const HEARTBEAT: Duration = Duration::seconds(5);
    /// The time without a heartbeat after which the sessions of a node are ended as lost.
    pub const LOST_AFTER: Duration = Duration::seconds(45);
    /// The time without a heartbeat after which other nodes lease none of its browsers.
    pub const LEASED_WITHIN: Duration = Duration::seconds(15);
    /// The time without a heartbeat after which a node is not listed any more.
    pub const LISTED_FOR: Duration = Duration::days(7);
}

/// A node as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNode {
    /// The node.
    pub node: Node,
    /// Its present run.
    pub epoch: Epoch,
    /// Whether it takes new sessions.
    pub state: NodeState,
    /// The time of its last heartbeat, by the clock of the store.
    pub heartbeat_at: OffsetDateTime,
}

/// A node as its operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// The node.
    pub stored: StoredNode,
    /// The time at which a drain ends the sessions that are left, by the clock of the store; `None`: there is no limit.
    pub drain_ends_at: Option<OffsetDateTime>,
    /// Whether it has sent no heartbeat for [`Node::LOST_AFTER`].
    pub is_silent: bool,
    /// The number of its sessions, including those that are starting.
    pub sessions: u32,
    /// The number of its idle browsers in pools.
    pub idle_browsers: u32,
}

impl NodeStatus {
    /// Returns the condition. A node that was drained before it fell silent has lost nothing.
    #[must_use]
    pub const fn condition(&self) -> NodeCondition {
        match self.stored.state {
            NodeState::Drained => NodeCondition::Drained,
            NodeState::Serving | NodeState::Draining if self.is_silent => NodeCondition::Lost,
            NodeState::Serving => NodeCondition::Serving,
            NodeState::Draining => NodeCondition::Draining,
        }
    }
}

text_enum! {
    /// The state of a node, or that it is lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum NodeCondition {
        /// It takes new sessions.
        Serving => "serving",
        /// It takes no new session; its sessions live on.
        Draining => "draining",
        /// It takes no new session and has none.
        Drained => "drained",
        /// It has sent no heartbeat for a long time. Its sessions have ended.
        Lost => "lost",
    }
}
