//! TLS over the sockets of connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::tls::{ChannelBinding, TlsConnect};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_util::either::Either;

use super::error::TlsError;
use crate::refusals::Observed;

/// A socket to the database, of the network or of this machine.
pub(crate) type Plain = Either<TcpStream, UnixStream>;

/// Makes the handshakes of one connection attempt.
#[derive(Clone)]
pub(crate) struct Connector {
    /// The reason of a failure is reported when a handshake begins: the driver also asks for connectors of connections
    /// without TLS.
    pub(crate) config: Result<Arc<ClientConfig>, TlsError>,
    /// Where the known authorities are, for messages.
    pub(crate) roots: String,
}

impl Connector {
    /// Returns the handshake with a host.
    pub(crate) fn handshake(&self, host: &str) -> Handshake {
        Handshake { connector: self.clone(), host: host.to_owned() }
    }
}

/// The handshake with one host.
pub(crate) struct Handshake {
    connector: Connector,
    host: String,
}

impl TlsConnect<Observed<Plain>> for Handshake {
    type Stream = Encrypted;
    type Error = TlsError;
    type Future = Pin<Box<dyn Future<Output = Result<Encrypted, TlsError>> + Send>>;

    fn connect(self, socket: Observed<Plain>) -> Self::Future {
        Box::pin(async move {
            let (socket, refusals) = socket.into_parts();
            let Self { connector: Connector { config, roots }, host } = self;
            let name = ServerName::try_from(host.clone()).map_err(|_| TlsError::BadHost(host.clone()))?;
            let stream = tokio_rustls::TlsConnector::from(config?).connect(name, socket).await;
            let stream = stream.map_err(|error| TlsError::of_handshake(&error, &host, &roots))?;
            Ok(Encrypted(Observed::new(Box::new(stream), refusals, 0)))
        })
    }
}

/// A connection with TLS. Boxed, so that one without TLS does not need its memory.
pub(crate) struct Encrypted(Observed<Box<TlsStream<Plain>>>);

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl tokio_postgres::tls::TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().get_ref().1.peer_certificates();
        match certificates.and_then(<[_]>::first).and_then(end_point) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

/// Returns the hash of a certificate that a password can be bound to (`tls-server-end-point`, RFC 5929): with the hash
/// function of its signature, or SHA-256 in place of MD5 and SHA-1. Other signatures have none.
fn end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    match parsed.signature_algorithm.algorithm.to_id_string().as_str() {
        // RSA and ECDSA with MD5, SHA-1 or SHA-256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => Some(Sha256::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Some(Sha384::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}
