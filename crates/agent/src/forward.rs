//! The way to the web: Chromium's proxy on the sandbox's loopback, each connection copied to the unix socket that leads out.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

use crate::egress::{Exchange, FailedTunnels};

/// Connections open at once. Chromium itself stays below 256 to one proxy unless a policy raises it.
const MAX_CONNECTIONS: usize = 512;

/// Opens the forwarder's port. Done before Chromium starts, so that nothing else in the sandbox can take it.
pub(crate) async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).await
}

/// Copies connections until the task is dropped.
///
/// The socket is connected anew each time: it vanishes while the server restarts and comes back under the same name. A
/// connection that finds nothing there is closed. Which tunnels failed is noted in `failed`, before the browser hears of it.
pub(crate) async fn serve(listener: TcpListener, egress: PathBuf, failed: Arc<FailedTunnels>) {
    let egress = Arc::new(egress);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((inside, _)) => {
                let (egress, failed) = (Arc::clone(&egress), Arc::clone(&failed));
                tokio::spawn(async move {
                    copy(inside, &egress, failed).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the forwarder could not accept");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

async fn copy(mut inside: TcpStream, egress: &PathBuf, failed: Arc<FailedTunnels>) {
    if inside.set_nodelay(true).is_err() {
        return;
    }
    match UnixStream::connect(egress).await {
        // Either side may break off at any time: that ends the other and is no news.
        Ok(stream) => {
            let mut outside = Outside { stream, exchange: Exchange::default(), failed };
            drop(copy_bidirectional(&mut inside, &mut outside).await);
        }
        Err(error) => tracing::debug!(%error, "no way out"),
    }
}

/// A connection to the way out, of which the beginning is looked at.
struct Outside {
    stream: UnixStream,
    exchange: Exchange,
    failed: Arc<FailedTunnels>,
}

impl AsyncRead for Outside {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if let Some((place, fault)) = self.exchange.received(&buf.filled()[before..]) {
            self.failed.note(&place, fault);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Outside {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.exchange.sent(&buf[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
