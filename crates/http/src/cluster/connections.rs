//! Connections to other nodes. Each serves one request at a time.

use std::{
    collections::HashMap,
    error::Error,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use casement_domain::{
    NodeId, StoreError,
    node::{ClusterEndpoint, Epoch},
};
use http_body_util::Full;
use hyper::{
    body::{Body, Bytes},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{self, ClientConfig, pki_types::ServerName},
};
use tokio_util::task::AbortOnDropHandle;

use super::{Cluster, body::RequestBody};
use crate::relay;

/// The time to connect to a node, with the handshake.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// The time for which the stored endpoint of a node is not read again.
const ENDPOINT_TIME: Duration = Duration::from_secs(2);
/// The maximum idle time of a connection; shorter than the server's.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of idle connections to each node.
const MAX_IDLE: usize = 32;
/// The time in which an idle connection must be ready for a request.
const READY_TIMEOUT: Duration = Duration::from_millis(50);
/// The name in handshakes. Nodes are recognized by their keys.
const NAME: &str = "casement-node";

/// The reason why a node cannot be reached. Nothing was sent to it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the node is unknown, or has no cluster listener")]
    NoEndpoint,
    #[error("the address of the node cannot be read: {0}")]
    Store(#[from] StoreError),
    #[error("cannot connect to {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error("{address} does not speak HTTP: {source}")]
    Http { address: String, source: hyper::Error },
}

/// How a node is reached, as the store said it last.
#[derive(Clone)]
pub(super) struct Endpoint {
    address: String,
    config: Arc<ClientConfig>,
    pinned: ClusterEndpoint,
    epoch: Epoch,
    read_at: Instant,
}

/// A connection to a run of a node, for requests with bodies `B`.
pub(crate) struct Connected<B = RequestBody> {
    pub(super) sender: SendRequest<B>,
    pub(super) epoch: Epoch,
    pub(super) node: NodeId,
    idle_since: Instant,
    _connection: AbortOnDropHandle<()>,
}

/// Idle connections, for requests with bodies `B`.
pub(crate) struct IdleConnections<B>(Mutex<HashMap<NodeId, Vec<Connected<B>>>>);

/// The idle connections of a worker, for the requests of its clients.
pub(crate) type NodeConnections = IdleConnections<RequestBody>;

impl<B> Default for IdleConnections<B> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<B> IdleConnections<B> {
    /// Takes an idle connection to the node that is ready; `None` if there is none.
    pub(super) async fn take(&self, node: NodeId) -> Option<Connected<B>> {
        loop {
            let mut connected = self.0.lock().get_mut(&node)?.pop()?;
            let fresh = connected.idle_since.elapsed() < IDLE_TIMEOUT;
            if fresh && matches!(timeout(READY_TIMEOUT, connected.sender.ready()).await, Ok(Ok(()))) {
                return Some(connected);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn give_back(&self, mut connected: Connected<B>) {
        connected.idle_since = Instant::now();
        let mut all = self.0.lock();
        let idle = all.entry(connected.node).or_default();
        if idle.len() < MAX_IDLE {
            idle.push(connected);
        }
    }
}

/// A body, and where a connection with such bodies runs.
pub(super) trait RelayedBody:
    Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Sized + 'static
{
    /// Spawns the task of a connection.
    fn spawn(connection: http1::Connection<TokioIo<TlsStream<TcpStream>>, Self>, node: NodeId) -> JoinHandle<()>;
}

impl RelayedBody for RequestBody {
    /// On the thread of the client's connection, which the body belongs to.
    fn spawn(connection: http1::Connection<TokioIo<TlsStream<TcpStream>>, Self>, node: NodeId) -> JoinHandle<()> {
        tokio::task::spawn_local(async move { report(node, connection.with_upgrades().await) })
    }
}

impl RelayedBody for Full<Bytes> {
    fn spawn(connection: http1::Connection<TokioIo<TlsStream<TcpStream>>, Self>, node: NodeId) -> JoinHandle<()> {
        tokio::spawn(async move { report(node, connection.await) })
    }
}

fn report(node: NodeId, ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%node, %error, "a connection to another node was lost");
    }
}

impl Cluster {
    /// Connects to a node. A connection that fails is tried once more, at the address that the store has now.
    ///
    /// # Errors
    /// [`DialError`]; nothing was sent.
    pub(super) async fn dial<B: RelayedBody>(&self, node: NodeId) -> Result<Connected<B>, DialError> {
        let endpoint = self.endpoint(node, ENDPOINT_TIME).await?;
        match connect(node, &endpoint).await {
            Ok(connected) => Ok(connected),
            Err(error) => {
                tracing::debug!(%node, %error, "a connection to a node failed; trying once more");
                connect(node, &self.endpoint(node, Duration::ZERO).await?).await
            }
        }
    }

    /// Returns the endpoint of a node, as it was stored at most `age` ago. If the store does not answer, the last known
    /// endpoint is used.
    async fn endpoint(&self, node: NodeId, age: Duration) -> Result<Endpoint, DialError> {
        let known = self.endpoints.lock().get(&node).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.read_at.elapsed() < age) {
            return Ok(known.clone());
        }
        let stored = match (self.nodes.find(node).await, known) {
            (Ok(stored), known) => stored.and_then(|stored| Some((stored.node.cluster?, stored.epoch, known))),
            (Err(_), Some(known)) => return Ok(known),
            (Err(error), None) => return Err(error.into()),
        };
        let (pinned, epoch, known) = stored.ok_or(DialError::NoEndpoint)?;
        let same_key = known.filter(|known| known.pinned.fingerprint == pinned.fingerprint);
        let config = match same_key {
            // Keeps the tickets of earlier handshakes.
            Some(known) => known.config,
            None => self.identity.client(pinned.fingerprint)?,
        };
        let endpoint = Endpoint { address: pinned.address.clone(), config, pinned, epoch, read_at: Instant::now() };
        self.endpoints.lock().insert(node, endpoint.clone());
        Ok(endpoint)
    }
}

async fn connect<B: RelayedBody>(node: NodeId, endpoint: &Endpoint) -> Result<Connected<B>, DialError> {
    let failed = |source: io::Error| DialError::Connect { address: endpoint.address.clone(), source };
    let dialling = async {
        let socket = casement_dial::connect(&endpoint.address).await?;
        relay::prepare_connection(&socket);
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&endpoint.config)).connect(name, socket).await
    };
    let dialled = timeout(DIAL_TIMEOUT, dialling).await;
    let stream = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|source| DialError::Http { address: endpoint.address.clone(), source })?;
    let connection = AbortOnDropHandle::new(B::spawn(connection, node));
    let epoch = endpoint.epoch;
    Ok(Connected { sender, epoch, node, idle_since: Instant::now(), _connection: connection })
}
