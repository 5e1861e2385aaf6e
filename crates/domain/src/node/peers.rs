//! What a node requests from another node.

use async_trait::async_trait;

use crate::ids::{NodeId, PoolId, SessionId, TicketId};
use crate::profile::LoadedProfile;

/// The error of a request to another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// No connection to the node was made. It has done nothing of the request for certain.
    #[error("node {0} cannot be reached")]
    Unreachable(NodeId),
    /// The connection broke, or the answer did not arrive in time. The node may have done the request.
    #[error("node {0} did not answer")]
    Unclear(NodeId),
    /// The node refused the request, has another run than the sender knows, or one of both has no cluster listener. It has
    /// done nothing of the request.
    #[error("node {node} refused: {reason}")]
    Refused {
        /// The node.
        node: NodeId,
        /// The reason, for logs.
        reason: String,
    },
}

/// The result of a hand-out by the owner of a session. Except for `Done`, the session has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerHandOut {
    /// The browser answers and opens its start URL. `profile` is what was loaded, in the version that was loaded.
    Done {
        /// The profile that was loaded for the lease; `None` if none was requested.
        profile: Option<LoadedProfile>,
    },
    /// The browser does not answer, or the session had ended before.
    NotAnswering,
    /// The profile could not be loaded into this browser. Another browser may be able to.
    ProfileNotLoaded,
    /// No browser can load the profile, for this reason.
    ProfileUnusable(String),
    /// The store of the profile does not respond, for this reason.
    ProfileUnavailable(String),
}

/// What a node is informed of. It reads the store itself, so a lost or repeated notice does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerNotice {
    /// A ticket of a caller that waits at the node was decided.
    Ticket(TicketId),
    /// The node may have to start or to end browsers of the pool.
    Pool(PoolId),
    /// Sessions or browsers of the node are stored as ended or ending; it ends their connections and sandboxes.
    Ended,
}

/// The port to the other nodes of the database. Each call is bounded in time and sent at most once.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Peers: Send + Sync {
    /// Has the owner hand out the browser of a new lease, which is stored as active: the owner watches the session,
    /// loads `profile` if there is one, begins the telemetry capture, probes the browser and opens the start URL. A
    /// hand-out that fails there ends the session as `start_failed`.
    ///
    /// # Errors
    /// See [`PeerError`].
    async fn hand_out(
        &self,
        owner: NodeId,
        session: SessionId,
        profile: Option<LoadedProfile>,
    ) -> Result<PeerHandOut, PeerError>;

    /// Has the owner take back a session whose response did not reach its caller: an unused browser returns to its
    /// pool, a used one ends. A session that has ended is not an error.
    ///
    /// # Errors
    /// See [`PeerError`].
    async fn undelivered(&self, owner: NodeId, session: SessionId) -> Result<(), PeerError>;

    /// Has the owner carry out the end of a session, which is stored already: it closes the connections, saves the
    /// profile and ends the sandbox. Returns when it would return to a caller that deletes the session there.
    ///
    /// # Errors
    /// See [`PeerError`].
    async fn carry_out_end(&self, owner: NodeId, session: SessionId) -> Result<(), PeerError>;

    /// Informs a node. Returns when the node has received the notice.
    ///
    /// # Errors
    /// See [`PeerError`].
    async fn inform(&self, node: NodeId, notice: PeerNotice) -> Result<(), PeerError>;
}

/// The peers of a node that reaches no other node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPeers;

fn no_listener(node: NodeId) -> PeerError {
    PeerError::Refused { node, reason: "this node has no cluster listener".to_owned() }
}

#[async_trait]
impl Peers for NoPeers {
    async fn hand_out(
        &self,
        owner: NodeId,
        _session: SessionId,
        _profile: Option<LoadedProfile>,
    ) -> Result<PeerHandOut, PeerError> {
        Err(no_listener(owner))
    }

    async fn undelivered(&self, owner: NodeId, _session: SessionId) -> Result<(), PeerError> {
        Err(no_listener(owner))
    }

    async fn carry_out_end(&self, owner: NodeId, _session: SessionId) -> Result<(), PeerError> {
        Err(no_listener(owner))
    }

    async fn inform(&self, node: NodeId, _notice: PeerNotice) -> Result<(), PeerError> {
        Err(no_listener(node))
    }
}
