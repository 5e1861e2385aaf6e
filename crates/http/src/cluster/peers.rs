//! Calls from one node to another, which no client makes: the port `Peers` over connections between nodes.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use casement_domain::{
    NodeId, PoolId, ProfileId, ProfileVersionId, SessionId, TicketId,
    node::{PeerError, PeerHandOut, PeerNotice, Peers},
    profile::LoadedProfile,
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, StatusCode, body::Bytes};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::{
    Cluster,
    connections::{DialError, IdleConnections},
    send::{SendError, send},
};

/// The path below which nodes call each other.
pub(crate) const PATH: &str = "/cluster/calls";
/// The maximum time of a hand-out that loads no profile.
const HAND_OUT_CALL: Duration = Duration::from_secs(15);
/// The maximum time of a call that may load a profile or save one.
const LONG_CALL: Duration = Duration::from_secs(120);
/// The maximum time of a notice.
const SHORT_CALL: Duration = Duration::from_secs(2);
/// The maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// A call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub(crate) enum PeerCall {
    HandOut { session: String, profile: Option<WireProfile> },
    Undelivered { session: String },
    CarryOutEnd { session: String },
    InformTicket { ticket: String },
    InformPool { pool: String },
    InformEnded,
}

/// The answer to a hand-out.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(crate) enum HandOutAnswer {
    Done { profile: Option<WireProfile> },
    NotAnswering,
    ProfileNotLoaded,
    ProfileUnusable { reason: String },
    ProfileUnavailable { reason: String },
}

/// The answer to all other calls.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Nothing {}

/// A profile that a session loads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireProfile {
    id: String,
    version: Option<String>,
    save_changes: bool,
}

/// A text that is not what a call may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call between nodes is malformed")]
pub(crate) struct BadCall;

impl From<LoadedProfile> for WireProfile {
    fn from(profile: LoadedProfile) -> Self {
        let LoadedProfile { id, version, save_changes } = profile;
        Self { id: id.to_string(), version: version.map(|version| version.to_string()), save_changes }
    }
}

impl TryFrom<WireProfile> for LoadedProfile {
    type Error = BadCall;

    fn try_from(profile: WireProfile) -> Result<Self, BadCall> {
        let id: ProfileId = profile.id.parse().map_err(|_| BadCall)?;
        let version = profile.version.map(|version| version.parse::<ProfileVersionId>()).transpose();
        Ok(Self { id, version: version.map_err(|_| BadCall)?, save_changes: profile.save_changes })
    }
}

impl From<PeerHandOut> for HandOutAnswer {
    fn from(result: PeerHandOut) -> Self {
        match result {
            PeerHandOut::Done { profile } => Self::Done { profile: profile.map(Into::into) },
            PeerHandOut::NotAnswering => Self::NotAnswering,
            PeerHandOut::ProfileNotLoaded => Self::ProfileNotLoaded,
            PeerHandOut::ProfileUnusable(reason) => Self::ProfileUnusable { reason },
            PeerHandOut::ProfileUnavailable(reason) => Self::ProfileUnavailable { reason },
        }
    }
}

impl TryFrom<HandOutAnswer> for PeerHandOut {
    type Error = BadCall;

    fn try_from(answer: HandOutAnswer) -> Result<Self, BadCall> {
        Ok(match answer {
            HandOutAnswer::Done { profile } => Self::Done { profile: profile.map(TryInto::try_into).transpose()? },
            HandOutAnswer::NotAnswering => Self::NotAnswering,
            HandOutAnswer::ProfileNotLoaded => Self::ProfileNotLoaded,
            HandOutAnswer::ProfileUnusable { reason } => Self::ProfileUnusable(reason),
            HandOutAnswer::ProfileUnavailable { reason } => Self::ProfileUnavailable(reason),
        })
    }
}

/// Calls other nodes. Clones share the connections.
#[derive(Clone)]
pub struct NodeCalls {
    cluster: Cluster,
    idle: Arc<IdleConnections<Full<Bytes>>>,
}

