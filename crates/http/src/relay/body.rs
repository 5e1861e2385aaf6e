//! The relay itself: the streaming body of the 101 answer.

use std::{
    any::Any,
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use actix_web::web;
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use tokio::{io::AsyncWrite, time::Sleep};
use tokio_util::io::poll_read_buf;

use super::{ByteCounter, CloseReason, FrameTracker, Limits, Upstream, client_frames::ClientFrames};

/// Read from the upstream at once; with actix's own buffers this bounds what a relay holds.
const CHUNK: usize = 32 * 1024;
/// How long a client that was refused may still send.
const LAST_READS: Duration = Duration::from_secs(1);

/// Bytes that were read before the relay began.
#[derive(Debug, Default)]
pub(crate) struct UnreadBytes {
    pub(crate) from_client: BytesMut,
    pub(crate) from_upstream: BytesMut,
}

/// Which reasons a relay can end for without its client.
pub(crate) struct Ending {
    /// The session's own reason.
    pub(crate) told: Pin<Box<dyn Future<Output = CloseReason>>>,
    /// What it means that the upstream just ends, and the session says nothing.
    pub(crate) bare: CloseReason,
}

enum State {
    Open,
    /// The upstream ended without a close frame; the session's own reason may still come.
    Orphaned(Pin<Box<Sleep>>),
    /// The client was told that it broke a rule, and may have something under way.
    Refused(Pin<Box<Sleep>>),
    Over,
}

/// Everything goes through one poll: actix polls it when the client's connection can take more, so a client that
/// does not read stops the reading of the upstream, and an upstream that does not read stops the reading of the
/// client.
pub(crate) struct RelayBody {
    payload: web::Payload,
    upstream: Upstream,
    to_upstream: VecDeque<Bytes>,
    buffer: BytesMut,
    from_client: ClientFrames,
    from_upstream: FrameTracker,
    ending: Ending,
    state: State,
    limits: Limits,
    handed_over: Option<Instant>,
    meter: ByteCounter,
    /// Messages that passed before the relay began.
    passed: u64,
    _guard: Box<dyn Any>,
}

/// What became of one direction in one poll.
enum Pumped {
    Waiting,
    ClientGone,
    UpstreamGone,
    /// The client broke a rule; there is nothing more of it to pass on.
    Broken(CloseReason),
}

impl RelayBody {
    pub(crate) fn new(
        payload: web::Payload,
        upstream: Upstream,
        leftovers: UnreadBytes,
        ending: Ending,
        limits: Limits,
        meter: ByteCounter,
        guard: Box<dyn Any>,
    ) -> Self {
        let (mut from_client, mut to_upstream) = (ClientFrames::new(limits.client_message), VecDeque::new());
        from_client.pass(&leftovers.from_client.freeze(), &mut to_upstream);
        let passed = meter.messages();
        Self {
            payload,
            upstream,
            to_upstream,
            buffer: leftovers.from_upstream,
            from_client,
            from_upstream: FrameTracker::new(u64::MAX),
            ending,
            state: State::Open,
            limits,
            handed_over: None,
            meter,
            passed,
            _guard: guard,
        }
    }

    /// Ends the relay: with a close frame if the client's side stands between two frames, by a bare end if not.
    fn finish(&mut self, reason: CloseReason) -> Poll<Option<io::Result<Bytes>>> {
        self.state = State::Over;
        let told = self.from_upstream.between_frames() && !self.from_upstream.close_seen();
        self.meter.ended(reason, told);
        Poll::Ready(told.then(|| Ok(reason.frame())))
    }

    /// Ends the relay for what the client did. What it still sends is taken for a while: closed with something unread, the connection
    /// would be reset, and the client might never see why.
    fn refuse(&mut self, reason: CloseReason) -> Poll<Option<io::Result<Bytes>>> {
        let told = self.finish(reason);
        if matches!(told, Poll::Ready(Some(_))) {
            self.state = State::Refused(Box::pin(tokio::time::sleep(LAST_READS)));
        }
        told
    }

    fn read_off(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let State::Refused(until) = &mut self.state else { return self.over() };
        if until.as_mut().poll(cx).is_ready() {
            return self.over();
        }
        loop {
            match self.payload.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return self.over(),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn over(&mut self) -> Poll<Option<io::Result<Bytes>>> {
        self.state = State::Over;
        Poll::Ready(None)
    }

    fn count_messages(&self) {
        self.meter.count_messages(self.passed + self.from_client.messages() + self.from_upstream.messages());
    }

    fn pump_client(&mut self, cx: &mut Context<'_>) -> Pumped {
        loop {
            while let Some(next) = self.to_upstream.front_mut() {
                match Pin::new(&mut self.upstream).poll_write(cx, next) {
                    Poll::Ready(Ok(written @ 1..)) => next.advance(written),
                    Poll::Ready(_) => return Pumped::UpstreamGone,
                    Poll::Pending => return Pumped::Waiting,
                }
                if next.is_empty() {
                    self.to_upstream.pop_front();
                }
            }
            if let Some(reason) = self.from_client.broken() {
                return Pumped::Broken(reason);
            }
            match self.payload.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    self.from_client.pass(&chunk, &mut self.to_upstream);
                    self.meter.count_from_client(chunk.len());
                    self.count_messages();
                }
                Poll::Ready(_) => return Pumped::ClientGone,
                Poll::Pending => return Pumped::Waiting,
            }
        }
    }

    fn pump_upstream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.buffer.is_empty() {
            if self.buffer.capacity() < CHUNK / 4 {
                self.buffer.reserve(CHUNK);
            }
            match poll_read_buf(Pin::new(&mut self.upstream), cx, &mut self.buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(None),
            }
        }
        let chunk = self.buffer.split().freeze();
        // No limit in this direction: nothing is gathered, so nothing can be too long.
        let _ = self.from_upstream.feed(&chunk);
        self.meter.count_to_client(chunk.len());
        self.count_messages();
        Poll::Ready(Some(chunk))
    }

    /// The upstream ended. After a close frame of either side that is the regular end.
    fn orphan(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.from_upstream.close_seen() || self.from_client.close_seen() {
            self.meter.closed();
            return self.over();
        }
        self.state = State::Orphaned(Box::pin(tokio::time::sleep(self.limits.crash_grace)));
        self.await_reason(cx)
    }

    fn await_reason(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Poll::Ready(reason) = self.ending.told.as_mut().poll(cx) {
            return self.finish(reason);
        }
        // What the client still sends has nowhere to go; reading it is how its own end is noticed.
        loop {
            match self.payload.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return self.over(),
                Poll::Pending => break,
            }
        }
        let State::Orphaned(grace) = &mut self.state else { return self.over() };
        match grace.as_mut().poll(cx) {
            Poll::Ready(()) => self.finish(self.ending.bare),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        // actix asks again as soon as the client's connection has taken enough of what it got. If that took too long,
        // nobody was reading.
        if self.handed_over.take().is_some_and(|at| at.elapsed() > self.limits.stall) {
            return self.finish(CloseReason::SlowReader);
        }
        if let Poll::Ready(reason) = self.ending.told.as_mut().poll(cx) {
            return self.finish(reason);
        }
        match self.pump_client(cx) {
            Pumped::Waiting => {}
            Pumped::ClientGone => return self.over(),
            Pumped::Broken(reason) => return self.refuse(reason),
            // What the upstream sent before it went is still to be read, its close frame above all.
            Pumped::UpstreamGone => self.to_upstream.clear(),
        }
        match self.pump_upstream(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(chunk)) => {
                self.handed_over = Some(Instant::now());
                Poll::Ready(Some(Ok(chunk)))
            }
            Poll::Ready(None) => self.orphan(cx),
        }
    }
}

impl Stream for RelayBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let relay = &mut *self;
        match relay.state {
            State::Open => relay.poll_open(cx),
            State::Orphaned(_) => relay.await_reason(cx),
            State::Refused(_) => relay.read_off(cx),
            State::Over => Poll::Ready(None),
        }
    }
}
