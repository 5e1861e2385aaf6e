//! A stream that counts its bytes and tracks its last activity.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, sleep},
};

use crate::stats::Counters;

/// The time of a connection's last activity.
#[derive(Debug)]
pub(crate) struct Activity {
    since: Instant,
    last_millis: AtomicU64,
}

impl Activity {
    pub(crate) fn now() -> Self {
        Self { since: Instant::now(), last_millis: AtomicU64::new(0) }
    }

    /// Waits until there has been no activity for `limit`.
    pub(crate) async fn idle_for(&self, limit: Duration) {
        loop {
            let last = self.since + Duration::from_millis(self.last_millis.load(Relaxed));
            let quiet = last.elapsed();
            if quiet >= limit {
                return;
            }
            sleep(limit - quiet).await;
        }
    }

    fn mark(&self) {
        let millis = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Relaxed);
    }
}

/// The session's side of a connection. Bytes that are read come from the session, bytes that are written go to it.
pub(crate) struct CountedStream<S> {
    stream: S,
    activity: Arc<Activity>,
    counters: Arc<Counters>,
}

impl<S> CountedStream<S> {
    pub(crate) fn new(stream: S, activity: Arc<Activity>, counters: Arc<Counters>) -> Self {
        Self { stream, activity, counters }
    }

    fn count_written(&self, bytes: usize) {
        self.activity.mark();
        self.counters.to_session.fetch_add(bytes as u64, Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.activity.mark();
        self.counters.from_session.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.count_written(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.count_written(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