impl NodeCalls {
    /// Creates the calls of this node.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, idle: Arc::default() }
    }

    async fn call<A: DeserializeOwned>(&self, node: NodeId, call: &PeerCall, time: Duration) -> Result<A, PeerError> {
        let body = serde_json::to_vec(call).map_err(|error| refused(node, &error))?;
        let message = Request::builder()
            .method(Method::POST)
            .uri(PATH)
            .header(hyper::header::HOST, "node")
            .header(hyper::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| refused(node, &error))?;
        let result = timeout(time, self.exchange(node, message)).await.unwrap_or(Err(PeerError::Unclear(node)));
        let result = result.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|_| PeerError::Unclear(node)));
        if let Err(PeerError::Unreachable(_) | PeerError::Unclear(_)) = &result {
            tracing::info!(%node, "a node did not answer; its waiting callers are passed over until it answers");
        }
        result
    }

    async fn exchange(&self, node: NodeId, message: Request<Full<Bytes>>) -> Result<Bytes, PeerError> {
        let sent = send(&self.cluster, &self.idle, node, message).await;
        let (response, connected) = sent.map_err(|error| {
            tracing::debug!(%node, %error, "a call to a node failed");
            match error {
                SendError::Dial(DialError::NoEndpoint) => refused(node, &error),
                SendError::Dial(_) | SendError::Unsent(_) => PeerError::Unreachable(node),
                SendError::Broken(_) | SendError::Lost => PeerError::Unclear(node),
                SendError::Misdirected => refused(node, &error),
            }
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        let bytes = body.map_err(|_| PeerError::Unclear(node))?.to_bytes();
        self.idle.give_back(connected);
        match status {
            StatusCode::OK => Ok(bytes),
            // Only these say that nothing was done.
            StatusCode::BAD_REQUEST | StatusCode::SERVICE_UNAVAILABLE => {
                Err(PeerError::Refused { node, reason: format!("status {status}") })
            }
            _ => Err(PeerError::Unclear(node)),
        }
    }
}

fn refused(node: NodeId, error: &dyn std::error::Error) -> PeerError {
    PeerError::Refused { node, reason: error.to_string() }
}

#[async_trait]
impl Peers for NodeCalls {
    async fn hand_out(
        &self,
        owner: NodeId,
        session: SessionId,
        profile: Option<LoadedProfile>,
    ) -> Result<PeerHandOut, PeerError> {
        let time = if profile.is_some() { LONG_CALL } else { HAND_OUT_CALL };
        let call = PeerCall::HandOut { session: session.to_string(), profile: profile.map(Into::into) };
        let answer: HandOutAnswer = self.call(owner, &call, time).await?;
        answer.try_into().map_err(|_| PeerError::Unclear(owner))
    }

    async fn undelivered(&self, owner: NodeId, session: SessionId) -> Result<(), PeerError> {
        let call = PeerCall::Undelivered { session: session.to_string() };
        self.call::<Nothing>(owner, &call, LONG_CALL).await.map(drop)
    }

    async fn carry_out_end(&self, owner: NodeId, session: SessionId) -> Result<(), PeerError> {
        let call = PeerCall::CarryOutEnd { session: session.to_string() };
        self.call::<Nothing>(owner, &call, LONG_CALL).await.map(drop)
    }

    async fn inform(&self, node: NodeId, notice: PeerNotice) -> Result<(), PeerError> {
        let call = match notice {
            PeerNotice::Ticket(ticket) => PeerCall::InformTicket { ticket: ticket.to_string() },
            PeerNotice::Pool(pool) => PeerCall::InformPool { pool: pool.to_string() },
            PeerNotice::Ended => PeerCall::InformEnded,
        };
        self.call::<Nothing>(node, &call, SHORT_CALL).await.map(drop)
    }
}

/// A call with its identifiers.
pub(crate) enum Received {
    HandOut(SessionId, Option<LoadedProfile>),
    Undelivered(SessionId),
    CarryOutEnd(SessionId),
    Inform(PeerNotice),
}

impl TryFrom<PeerCall> for Received {
    type Error = BadCall;

    fn try_from(call: PeerCall) -> Result<Self, BadCall> {
        let session = |text: String| text.parse::<SessionId>().map_err(|_| BadCall);
        Ok(match call {
            PeerCall::HandOut { session: id, profile } => {
                Self::HandOut(session(id)?, profile.map(TryInto::try_into).transpose()?)
            }
            PeerCall::Undelivered { session: id } => Self::Undelivered(session(id)?),
            PeerCall::CarryOutEnd { session: id } => Self::CarryOutEnd(session(id)?),
            PeerCall::InformTicket { ticket } => {
                Self::Inform(PeerNotice::Ticket(ticket.parse::<TicketId>().map_err(|_| BadCall)?))
            }
            PeerCall::InformPool { pool } => {
                Self::Inform(PeerNotice::Pool(pool.parse::<PoolId>().map_err(|_| BadCall)?))
            }
            PeerCall::InformEnded => Self::Inform(PeerNotice::Ended),
        })
    }
}
