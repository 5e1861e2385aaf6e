//! Connects fantoccini to a WebDriver server over streams that the caller opens.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Opens streams to one WebDriver server. Clones open streams to the same server.
#[derive(Clone)]
pub struct Connect(Arc<dyn Fn() -> Connecting + Send + Sync>);

impl Connect {
    /// Creates a connector that calls `open` for each new stream.
    pub fn new<F, Opening>(open: F) -> Self
    where
        F: Fn() -> Opening + Send + Sync + 'static,
        Opening: Future<Output = io::Result<TcpStream>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(open())))
    }
}

impl Service<Uri> for Connect {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let stream = (self.0)();
        Box::pin(async move { stream.await.map(TokioIo::new) })
    }
}
