//! Relays a request to the owner of its session, and passes the response.

use std::{rc::Rc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method, StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
    web::{Bytes, Payload},
};
use casement_domain::{ApiKeyId, NodeId, SessionId};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;

use super::{
    Cluster, Lifetime, NodeConnections,
    body::{RequestBody, ResponseBody},
    connections::{Connected, DialError},
    headers::{FULL, KEY, LIFETIME},
    send::{SendError, send},
};
use crate::{
    audit,
    connections::SESSION_HEADER,
    error::{ApiError, Code},
    relay::{ByteCounter, CloseReason, Ending, Limits, RelayBody, SendBacklog, UnreadBytes, Upstream},
    state::Api,
};

/// The headers of a connection, which are not those of a message (RFC 9110 §7.6.1), and what the entrance has answered.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
];
const KEEP_ALIVE: &str = "keep-alive";
const REQUEST_ID: &str = "x-request-id";
/// The label of relays between nodes in metrics.
const CHANNEL: &str = "node";
/// The time that the owner has to switch protocols after it has announced that.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    /// The owner of the session.
    pub(crate) node: NodeId,
    /// The session; `None`: the request makes one.
    pub(crate) session: Option<SessionId>,
    /// The authenticated key; `None`: the request has a token of the session.
    pub(crate) key: Option<ApiKeyId>,
    /// The path and query at the owner; `None`: those of the request.
    pub(crate) path_and_query: Option<String>,
    /// How long the session lives, if it was made for this connection.
    pub(crate) lifetime: Option<Lifetime>,
}

/// Relays a request whose body was not read yet.
///
/// # Errors
/// `misdirected` for a request that another node has relayed; `unavailable` if the owner cannot be reached, and nothing
/// was done; `internal` if the owner failed while it may have done something; an error
/// [for a full node](ApiError::is_for_full_node) if the request makes a session and the node has no room for it.
pub(crate) async fn forward(
    api: &Api,
    request: &HttpRequest,
    payload: Payload,
    to: Destination,
) -> Result<HttpResponse, ApiError> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(number);
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    if is_upgrade {
        return forward_upgrade(api, request, || Ok(payload), &to).await;
    }
    let length = if is_chunked { None } else { Some(length.unwrap_or(0)) };
    exchange(api, request, RequestBody::Client { payload, length }, &to).await?.passed()
}

/// Relays a request whose body was read.
///
/// # Errors
/// As for [`forward`].
pub(crate) async fn forward_bytes(
    api: &Api,
    request: &HttpRequest,
    body: Bytes,
    to: &Destination,
) -> Result<HttpResponse, ApiError> {
    exchange(api, request, RequestBody::Bytes(body), to).await?.passed()
}

/// Relays a request for a WebSocket. Its payload is taken after the owner has answered.
///
/// # Errors
/// As for [`forward`].
pub(crate) async fn forward_upgrade(
    api: &Api,
    request: &HttpRequest,
    payload: impl FnOnce() -> Result<Payload, ApiError>,
    to: &Destination,
) -> Result<HttpResponse, ApiError> {
    let upgraded = exchange(api, request, RequestBody::Bytes(Bytes::new()), to).await?;
    upgraded.switched(api, request, payload()?, to).await
}

/// A response of the owner.
struct Answered {
    response: Response<Incoming>,
    connected: Connected,
    pool: Rc<NodeConnections>,
    cluster: Cluster,
    is_head: bool,
}

async fn exchange(api: &Api, request: &HttpRequest, body: RequestBody, to: &Destination) -> Result<Answered, ApiError> {
    if super::Hop::is(request) {
        return Err(ApiError::new(Code::Misdirected, "a relayed request is not relayed again"));
    }
    let alone = || unanswered(DialError::NoEndpoint.into(), false, to);
    let cluster = api.services.cluster.as_ref().ok_or_else(alone)?;
    let pool = request.app_data::<Rc<NodeConnections>>().cloned();
    let pool = pool.ok_or_else(|| ApiError::internal("the server was put together without its connections"))?;
    let message = message(request, body, to)?;
    let sent = send(cluster, &pool, to.node, message).await;
    let (response, connected) = sent.map_err(|error| unanswered(error, audit::may_change(request), to))?;
    if response.headers().contains_key(FULL) {
        return Err(ApiError::new(Code::LimitExceeded, "the node has no room for the session").for_full_node());
    }
    Ok(Answered { response, connected, pool, cluster: cluster.clone(), is_head: request.method() == Method::HEAD })
}

fn unavailable(message: &str) -> ApiError {
    ApiError::new(Code::Unavailable, message)
}

