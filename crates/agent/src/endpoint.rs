//! The place where the browser's debugging protocol is reached: on the sandbox's loopback, or through the unix socket
//! of a remote browser.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::{TcpStream, UnixStream};
use tokio_util::either::Either;

/// A connection to the browser, before its WebSocket handshake.
pub(crate) type Stream = Either<TcpStream, UnixStream>;

/// The address of the browser's debugging WebSocket.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    /// Chromium in this sandbox, with the path of its WebSocket.
    Local { port: u16, path: String },
    /// The unix socket of a remote browser. Each connection to it leads to the WebSocket of that browser; the server
    /// knows the path.
    Remote(Arc<Path>),
}

impl Endpoint {
    /// Opens a connection.
    pub(crate) async fn open(&self) -> io::Result<Stream> {
        match self {
            Self::Local { port, .. } => {
                let tcp = TcpStream::connect(("127.0.0.1", *port)).await?;
                tcp.set_nodelay(true)?;
                Ok(Either::Left(tcp))
            }
            Self::Remote(socket) => Ok(Either::Right(UnixStream::connect(socket).await?)),
        }
    }

    /// Returns the value of the `Host` header.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Local { port, .. } => format!("127.0.0.1:{port}"),
            Self::Remote(_) => "localhost".to_owned(),
        }
    }

    /// Returns the path of the WebSocket.
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Local { path, .. } => path,
            Self::Remote(_) => "/",
        }
    }

    /// Returns true for a remote browser.
    pub(crate) const fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}
