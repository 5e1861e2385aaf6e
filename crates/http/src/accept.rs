//! Accepts connections: negotiates TLS and the version of HTTP, and passes each connection to the HTTP service.

use std::{future::poll_fn, io, net::SocketAddr, rc::Rc, sync::Arc, task::Poll, time::Duration};

use actix_http::error::DispatchError;
use actix_service::Service;
use casement_domain::IdSource;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{self, Cluster},
    error::Code,
    http2,
    plain_errors::{self, Connection},
    relay,
    tls::{HTTP2, ServerCertificate},
    transport::{NodePeer, Transport},
    waits::Waits,
};

/// The time that a client has to complete the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of bytes that are read of a request without TLS, so that its response is not lost by a reset.
const MAX_PLAIN_BYTES: usize = 16 << 10;
/// The maximum time for that request and its response.
const PLAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Who connects to a listener.
#[derive(Clone)]
pub(crate) enum Clients {
    /// Clients of the API, over TLS if there is a certificate.
    Public(Option<ServerCertificate>),
    /// Other nodes.
    Nodes(Cluster),
}

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) clients: Clients,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) waits: Waits,
    pub(crate) stopping: CancellationToken,
}

impl Acceptor {
    /// Serves a connection to its end.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) async fn serve<S>(&self, socket: TcpStream, http: &Rc<S>) -> Result<(), DispatchError>
    where
        S: Service<(Connection, Option<SocketAddr>), Response = (), Error = DispatchError> + 'static,
    {
        relay::prepare_connection(&socket);
        let peer = socket.peer_addr().ok();
        let certificate = match &self.clients {
            Clients::Public(Some(certificate)) => certificate,
            Clients::Public(None) => return self.serve_http1(Transport::Plain(socket), peer, http).await,
            Clients::Nodes(cluster) => return self.serve_node(cluster, socket, peer, http).await,
        };
        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.accept_tls(certificate, socket, peer)).await;
        let Ok(Some(stream)) = accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).inspect_err(log) else {
            return Ok(());
        };
        if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
            http2::serve(stream, peer, self.clone(), Rc::clone(http)).await;
            return Ok(());
        }
        self.serve_http1(Transport::Tls(Box::new(stream)), peer, http).await
    }

    /// Serves a connection of another node to its end.
    async fn serve_node<S>(
        &self,
        cluster: &Cluster,
        socket: TcpStream,
        peer: Option<SocketAddr>,
        http: &Rc<S>,
    ) -> Result<(), DispatchError>
    where
        S: Service<(Connection, Option<SocketAddr>), Response = (), Error = DispatchError>,
    {
        let pending = self.waits.heads.register(peer.map(|peer| peer.ip()), 1);
        let closed = poll_fn(|cx| if pending.is_closed(cx) { Poll::Ready(()) } else { Poll::Pending });
        let accepted = tokio::select! {
            accepted = cluster::accept(cluster, socket) => accepted,
            () = closed => return Ok(()),
        };
        drop(pending);
        match accepted {
            Ok((stream, node)) => {
                let connection = self.connection(Transport::Tls(Box::new(stream)), peer).of_node(NodePeer(node));
                poll_fn(|cx| http.poll_ready(cx)).await?;
                http.call((connection, peer)).await
            }
            Err(refused) => {
                metrics::counter!("casement_node_connections_refused_total").increment(1);
                tracing::warn!(peer = peer.map(tracing::field::display), %refused, "a connection to the cluster listener is refused");
                Ok(())
            }
        }
    }

    fn connection(&self, stream: Transport, peer: Option<SocketAddr>) -> Connection {
        Connection::new(stream, peer.map(|peer| peer.ip()), Arc::clone(&self.ids), self.waits.clone())
    }

    /// Serves HTTP/1.1 on a stream to its end.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) async fn serve_http1<S>(
        &self,
        stream: Transport,
        peer: Option<SocketAddr>,
        http: &Rc<S>,
    ) -> Result<(), DispatchError>
    where
        S: Service<(Connection, Option<SocketAddr>), Response = (), Error = DispatchError>,
    {
        let connection = self.connection(stream, peer);
        poll_fn(|cx| http.poll_ready(cx)).await?;
        http.call((connection, peer)).await
    }

    /// Performs the handshake; `None` if the connection was closed to make room, or has been answered without TLS.
    async fn accept_tls(
        &self,
        certificate: &ServerCertificate,
        socket: TcpStream,
        peer: Option<SocketAddr>,
    ) -> io::Result<Option<TlsStream<TcpStream>>> {
        // A connection in its handshake occupies a slot like one that has not sent the head of a request.
        let pending = self.waits.heads.register(peer.map(|peer| peer.ip()), 1);
        let closed = poll_fn(|cx| if pending.is_closed(cx) { Poll::Ready(()) } else { Poll::Pending });
        let handshake = async {
            let mut first = [0];
            socket.peek(&mut first).await?;
            // A TLS record begins with its type, which is no letter; a request begins with its method.
            if first[0].is_ascii_alphabetic() {
                self.refuse_plain(socket).await?;
                return Ok(None);
            }
            certificate.acceptor().accept(socket).await.map(Some)
        };
        tokio::select! {
            accepted = handshake => accepted,
            () = closed => Ok(None),
        }
    }

    /// Answers a request without TLS.
    async fn refuse_plain(&self, mut socket: TcpStream) -> io::Result<()> {
        let message = "this port serves HTTPS: use https:// in the URL";
        let response = plain_errors::render(Code::BadRequest, message, self.ids.as_ref());
        let exchange = async {
            let mut request = vec![0; MAX_PLAIN_BYTES];
            let _ = socket.read(&mut request).await?;
            socket.write_all(&response).await?;
            socket.shutdown().await?;
            socket.read(&mut request).await.map(drop)
        };
        tokio::time::timeout(PLAIN_TIMEOUT, exchange).await.unwrap_or(Ok(()))
    }
}

fn log(error: &io::Error) {
    tracing::debug!(%error, "a TLS handshake failed");
}
