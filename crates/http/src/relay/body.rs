//! The relay: the streaming body of the 101 response.

use std::{
    any::Any,
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use actix_web::web;
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use tokio::{io::AsyncWrite, time::Sleep};
use tokio_util::io::poll_read_buf;

use super::{
    ByteCounter, CloseReason, FileCommands, FrameTracker, Limits, Upstream, client_frames::ClientFrames, held_close,
    wire,
};

/// The number of bytes that are read from the upstream at once. With actix's own buffers, it bounds the memory of a
/// relay.
const CHUNK_BYTES: usize = 32 * 1024;
/// The time for which data of a refused client is still read.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes that were read before the relay started.
#[derive(Debug, Default)]
pub(crate) struct UnreadBytes {
    pub(crate) from_client: BytesMut,
    pub(crate) from_upstream: BytesMut,
}

/// The reasons for which the server ends a relay.
pub(crate) struct Ending {
    /// Resolves when the session ends its connections.
    pub(crate) session_end: Pin<Box<dyn Future<Output = CloseReason>>>,
    /// The reason if the upstream closes without a close frame and the session reports none.
    pub(crate) default_reason: CloseReason,
}

enum State {
    Open,
    /// The upstream ended without a close frame, and the session may still report a reason.
    AwaitingReason(Pin<Box<Sleep>>),
    /// The client was sent a close frame because it broke a rule, and may still send data.
    Refused(Pin<Box<Sleep>>),
    Over,
}

/// A relay. One poll drives both directions. actix polls the body when the client's connection accepts more, so a
/// client that does not read stops the reads from the upstream, and an upstream that does not read stops the reads from
/// the client.
pub(crate) struct RelayBody {
    payload: web::Payload,
    upstream: Upstream,
    /// The bytes of the client that were read before the relay started.
    unread: Bytes,
    files: Option<FileCommands>,
    to_upstream: VecDeque<Bytes>,
    buffer: BytesMut,
    from_client: ClientFrames,
    from_upstream: FrameTracker,
    /// Whether the upstream's own close frames are held back.
    holds_close: bool,
    ending: Ending,
    state: State,
    limits: Limits,
    yielded_at: Option<Instant>,
    /// When bytes for the client were yielded last.
    last_sent: Instant,
    /// Completes at the earliest time for the next ping; `None` if the upstream sends pings.
    ping_timer: Option<Pin<Box<Sleep>>>,
    counter: ByteCounter,
    /// The number of messages that were forwarded before the relay started.
    initial_messages: u64,
    _guard: Box<dyn Any>,
}

/// The result of one poll of the client's direction.
enum ClientPoll {
    Pending,
    ClientEnded,
    UpstreamEnded,
    /// The client broke a rule; none of its further data is forwarded.
    Refused(CloseReason),
}

impl RelayBody {
    pub(crate) fn new(
        payload: web::Payload,
        upstream: Upstream,
        unread: UnreadBytes,
        ending: Ending,
        limits: Limits,
        counter: ByteCounter,
        guard: Box<dyn Any>,
    ) -> Self {
        let initial_messages = counter.messages();
        Self {
            payload,
            upstream,
            unread: unread.from_client.freeze(),
            files: None,
            to_upstream: VecDeque::new(),
            buffer: unread.from_upstream,
            from_client: ClientFrames::new(limits.max_client_message_bytes),
            from_upstream: FrameTracker::new(u64::MAX),
            holds_close: false,
            ending,
            state: State::Open,
            ping_timer: Some(Box::pin(tokio::time::sleep(limits.ping_interval))),
            last_sent: Instant::now(),
            limits,
            yielded_at: None,
            counter,
            initial_messages,
            _guard: guard,
        }
    }

    /// Looks at the commands of the client that name files.
    pub(crate) fn with(self, files: Option<FileCommands>) -> Self {
        Self { files, ..self }
    }

    /// Holds the upstream's own close frames back if its browser is remote.
    pub(crate) fn of_remote(self, is_remote: bool) -> Self {
        Self { holds_close: is_remote, ..self }
    }

    /// Leaves the pings to the upstream, which is a relay of another node.
    pub(crate) fn of_node(self) -> Self {
        Self { ping_timer: None, ..self }
    }

    /// Ends the relay, with a close frame if the client's side is between two frames.
    fn finish(&mut self, reason: CloseReason) -> Poll<Option<io::Result<Bytes>>> {
        self.state = State::Over;
        let sends_frame = self.from_upstream.between_frames() && !self.from_upstream.close_seen();
        self.counter.ended(reason, sends_frame);
        Poll::Ready(sends_frame.then(|| Ok(reason.frame())))
    }

    /// Ends the relay because the client broke a rule. Data of the client is read and discarded for a while: a
    /// connection that is closed with unread data is reset, and the client might not receive the close frame.
    fn refuse(&mut self, reason: CloseReason) -> Poll<Option<io::Result<Bytes>>> {
        let finished = self.finish(reason);
        if matches!(finished, Poll::Ready(Some(_))) {
            self.state = State::Refused(Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)));
        }
        finished
    }

    fn drain_client(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let State::Refused(deadline) = &mut self.state else { return self.over() };
        if deadline.as_mut().poll(cx).is_ready() {
            return self.over();
        }
        match self.discard_client_data(cx) {
            Poll::Ready(()) => self.over(),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads and discards the client's data. Ready at the end of the client's side.
    fn discard_client_data(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(Ok(_)) = ready!(self.payload.poll_next_unpin(cx)) {}
        Poll::Ready(())
    }

    fn over(&mut self) -> Poll<Option<io::Result<Bytes>>> {
        self.state = State::Over;
        Poll::Ready(None)
    }

    fn update_message_count(&self) {
        self.counter.set_messages(self.initial_messages + self.from_client.messages() + self.from_upstream.messages());
    }

    fn pump_client(&mut self, cx: &mut Context<'_>) -> ClientPoll {
        loop {
            while let Some(next) = self.to_upstream.front_mut() {
                match Pin::new(&mut self.upstream).poll_write(cx, next) {
                    Poll::Ready(Ok(written @ 1..)) => next.advance(written),
                    Poll::Ready(_) => return ClientPoll::UpstreamEnded,
                    Poll::Pending => return ClientPoll::Pending,
                }
                if next.is_empty() {
                    self.to_upstream.pop_front();
                }
            }
            // A connection to another node buffers what its socket did not take.
            match Pin::new(&mut self.upstream).poll_flush(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return ClientPoll::UpstreamEnded,
                Poll::Pending => return ClientPoll::Pending,
            }
            if let Some(reason) = self.from_client.violation() {
                return ClientPoll::Refused(reason);
            }
            match self.poll_client(cx) {
                Poll::Ready(Some(bytes)) => {
                    self.from_client.pass(&bytes, &mut self.to_upstream);
                    self.update_message_count();
                }
                Poll::Ready(None) => return ClientPoll::ClientEnded,
                Poll::Pending => return ClientPoll::Pending,
            }
        }
    }

    /// Returns the next bytes of the client that may be forwarded; `None` at the end of the client's side.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(files) = &mut self.files
                && let Some(bytes) = ready!(files.poll_next(cx))
            {
                return Poll::Ready(Some(bytes));
            }
            let chunk = if self.unread.is_empty() {
                let Some(Ok(chunk)) = ready!(self.payload.poll_next_unpin(cx)) else { return Poll::Ready(None) };
                self.counter.count_from_client(chunk.len());
                chunk
            } else {
                std::mem::take(&mut self.unread)
            };
            match &mut self.files {
                Some(files) => files.feed(chunk),
                None => return Poll::Ready(Some(chunk)),
            }
        }
    }

    fn pump_upstream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(chunk) = self.take_for_client() {
                // No limit applies in this direction, because nothing is buffered.
                let _ = self.from_upstream.feed(&chunk);
                self.counter.count_to_client(chunk.len());
                self.update_message_count();
                return Poll::Ready(Some(chunk));
            }
            if self.is_close_held() {
                return Poll::Ready(None);
            }
            if self.buffer.capacity() - self.buffer.len() < CHUNK_BYTES / 4 {
                self.buffer.reserve(CHUNK_BYTES);
            }
            match ready!(poll_read_buf(Pin::new(&mut self.upstream), cx, &mut self.buffer)) {
                Ok(1..) => {}
                _ => return Poll::Ready(None),
            }
        }
    }

    fn take_for_client(&mut self) -> Option<Bytes> {
        if !self.holds_close || self.from_client.close_seen() {
            return self.take_buffered();
        }
        let passing = held_close::before_close(&self.buffer, &self.from_upstream).unwrap_or(0);
        let held = self.buffer.split_off(passing);
        let taken = self.take_buffered();
        self.buffer.unsplit(held);
        taken
    }

    fn take_buffered(&mut self) -> Option<Bytes> {
        match &mut self.files {
            Some(files) => files.take_for_client(&mut self.buffer, &self.from_upstream),
            None => (!self.buffer.is_empty()).then(|| self.buffer.split().freeze()),
        }
    }

    /// Returns whether the next frame for the client is a close frame that is held back.
    fn is_close_held(&self) -> bool {
        self.holds_close
            && !self.from_client.close_seen()
            && held_close::before_close(&self.buffer, &self.from_upstream).is_none()
    }

    /// Handles the end of the upstream, which is regular after a close frame of either side. A close frame of the client
    /// that the upstream left without an answer is answered here.
    fn upstream_ended(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.from_upstream.close_seen() || self.from_client.close_seen() {
            self.counter.closed();
            self.state = State::Over;
            let is_unanswered = self.from_upstream.between_frames() && !self.from_upstream.close_seen();
            return Poll::Ready(is_unanswered.then(|| Ok(CloseReason::Normal.frame())));
        }
        self.state = State::AwaitingReason(Box::pin(tokio::time::sleep(self.limits.crash_grace)));
        self.await_reason(cx)
    }

    fn await_reason(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Poll::Ready(reason) = self.ending.session_end.as_mut().poll(cx) {
            return self.finish(reason);
        }
        // The client's data is discarded; reading it detects the client's own end.
        if self.discard_client_data(cx).is_ready() {
            return self.over();
        }
        let State::AwaitingReason(grace) = &mut self.state else { return self.over() };
        match grace.as_mut().poll(cx) {
            Poll::Ready(()) => self.finish(self.ending.default_reason),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Returns whether the client ended its WebDriver session, and was told so.
    fn has_detached(&self) -> bool {
        self.from_upstream.between_frames() && self.files.as_ref().is_some_and(FileCommands::has_detached)
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        // actix polls again as soon as the client's connection has accepted enough of the last chunk. A long delay
        // means that the client was not reading.
        if self.yielded_at.take().is_some_and(|yielded_at| yielded_at.elapsed() > self.limits.stall_timeout) {
            return self.finish(CloseReason::SlowReader);
        }
        if let Poll::Ready(reason) = self.ending.session_end.as_mut().poll(cx) {
            return self.finish(reason);
        }
        if self.has_detached() {
            return self.finish(CloseReason::Normal);
        }
        match self.pump_client(cx) {
            ClientPoll::Pending => {}
            ClientPoll::ClientEnded => {
                if self.from_client.close_seen() {
                    self.counter.closed();
                }
                return self.over();
            }
            ClientPoll::Refused(reason) => return self.refuse(reason),
            // Data that the upstream sent before its end, such as a close frame, is still forwarded.
            ClientPoll::UpstreamEnded => self.to_upstream.clear(),
        }
        match self.pump_upstream(cx) {
            Poll::Pending => self.poll_ping(cx).map(|ping| Some(Ok(self.yielded(ping)))),
            Poll::Ready(Some(chunk)) => Poll::Ready(Some(Ok(self.yielded(chunk)))),
            Poll::Ready(None) => self.upstream_ended(cx),
        }
    }

    /// Notes that bytes are yielded now.
    fn yielded(&mut self, bytes: Bytes) -> Bytes {
        self.last_sent = Instant::now();
        self.yielded_at = Some(self.last_sent);
        bytes
    }

    /// Returns a ping for the client once no byte was sent for the interval.
    fn poll_ping(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let interval = self.limits.ping_interval;
        loop {
            let Some(timer) = &mut self.ping_timer else { return Poll::Pending };
            ready!(timer.as_mut().poll(cx));
            let silent = self.last_sent.elapsed();
            let is_due = silent >= interval;
            let wait = if is_due { interval } else { interval - silent };
            timer.as_mut().reset(tokio::time::Instant::now() + wait);
            let is_closing = self.from_upstream.close_seen() || self.from_client.close_seen();
            if is_due && !is_closing && self.from_upstream.between_frames() {
                self.from_client.expect_pong();
                return Poll::Ready(wire::encode(wire::PING, b"", None));
            }
        }
    }
}

impl Stream for RelayBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let relay = &mut *self;
        match relay.state {
            State::Open => relay.poll_open(cx),
            State::AwaitingReason(_) => relay.await_reason(cx),
            State::Refused(_) => relay.drain_client(cx),
            State::Over => Poll::Ready(None),
        }
    }
}
