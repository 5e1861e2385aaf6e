//! A connection into a session. The session's agent may share its socket.
//!
//! The agent connects inside the sandbox and passes the socket to the server, so that both share one open file with its
//! flags. A hostile agent can clear `O_NONBLOCK` at any time, and an ordinary read or write would then block the thread
//! that serves hundreds of other clients. Each call here sets a flag that prevents blocking.
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg, sockopt};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::{BrowserStream, RemoteStream};

/// `UIO_MAXIOV`.
const MAX_SLICES: usize = 1024;
const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A TCP connection into a session, whose reads and writes never block, regardless of the flags of its open file; or a
/// connection to the node of the session, or to the server of a remote browser.
pub(crate) enum Upstream {
    Session(SessionSocket),
    Node(TokioIo<Upgraded>),
    Remote(Box<dyn RemoteStream>),
}

impl Upstream {
    /// Registers a dialled stream into a sandbox with this thread's runtime, or uses one to a remote browser.
    pub(crate) fn adopt(stream: BrowserStream) -> io::Result<Self> {
        match stream {
            BrowserStream::Sandbox(stream) => SessionSocket::adopt(stream).map(Self::Session),
            BrowserStream::Remote(stream) => Ok(Self::Remote(stream)),
        }
    }

    /// Uses a connection to another node.
    pub(crate) fn of_node(stream: TokioIo<Upgraded>) -> Self {
        Self::Node(stream)
    }
}

