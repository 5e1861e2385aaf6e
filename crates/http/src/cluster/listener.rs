//! The cluster listener: accepts connections of other nodes.

use std::{io, time::Duration};

use casement_domain::{NodeId, StoreError, node::Fingerprint};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{Cluster, identity::fingerprint};

/// The time that a node has for the handshake and the check of its key.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a connection is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedPeer {
    #[error("the handshake failed: {0}")]
    Handshake(#[from] io::Error),
    #[error("the key {0} is not that of a node of the database")]
    UnknownKey(Fingerprint),
    #[error("the peer has no certificate")]
    NoCertificate,
    #[error("the nodes cannot be read: {0}")]
    Store(#[from] StoreError),
}

/// Performs the handshake with a node, whose key the store must know.
///
/// # Errors
/// See [`RefusedPeer`].
pub(crate) async fn accept(
    cluster: &Cluster,
    socket: TcpStream,
) -> Result<(TlsStream<TcpStream>, NodeId), RefusedPeer> {
    let accepting = async {
        let stream = TlsAcceptor::from(cluster.identity.server()).accept(socket).await?;
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificate = certificates.first().ok_or(RefusedPeer::NoCertificate)?;
        let key = fingerprint(certificate).map_err(io::Error::other)?;
        let node = cluster.node_with(key).await?.ok_or(RefusedPeer::UnknownKey(key))?;
        Ok((stream, node))
    };
    timeout(HANDSHAKE_TIMEOUT, accepting).await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

impl Cluster {
    /// Returns the node with this key. If the store does not answer, a node is admitted that was admitted before.
    async fn node_with(&self, key: Fingerprint) -> Result<Option<NodeId>, StoreError> {
        let found = match self.nodes.find_by_key(key).await {
            Ok(stored) => stored.map(|stored| stored.node.id),
            Err(error) => return self.peers.lock().get(&key).copied().map(Some).ok_or(error),
        };
        let mut peers = self.peers.lock();
        match found {
            Some(node) => peers.insert(key, node),
            None => peers.remove(&key),
        };
        Ok(found)
    }
}
