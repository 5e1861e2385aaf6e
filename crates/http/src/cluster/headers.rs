//! The headers of requests between nodes. They are believed on connections of the cluster listener only, and removed
//! from all other requests.

use std::str::FromStr;

use actix_web::{
    HttpMessage as _, HttpRequest,
    dev::ServiceRequest,
    http::header::{HeaderName, HeaderValue},
};
use casement_domain::{ApiKeyId, NodeId, node::Epoch};

use super::{Cluster, Lifetime};
use crate::{
    error::{ApiError, Code},
    transport::NodePeer,
};

/// The beginning of the names of all headers between nodes.
const PREFIX: &str = "casement-hop-";
/// The node and the run for which a request is meant, as `node.epoch`.
pub(super) const TARGET: &str = "casement-hop-target";
/// The id of the API key that the entrance has authenticated.
pub(super) const KEY: &str = "casement-hop-key";
/// How long a session lives that was made for the relayed connection.
pub(super) const LIFETIME: &str = "casement-hop-lifetime";

/// Marks the response of a node that made no session because it is full, and has done nothing.
pub(super) const FULL: &str = "casement-hop-full";

/// A request that another node relays. The other node has authenticated the caller, counted the call and records it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    /// The key of the caller; `None`: the request has the token of a session.
    pub(crate) key: Option<ApiKeyId>,
    /// How long the session lives that was made for this connection.
    pub(crate) lifetime: Option<Lifetime>,
}

impl Hop {
    /// Returns the relay that a request came through.
    pub(crate) fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get().copied()
    }

    /// Returns whether another node relays the request.
    pub(crate) fn is(request: &HttpRequest) -> bool {
        Self::of(request).is_some()
    }
}

/// Marks the response to a node that relays a request for a session: another node may be asked instead.
pub(crate) fn mark_as_full(error: ApiError) -> ApiError {
    error.with_header(HeaderName::from_static(FULL), HeaderValue::from_static("1"))
}

/// Returns the target header for a run of a node.
pub(super) fn target(node: NodeId, epoch: Epoch) -> String {
    format!("{node}.{epoch}")
}

/// Reads the headers of a request from another node, or removes them from the request of a client.
///
/// # Errors
/// `misdirected` if the request is meant for another node or for another run of this one; `bad_request` if a header has
/// another form.
pub(crate) fn admit(cluster: Option<&Cluster>, request: &mut ServiceRequest) -> Result<(), ApiError> {
    if request.conn_data::<NodePeer>().is_none() {
        remove(request);
        return Ok(());
    }
    let misdirected =
        || ApiError::new(Code::Misdirected, "the request is meant for another node, or for an earlier run");
    let cluster = cluster.ok_or_else(misdirected)?;
    let own = target(cluster.node(), cluster.epoch());
    let headers = request.headers();
    if headers.get(TARGET).is_none_or(|named| named.as_bytes() != own.as_bytes()) {
        return Err(misdirected());
    }
    let (key, lifetime) = (headers.get(KEY).map(parsed).transpose()?, headers.get(LIFETIME).map(parsed).transpose()?);
    remove(request);
    request.extensions_mut().insert(Hop { key, lifetime });
    Ok(())
}

fn parsed<T: FromStr>(value: &HeaderValue) -> Result<T, ApiError> {
    let parsed = value.to_str().ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| ApiError::new(Code::BadRequest, "a header between nodes is malformed"))
}

fn remove(request: &mut ServiceRequest) {
    let headers = request.headers_mut();
    let named: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}
