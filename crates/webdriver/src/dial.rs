//! Connections to a WebDriver server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use casement_domain::ids::BrowserId;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Uri};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::ExposeSecret as _;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tower_service::Service;

use crate::address::Address;
use crate::config::{ConfigError, Credentials, WebDriverConfig};
use crate::debugger;
use crate::error::GridError;

/// How long a connection may take to be established.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that is gone without a word is noticed after a minute.
const SILENCE: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// A stream to a WebDriver server.
#[derive(Debug)]
pub enum GridStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A way to drive a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The WebSocket of the browser's CDP.
    Cdp,
    /// The WebSocket of WebDriver `BiDi`.
    Bidi,
    /// Classic WebDriver: the path is the one below which the commands are, without a slash at the end.
    Http,
}

/// What a request over a stream to a WebDriver server holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The value of the header `Host`.
    pub host: String,
    /// The path.
    pub path: String,
    /// Further headers. Those with credentials are marked as sensitive.
    pub headers: HeaderMap,
}

/// Opens streams to one WebDriver server. Clones share the settings.
#[derive(Clone)]
pub(crate) struct Dialer {
    address: Arc<Address>,
    tls: Option<TlsConnector>,
    authorization: Option<HeaderValue>,
}

impl Dialer {
    pub(crate) fn new(config: &WebDriverConfig) -> Result<Self, ConfigError> {
        let tls = config.address.secure.then(|| trust(config.ca.as_deref())).transpose()?;
        let authorization = config.credentials.as_ref().map(basic).transpose()?;
        Ok(Self { address: Arc::new(config.address.clone()), tls, authorization })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the headers of a request to the server.
    pub(crate) fn headers(&self) -> HeaderMap {
        self.authorization.iter().map(|value| (AUTHORIZATION, value.clone())).collect()
    }

    /// Opens a stream to the server.
    pub(crate) async fn dial(&self) -> Result<GridStream, GridError> {
        let within = CONNECT_TIMEOUT.as_secs();
        let stream = timeout(CONNECT_TIMEOUT, self.open()).await;
        let unreachable = |reason: String| GridError::Unreachable { reason: format!("{}: {reason}", *self.address) };
        let failed = |error: io::Error| unreachable(error.to_string());
        let slow = || unreachable(format!("no connection within {within} s"));
        stream.map_err(|_elapsed| slow())?.map_err(failed)
    }

    async fn open(&self) -> io::Result<GridStream> {
        let tcp = casement_dial::connect((self.address.host(), self.address.port)).await?;
        prepare(&tcp)?;
        let Some(tls) = &self.tls else { return Ok(GridStream::Plain(tcp)) };
        let name = ServerName::try_from(self.address.host()).map_err(io::Error::other)?;
        Ok(GridStream::Tls(Box::new(tls.connect(name, tcp).await?)))
    }
}

/// Opens a stream to a debugging port of this machine, if the marked browser listens there.
pub(crate) async fn dial_debugger(port: u16, browser: BrowserId) -> Result<GridStream, GridError> {
    let failed = |error: io::Error| GridError::Unreachable { reason: format!("the browser's port {port}: {error}") };
    if !debugger::is_of_browser(port, browser).await {
        let reason = format!("the port {port} of this machine is not that of a browser with the mark of this session");
        return Err(GridError::Unreachable { reason });
    }
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(("127.0.0.1", port)));
    let stream = connecting.await.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    prepare(&stream).map_err(failed)?;
    Ok(GridStream::Plain(stream))
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(SILENCE).with_interval(PROBE_INTERVAL).with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

fn basic(credentials: &Credentials) -> Result<HeaderValue, ConfigError> {
    let both = format!("{}:{}", credentials.user(), credentials.password().expose_secret());
    let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(both)));
    let mut value = value.map_err(|_| ConfigError { setting: "credentials", why: "are too long".into() })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the connector that trusts these authorities, or those of this machine.
fn trust(ca: Option<&[u8]>) -> Result<TlsConnector, ConfigError> {
    let bad = |why: &'static str| ConfigError { setting: "ca", why: why.into() };
    let mut roots = RootCertStore::empty();
    match ca {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|_| bad("is not PEM"))?;
                roots.add(certificate).map_err(|_| bad("holds a certificate that cannot be read"))?;
            }
            if roots.is_empty() {
                return Err(bad("holds no certificate"));
            }
        }
        // Certificates that cannot be loaded are skipped; without any, no server is trusted.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|_| bad("cannot be used: no version of TLS"))?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<GridStream>;
    type Error = GridError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move { dialer.dial().await.map(TokioIo::new) })
    }
}

impl Connection for GridStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for GridStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for GridStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