impl AsyncRead for Upstream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Session(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Node(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Remote(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Session(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Node(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Remote(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Session(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Self::Node(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Remote(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Session(socket) => socket.is_write_vectored(),
            Self::Node(stream) => stream.is_write_vectored(),
            Self::Remote(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Session(socket) => Pin::new(socket).poll_flush(cx),
            Self::Node(stream) => Pin::new(stream).poll_flush(cx),
            Self::Remote(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Session(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Node(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Remote(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A TCP connection whose reads and writes never block, regardless of the flags of its open file.
#[derive(Debug)]
pub(crate) struct SessionSocket {
    stream: TcpStream,
}

impl SessionSocket {
    fn adopt(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Nagle's algorithm would add latency to every round trip, because frames are written as they arrive.
        stream.set_nodelay(true)?;
        Ok(Self { stream: TcpStream::from_std(stream)? })
    }

    /// Makes one call that transfers at most `max` bytes, if the socket is ready. If the call transfers fewer, no more
    /// is possible now: the socket then counts as not ready, which saves a call that would only return `WouldBlock`.
    fn attempt(
        &self,
        interest: Interest,
        max: usize,
        call: impl FnOnce(&TcpStream) -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut moved = None;
        let attempted = self.stream.try_io(interest, || {
            let count = call(&self.stream)?;
            moved = Some(count);
            if (1..max).contains(&count) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match attempted {
            Err(error) if moved.is_none() => {
                let must_retry = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind());
                if must_retry { None } else { Some(Err(error)) }
            }
            _ => moved.map(Ok),
        }
    }

    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        max: usize,
        mut call: impl FnMut(&TcpStream) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            if let Some(sent) = self.attempt(Interest::WRITABLE, max, &mut call) {
                return Poll::Ready(sent);
            }
        }
    }
}

impl Drop for SessionSocket {
    /// Clears a linger option that the agent may have set, which would make the close wait for delivery. Once the
    /// agent has closed its own descriptor, it cannot set the option again.
    fn drop(&mut self) {
        if let Err(error) = sockopt::set_socket_linger(&self.stream, None) {
            tracing::debug!(%error, "cannot clear the linger option of a connection into a session");
        }
    }
}

impl AsyncRead for SessionSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let unfilled = buf.initialize_unfilled();
            let max = unfilled.len();
            if let Some(read) = self.attempt(Interest::READABLE, max, |stream| Ok(recv(stream, unfilled, RECEIVE)?.0)) {
                buf.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for SessionSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes.len(), |stream| send(stream, bytes, SEND))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The kernel accepts at most this number of slices in one call.
        let slices = &slices[..slices.len().min(MAX_SLICES)];
        let max = slices.iter().map(|slice| slice.len()).sum();
        self.poll_send(cx, max, |stream| sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), SEND))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Shuts the write side down without waiting for delivery.
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::{Duration, Instant},
    };

    use futures_util::future::poll_immediate;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Returns the server's side, a second descriptor of its open file, as a hostile agent has it, and the peer's side.
    fn connection() -> (SessionSocket, std::net::TcpStream, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let shared = ours.try_clone().unwrap();
        (SessionSocket::adopt(ours).unwrap(), shared, listener.accept().unwrap().0)
    }

    /// Closes the connection if `work` blocks its thread, so that a failed test does not hang.
    async fn assert_not_blocking(far: &std::net::TcpStream, work: impl Future<Output = ()>) {
        let (through, far) = (Arc::new(AtomicBool::new(false)), far.try_clone().unwrap());
        let watched = through.clone();
        let guard = std::thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !watched.load(Ordering::SeqCst) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !watched.load(Ordering::SeqCst) {
                far.shutdown(std::net::Shutdown::Both).unwrap();
                return false;
            }
            true
        });
        work.await;
        through.store(true, Ordering::SeqCst);
        assert!(guard.join().unwrap(), "the thread was blocked");
    }

    #[tokio::test]
    async fn a_peer_that_sets_the_socket_blocking_and_never_reads_blocks_no_thread() {
        let (mut upstream, shared, far) = connection();
        let block = vec![7; 1 << 20];
        assert_not_blocking(&far, async {
            upstream.write_all(b"first").await.unwrap();
            shared.set_nonblocking(false).unwrap();
            let mut sent = 0;
            while let Some(written) = poll_immediate(upstream.write(&block)).await {
                sent += written.unwrap();
                assert!(sent < 1 << 28, "what nobody reads is not taken without end");
            }
            assert!(sent > 0);
            let slices = [IoSlice::new(&block), IoSlice::new(&block)];
            while let Some(written) = poll_immediate(upstream.write_vectored(&slices)).await {
                sent += written.unwrap();
                assert!(sent < 1 << 28, "what nobody reads is not taken without end");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_read_of_a_socket_set_to_blocking_does_not_block_the_thread() {
        let (mut upstream, shared, mut far) = connection();
        assert_not_blocking(&far.try_clone().unwrap(), async {
            shared.set_nonblocking(false).unwrap();
            let mut buffer = [0; 16];
            assert!(poll_immediate(upstream.read(&mut buffer)).await.is_none());
            // The readiness is stale: the byte was read through the other descriptor.
            io::Write::write_all(&mut far, b"x").unwrap();
            upstream.stream.readable().await.unwrap();
            io::Read::read_exact(&mut &shared, &mut [0]).unwrap();
            assert!(poll_immediate(upstream.read(&mut buffer)).await.is_none());
            io::Write::write_all(&mut far, b"last").unwrap();
            assert_eq!(upstream.read(&mut buffer).await.unwrap(), 4);
        })
        .await;
    }

    #[tokio::test]
    async fn a_socket_with_a_linger_option_is_closed_at_once() {
        let (mut upstream, shared, far) = connection();
        let block = vec![7; 1 << 20];
        assert_not_blocking(&far, async {
            while poll_immediate(upstream.write(&block)).await.is_some() {}
            sockopt::set_socket_linger(&shared, Some(Duration::from_secs(60))).unwrap();
            drop(shared);
            drop(upstream);
        })
        .await;
    }

    #[tokio::test]
    async fn bytes_pass_complete_and_a_shutdown_passes() {
        let (mut upstream, _, mut far) = connection();
        let sent: Vec<u8> = (0..8_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let echo = std::thread::spawn(move || {
            let mut all = Vec::new();
            io::Read::read_to_end(&mut far, &mut all).unwrap();
            io::Write::write_all(&mut far, &all).unwrap();
        });
        upstream.write_all(&sent).await.unwrap();
        upstream.shutdown().await.unwrap();
        let mut back = Vec::new();
        upstream.read_to_end(&mut back).await.unwrap();
        assert!(back == sent);
        echo.join().unwrap();
    }
}
