//! The connector of hyper's client.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Scheme};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};
use tower_service::Service;

use crate::connect;

/// Connects to the host of a URI, for hyper's client.
#[derive(Clone, Debug)]
pub struct HttpConnector {
    within: Duration,
}

impl HttpConnector {
    /// Creates the connector. `within` is the timeout of a connection, with the resolution of its name.
    #[must_use]
    pub const fn new(within: Duration) -> Self {
        Self { within }
    }
}

impl Service<Uri> for HttpConnector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let within = self.within;
        Box::pin(async move {
            let no_host = || io::Error::new(io::ErrorKind::InvalidInput, "the URI has no host");
            let host = uri.host().ok_or_else(no_host)?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
            let connecting = timeout(within, connect((host, uri.port_u16().unwrap_or(usual))));
            let stream = connecting.await.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}