fn unanswered(error: SendError, may_change: bool, to: &Destination) -> ApiError {
    let reported = match &error {
        SendError::Dial(_) => unavailable("the node of the session cannot be reached; nothing was done"),
        SendError::Misdirected => unavailable("the node of the session has just started again; nothing was done"),
        SendError::Lost if to.session.is_some() => {
            ApiError::new(Code::NotFound, "the session has ended: its node was lost (node_lost)")
        }
        SendError::Broken(_) | SendError::Lost if may_change => {
            ApiError::new(Code::Internal, "the node of the session did not answer; it may have done this")
        }
        SendError::Unsent(_) | SendError::Broken(_) | SendError::Lost => {
            unavailable("the node of the session did not answer; nothing was done")
        }
    };
    reported.caused_by(error)
}

/// Builds the message to the owner: the request without its credential, with the authenticated key.
fn message(request: &HttpRequest, body: RequestBody, to: &Destination) -> Result<Request<RequestBody>, ApiError> {
    let path = match &to.path_and_query {
        Some(path) => path.clone(),
        None => request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
    };
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    // The entrance reads the response to a body that it has read.
    let is_read = matches!(body, RequestBody::Bytes(_)) && !is_upgrade;
    let mut message = Request::builder().method(request.method().as_str()).uri(path);
    for (name, value) in request.headers() {
        let is_upgrade_header = is_upgrade && [header::CONNECTION, header::UPGRADE].contains(name);
        let is_replaced = to.key.is_some() && [header::AUTHORIZATION, header::COOKIE].contains(name);
        let is_dropped = name == REQUEST_ID
            || (is_read && name == header::ACCEPT_ENCODING)
            || HOP_BY_HOP.contains(name)
            || name == KEEP_ALIVE
            || name == header::CONTENT_LENGTH;
        if is_upgrade_header || !(is_dropped || is_replaced) {
            message = message.header(name.as_str(), value.as_bytes());
        }
    }
    if let Some(key) = to.key {
        message = message.header(KEY, key.to_string());
    }
    if let Some(lifetime) = to.lifetime {
        message = message.header(LIFETIME, lifetime.to_string());
    }
    message = message.header(REQUEST_ID, audit::request_id(request));
    message.body(body).map_err(ApiError::internal)
}

fn number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

impl Answered {
    /// Passes the response to the client.
    fn passed(self) -> Result<HttpResponse, ApiError> {
        let Self { response, connected, pool, cluster, is_head } = self;
        let (head, body) = response.into_parts();
        let status = StatusCode::from_u16(head.status.as_u16()).map_err(ApiError::internal)?;
        let mut passed = HttpResponse::build(status);
        let mut length = None;
        for (name, value) in &head.headers {
            let (Ok(name), Ok(value)) =
                (name.as_str().parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes()))
            else {
                continue;
            };
            if name == header::CONTENT_LENGTH {
                length = number(&value);
            } else if !HOP_BY_HOP.contains(&name) && name != KEEP_ALIVE {
                passed.append_header((name, value));
            }
        }
        let has_no_body = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let length = if has_no_body && !is_head { Some(0) } else { length };
        Ok(passed.body(ResponseBody::new(body, length, connected, pool, cluster)))
    }

    /// Passes a response that may switch protocols, and relays the connection then.
    async fn switched(
        mut self,
        api: &Api,
        request: &HttpRequest,
        payload: Payload,
        to: &Destination,
    ) -> Result<HttpResponse, ApiError> {
        if self.response.status() != hyper::StatusCode::SWITCHING_PROTOCOLS {
            return self.passed();
        }
        let upgrading = tokio::time::timeout(UPGRADE_TIMEOUT, hyper::upgrade::on(&mut self.response)).await;
        let upgraded = upgrading.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
        let upstream = Upstream::of_node(TokioIo::new(upgraded));
        let mut switched = HttpResponse::build(StatusCode::SWITCHING_PROTOCOLS);
        switched.upgrade("websocket");
        for (name, value) in self.response.headers() {
            let is_own = ["connection", "upgrade"].contains(&name.as_str());
            if !is_own {
                switched.append_header((name.as_str(), value.as_bytes()));
            }
        }
        let made = self.response.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok()?.parse().ok());
        let session = to.session.or(made);
        let session = session.ok_or_else(|| ApiError::internal("the connection of another node names no session"))?;
        let (end, registered) = api.services.connections.register(session);
        // A node that is stopped, or cut off, keeps its connections.
        let over = self.cluster.clone().until_over(self.connected.node, self.connected.epoch);
        let session_end = async move {
            tokio::select! {
                reason = end.ended() => reason,
                () = over => CloseReason::NodeUnreachable,
            }
        };
        let ending = Ending { session_end: Box::pin(session_end), default_reason: CloseReason::NodeUnreachable };
        let backlog = request.conn_data::<SendBacklog>().cloned().unwrap_or_default();
        let counter = ByteCounter::open(CHANNEL, backlog, None);
        let guard = Box::new((registered, self.connected));
        let (unread, limits) = (UnreadBytes::default(), Limits::default());
        let body = RelayBody::new(payload, upstream, unread, ending, limits, counter, guard);
        Ok(switched.streaming(body.of_node()))
    }
}
