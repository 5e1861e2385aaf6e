//! Forwards the browser's traffic: copies each connection to Chromium's proxy port on the sandbox's loopback to the
//! egress socket.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

use crate::egress::{Exchange, FailedTunnels};

/// The maximum number of open connections. Chromium opens at most 512 to its proxy, and 256 more for WebSockets.
const MAX_CONNECTIONS: usize = 768;
/// The number of open connections from which Chromium may let further requests wait: its limit is a random number
/// between this one and twice as many.
const MANY_CONNECTIONS: usize = 256;

/// Opens the forwarder's port. Called before Chromium starts, so that no other process in the sandbox can take the
/// port.
pub(crate) async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).await
}

/// Copies connections until the task is dropped.
///
/// Every connection opens the egress socket again, because the socket disappears while the server restarts and
/// reappears under the same name. A connection is closed if there is no socket. The faults of tunnels are recorded in
/// `failed` before the browser receives them.
pub(crate) async fn serve(listener: TcpListener, egress: PathBuf, failed: Arc<FailedTunnels>) {
    let egress = Arc::new(egress);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut is_reported = false;
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((inside, _)) => {
                let open = MAX_CONNECTIONS - places.available_permits();
                if open >= MANY_CONNECTIONS && !is_reported {
                    tracing::warn!(open, "pages hold many connections open: further requests may wait in the browser");
                }
                // Reported again after there were few.
                is_reported = open >= MANY_CONNECTIONS || (is_reported && open > MANY_CONNECTIONS / 2);
                let (egress, failed) = (Arc::clone(&egress), Arc::clone(&failed));
                tokio::spawn(async move {
                    copy(inside, &egress, failed).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the forwarder");
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
        // Either side may disconnect at any time, which ends the other side and is no error.
        Ok(stream) => {
            let mut outside = Outside { stream, exchange: Exchange::default(), failed };
            let copied = copy_bidirectional(&mut inside, &mut outside).await;
            if copied.is_err() && outside.exchange.is_unanswered() {
                // Chromedriver takes the error of a closed connection for a page, and not that of a reset one. A sandbox has
                // no SO_LINGER; to disconnect resets the connection too.
                let _ = rustix::net::connect_unspec(&inside);
            }
        }
        Err(error) => tracing::debug!(%error, "cannot connect to the egress socket"),
    }
}

/// A connection to the egress socket. Its beginning is inspected.
struct Outside {
    stream: UnixStream,
    exchange: Exchange,
    failed: Arc<FailedTunnels>,
}

impl AsyncRead for Outside {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() == before && self.exchange.is_unanswered() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_plain_request_without_a_response_is_reset_and_a_tunnel_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("egress");
        let egress = UnixListener::bind(&path).unwrap();
        let listener = bind(0).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, path, Arc::default()));
        for (request, is_reset) in
            [("GET http://a.example/ HTTP/1.1\r\n\r\n", true), ("CONNECT a.example:443\r\n\r\n", false)]
        {
            let mut inside = TcpStream::connect(address).await.unwrap();
            inside.write_all(request.as_bytes()).await.unwrap();
            let (mut outside, _) = egress.accept().await.unwrap();
            let mut received = vec![0; request.len()];
            outside.read_exact(&mut received).await.unwrap();
            drop(outside);
            let ended = inside.read(&mut [0; 16]).await;
            assert_eq!(ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset), is_reset, "{request}");
        }
        serving.abort();
    }
}
