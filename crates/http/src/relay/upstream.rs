//! A connection into a session, of which the session's agent may hold the other end of the same descriptor.
//!
//! The agent connects inside of the sandbox and passes the socket out, so that both sides share one open file with its
//! flags. Should the agent be hostile, it can take `O_NONBLOCK` away at any time, and an ordinary read or write would
//! then hold up the thread that serves hundreds of other clients. Each call here says for itself that it must not wait.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg, sockopt};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

/// `UIO_MAXIOV`.
const MAX_SLICES: usize = 1024;
const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A TCP connection whose reads and writes never wait, whatever the flags of its open file say.
#[derive(Debug)]
pub(crate) struct Upstream {
    stream: TcpStream,
}

impl Upstream {
    /// The dialled stream, made ready for this thread's runtime.
    pub(crate) fn adopt(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Frames are written as they come; waiting to fill a segment would only add to every round trip.
        stream.set_nodelay(true)?;
        Ok(Self { stream: TcpStream::from_std(stream)? })
    }

    /// One call that moves at most `most` bytes, if the socket is ready for it. One that moves fewer has found the end of
    /// what was there: the socket then counts as not ready, which saves the call that would only say so.
    fn attempt(
        &self,
        interest: Interest,
        most: usize,
        call: impl FnOnce(&TcpStream) -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut moved = None;
        let attempted = self.stream.try_io(interest, || {
            let count = call(&self.stream)?;
            moved = Some(count);
            if (1..most).contains(&count) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match attempted {
            Err(error) if moved.is_none() => {
                let again = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind());
                if again { None } else { Some(Err(error)) }
            }
            _ => moved.map(Ok),
        }
    }

    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        mut call: impl FnMut(&TcpStream) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            if let Some(sent) = self.attempt(Interest::WRITABLE, most, &mut call) {
                return Poll::Ready(sent);
            }
        }
    }
}

impl Drop for Upstream {
    /// The agent may also have asked for a close that waits until everything has arrived. Once it has closed its own
    /// descriptor, it can ask no more.
    fn drop(&mut self) {
        if let Err(error) = sockopt::set_socket_linger(&self.stream, None) {
            tracing::debug!(%error, "a connection into a session may take time to close");
        }
    }
}

impl AsyncRead for Upstream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            let most = room.len();
            if let Some(read) = self.attempt(Interest::READABLE, most, |stream| Ok(recv(stream, room, RECEIVE)?.0)) {
                buf.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes.len(), |stream| send(stream, bytes, SEND))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The kernel takes no more of them in one call.
        let slices = &slices[..slices.len().min(MAX_SLICES)];
        let most = slices.iter().map(|slice| slice.len()).sum();
        self.poll_send(cx, most, |stream| sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), SEND))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It ends what is written without waiting for it to arrive.
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

    /// Our side, a second descriptor of its open file as a hostile agent has it, and the far end.
    fn connection() -> (Upstream, std::net::TcpStream, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let shared = ours.try_clone().unwrap();
        (Upstream::adopt(ours).unwrap(), shared, listener.accept().unwrap().0)
    }

    /// Ends the connection if `work` holds its thread up, so that a failure does not hang.
    async fn unhindered(far: &std::net::TcpStream, work: impl Future<Output = ()>) {
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
        assert!(guard.join().unwrap(), "the thread was held up");
    }

    #[tokio::test]
    async fn a_peer_that_makes_the_socket_blocking_and_does_not_read_holds_no_thread_up() {
        let (mut upstream, shared, far) = connection();
        let block = vec![7; 1 << 20];
        unhindered(&far, async {
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
    async fn a_read_of_a_socket_made_blocking_waits_without_its_thread() {
        let (mut upstream, shared, mut far) = connection();
        unhindered(&far.try_clone().unwrap(), async {
            shared.set_nonblocking(false).unwrap();
            let mut buffer = [0; 16];
            assert!(poll_immediate(upstream.read(&mut buffer)).await.is_none());
            // Readiness that is no longer true: somebody else has taken the byte.
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
    async fn a_socket_that_was_told_to_linger_is_closed_at_once() {
        let (mut upstream, shared, far) = connection();
        let block = vec![7; 1 << 20];
        unhindered(&far, async {
            while poll_immediate(upstream.write(&block)).await.is_some() {}
            sockopt::set_socket_linger(&shared, Some(Duration::from_secs(60))).unwrap();
            drop(shared);
            drop(upstream);
        })
        .await;
    }

    #[tokio::test]
    async fn bytes_pass_whole_and_an_end_is_an_end() {
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
