//! The byte stream of a connection: plain, encrypted, or a pipe within this process.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use casement_domain::NodeId;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// The node at the other end of a connection of the cluster listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePeer(#[expect(dead_code, reason = "in debug prints")] pub(crate) NodeId);

/// The byte stream of a connection.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Leads to an HTTP/2 connection, which carries other requests too.
    Pipe(DuplexStream),
    /// The stream has been moved elsewhere.
    Taken,
}

impl Transport {
    /// Returns the socket of this connection alone; `None` if there is none.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(stream) => Some(stream.get_ref().0),
            Self::Pipe(_) | Self::Taken => None,
        }
    }

    /// Moves the stream out.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Taken)
    }

    fn parts(&mut self) -> io::Result<Pin<&mut dyn Stream>> {
        match self {
            Self::Plain(stream) => Ok(Pin::new(stream)),
            Self::Tls(stream) => Ok(Pin::new(stream.as_mut())),
            Self::Pipe(stream) => Ok(Pin::new(stream)),
            Self::Taken => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().parts()?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().parts()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().parts()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().parts()?.poll_shutdown(cx)
    }
}
