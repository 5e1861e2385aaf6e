//! What a client sends before its turn. The HTTP parser makes every request that it gets into a value of some kilobytes at
//! once, also those whose turn is far. So it gets one request at a time, and the rest waits here, as bytes and bounded.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use crate::active_requests::{ActiveRequests, RequestBody};

/// The number of bytes above which nothing further is read ahead. The end of the stream is not noticed then.
const MAX_AHEAD_BYTES: usize = 16 << 10;
/// The size of one read.
const READ_BYTES: usize = 4 << 10;

/// What the parser may get now.
#[derive(Clone, Copy)]
enum Share {
    /// Whatever comes: the connection is upgraded.
    Everything,
    /// The rest of a body.
    Body(u64),
    /// The rest of a body of chunks.
    Chunks,
    /// One request.
    Request,
    /// Nothing until the present request has its response.
    Nothing,
}

/// The bytes of a connection that the parser has not got yet.
pub(crate) struct ReadAhead {
    bytes: BytesMut,
    ends: HeadEnds,
    /// The number of bytes that the parser has got since the end of a head.
    passed: u64,
    /// The chunks of what the parser has got since then.
    chunks: Chunks,
    /// Whether the parser must look at what it has before it gets more.
    must_yield: bool,
    /// Whether the client has closed its side.
    is_over: bool,
}

impl ReadAhead {
    pub(crate) fn new() -> Self {
        Self {
            bytes: BytesMut::new(),
            ends: HeadEnds::new(),
            passed: 0,
            chunks: Chunks::Size(0),
            must_yield: false,
            is_over: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads what the parser may get now. The end of the stream comes at once if a handler works, as it must learn that
    /// its client is gone.
    ///
    /// # Errors
    /// If the stream fails.
    pub(crate) fn poll_read(
        &mut self,
        mut stream: impl AsyncRead + Unpin,
        is_upgraded: bool,
        requests: &ActiveRequests,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let share = if is_upgraded { Share::Everything } else { self.share(requests) };
        let must_yield = std::mem::take(&mut self.must_yield);
        match share {
            Share::Nothing => self.poll_wait(stream, Some(requests), cx),
            Share::Request if must_yield => self.poll_wait(stream, None, cx),
            _ if !self.bytes.is_empty() => {
                let mut waiting = std::mem::take(&mut self.bytes);
                let length = waiting.len().min(buffer.remaining());
                let count = self.pass(share, &waiting[..length]);
                buffer.put_slice(&waiting[..count]);
                waiting.advance(count);
                if !waiting.is_empty() {
                    self.bytes = waiting;
                }
                Poll::Ready(Ok(()))
            }
            _ if self.is_over => Poll::Ready(Ok(())),
            _ => {
                let before = buffer.filled().len();
                ready!(Pin::new(&mut stream).poll_read(cx, buffer))?;
                let count = self.pass(share, &buffer.filled()[before..]);
                self.bytes.extend_from_slice(&buffer.filled()[before + count..]);
                buffer.set_filled(before + count);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn share(&self, requests: &ActiveRequests) -> Share {
        match requests.body() {
            _ if !requests.is_busy() => Share::Request,
            RequestBody::Stream => Share::Everything,
            RequestBody::Chunks if self.chunks == Chunks::Over => Share::Nothing,
            RequestBody::Chunks => Share::Chunks,
            RequestBody::Bytes(length) if length > self.passed => Share::Body(length - self.passed),
            RequestBody::Bytes(_) => Share::Nothing,
        }
    }

    /// Keeps what comes until the parser may get more. `busy`: the requests that must be over before.
    fn poll_wait(
        &mut self,
        mut stream: impl AsyncRead + Unpin,
        busy: Option<&ActiveRequests>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_over && self.bytes.len() < MAX_AHEAD_BYTES {
            let mut space = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut space);
            match Pin::new(&mut stream).poll_read(cx, &mut read) {
                Poll::Pending => break,
                Poll::Ready(result) => result?,
            }
            self.is_over = read.filled().is_empty();
            self.bytes.extend_from_slice(read.filled());
        }
        if self.is_over && (busy.is_some() || self.bytes.is_empty()) {
            self.bytes = BytesMut::new();
            return Poll::Ready(Ok(()));
        }
        match busy {
            _ if self.bytes.is_empty() => {}
            Some(requests) => requests.wake_when_idle(cx.waker()),
            None => cx.waker().wake_by_ref(),
        }
        Poll::Pending
    }

    /// Returns how many of `bytes` the parser gets, and notes them.
    fn pass(&mut self, share: Share, bytes: &[u8]) -> usize {
        let length = bytes.len();
        match share {
            Share::Request => {
                let Some(first) = self.ends.next(bytes) else {
                    self.passed += length as u64;
                    self.chunks.pass(bytes);
                    return length;
                };
                self.must_yield = true;
                // What follows the only head is the beginning of its body, or of the next head.
                let mut further = self.ends;
                let count = if further.next(&bytes[first..]).is_some() { first } else { length };
                if count == length {
                    self.ends = further;
                }
                self.passed = (count - first) as u64;
                self.chunks = Chunks::Size(0);
                self.chunks.pass(&bytes[first..count]);
                count
            }
            Share::Body(rest) => {
                let count = usize::try_from(rest).map_or(length, |rest| rest.min(length));
                self.passed += count as u64;
                self.ends = HeadEnds::new();
                count
            }
            Share::Chunks => {
                self.ends = HeadEnds::new();
                self.chunks.pass(bytes)
            }
            Share::Everything | Share::Nothing => length,
        }
    }
}

/// Finds the end of a body of chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chunks {
    /// In the size of a chunk.
    Size(u64),
    /// Behind the size of a chunk, in the same line.
    SizeLine(u64),
    /// In a chunk, of which so many bytes are left, those of the end of its line too.
    Data(u64),
    /// In a line behind the last chunk. Whether it is empty yet.
    Trailer(bool),
    /// Behind the body.
    Over,
}

impl Chunks {
    /// Returns how many of `bytes` belong to the body, and notes them.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while *self != Self::Over && at < bytes.len() {
            let (state, count) = self.after(&bytes[at..]);
            *self = state;
            at += count;
        }
        at
    }

    /// Returns what follows the first bytes of `rest`, and how many they are. What is malformed is refused by the parser.
    fn after(self, rest: &[u8]) -> (Self, usize) {
        let byte = rest[0];
        let state = match self {
            Self::Size(0) | Self::SizeLine(0) if byte == b'\n' => Self::Trailer(true),
            Self::Size(size) | Self::SizeLine(size) if byte == b'\n' => Self::Data(size.saturating_add(2)),
            Self::Size(size) => match char::from(byte).to_digit(16) {
                Some(digit) => Self::Size(size.saturating_mul(16).saturating_add(digit.into())),
                None => Self::SizeLine(size),
            },
            Self::Data(left) => {
                let count = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                let left = left - count as u64;
                return (if left == 0 { Self::Size(0) } else { Self::Data(left) }, count);
            }
            Self::Trailer(true) if byte == b'\n' => Self::Over,
            Self::Trailer(is_empty) => Self::Trailer(byte == b'\n' || is_empty && byte == b'\r'),
            Self::SizeLine(_) | Self::Over => self,
        };
        (state, 1)
    }
}

/// Finds empty lines, which end the head of a request. It finds some that do not, in bodies and before heads.
#[derive(Clone, Copy)]
struct HeadEnds {
    /// Whether the present line has nothing but carriage returns yet.
    is_line_empty: bool,
}

impl HeadEnds {
    fn new() -> Self {
        Self { is_line_empty: true }
    }

    /// Returns the index behind the next empty line.
    fn next(&mut self, bytes: &[u8]) -> Option<usize> {
        let is_empty = |line: &[u8]| line.iter().all(|byte| *byte == b'\r');
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &bytes[from..]) {
            let is_end = self.is_line_empty && is_empty(&bytes[from..from + length]);
            (from, self.is_line_empty) = (from + length + 1, true);
            if is_end {
                return Some(from);
            }
        }
        self.is_line_empty &= is_empty(&bytes[from..]);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use actix_web::test::TestRequest;

    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    /// A connection with everything that its client sends, and what the parser has got.
    struct Client<'a> {
        sent: &'a [u8],
        /// Whether the client closes its side behind what it has sent.
        is_gone: bool,
        ahead: ReadAhead,
        requests: ActiveRequests,
    }

    struct Sent<'a, 'b> {
        rest: &'b mut &'a [u8],
        is_gone: bool,
    }

    impl AsyncRead for Sent<'_, '_> {
        fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let this = self.get_mut();
            if this.rest.is_empty() && !this.is_gone {
                return Poll::Pending;
            }
            Pin::new(&mut *this.rest).poll_read(cx, buffer)
        }
    }

    impl<'a> Client<'a> {
        fn new(sent: &'a str) -> Self {
            Self { sent: sent.as_bytes(), is_gone: true, ahead: ReadAhead::new(), requests: ActiveRequests::default() }
        }

        /// Notes that a handler works on a request with `header`.
        fn begin(&self, header: (&str, &str)) {
            self.requests.begin(&TestRequest::post().insert_header(header).to_srv_request());
        }

        /// Returns what the parser gets in one turn, and whether the stream is over then.
        fn turn(&mut self) -> (String, bool) {
            let mut cx = Context::from_waker(Waker::noop());
            let mut got = String::new();
            loop {
                let mut space = [0; 8192];
                let mut buffer = ReadBuf::new(&mut space);
                let stream = Sent { rest: &mut self.sent, is_gone: self.is_gone };
                match self.ahead.poll_read(stream, false, &self.requests, &mut cx, &mut buffer) {
                    Poll::Pending => return (got, false),
                    Poll::Ready(result) => result.expect("bytes in memory"),
                }
                if buffer.filled().is_empty() {
                    return (got, true);
                }
                got.push_str(str::from_utf8(buffer.filled()).expect("text"));
            }
        }
    }

    #[test]
    fn the_parser_gets_one_request_in_a_turn() {
        let sent = GET.repeat(1000);
        let mut client = Client::new(&sent);
        for turn in 0..998 {
            assert_eq!(client.turn(), (GET.to_owned(), false), "turn {turn}");
        }
        assert_eq!(client.turn().0, GET);
        assert_eq!(client.turn(), (GET.to_owned(), true));
    }

    #[test]
    fn requests_are_answered_also_if_the_client_closes_its_side_behind_them() {
        let sent = GET.repeat(3);
        let mut client = Client::new(&sent);
        let turns = [client.turn(), client.turn(), client.turn()];
        assert_eq!(turns, [false, false, true].map(|is_over| (GET.to_owned(), is_over)));
    }

    #[test]
    fn the_next_request_waits_until_the_present_one_has_its_response() {
        let sent = GET.repeat(1000);
        let mut client = Client::new(&sent);
        client.turn();
        client.begin(("host", "a"));
        for _ in 0..3 {
            assert_eq!(client.turn(), (String::new(), false));
        }
        assert!(client.ahead.bytes.len() < MAX_AHEAD_BYTES + READ_BYTES, "{} bytes", client.ahead.bytes.len());
        client.requests.end();
        assert_eq!(client.turn(), (GET.to_owned(), false));
    }

    #[test]
    fn a_handler_whose_client_is_gone_learns_it_also_if_more_was_sent() {
        let sent = GET.repeat(2);
        let mut client = Client::new(&sent);
        client.turn();
        client.begin(("host", "a"));
        assert_eq!(client.turn(), (String::new(), true));
    }

    #[test]
    fn a_body_passes_whole_and_nothing_behind_it() {
        let body = "\r\n\r\n\n\nGET / HTTP/1.1\r\n\r\n".repeat(400);
        let head = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        let sent = [&head, &body, GET, GET].concat();
        let mut client = Client { is_gone: false, ..Client::new(&sent) };
        assert_eq!(client.turn().0, head);
        client.begin(("content-length", &body.len().to_string()));
        assert_eq!(client.turn().0, body);
        assert_eq!(client.turn().0, "");
        client.requests.end();
        assert_eq!(client.turn().0, GET);
    }

    #[test]
    fn a_body_of_chunks_passes_whole_and_nothing_behind_it() {
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let parts = "00F ;b\r\n0\r\n\r\n0123456789\r\n".repeat(900);
        for first in ["8\r\n\n\n0\r\n\r\n\n\r\n", "1\r\na\r\n"] {
            let body = [first, &parts, "00;a=0\r\n\r\n"].concat();
            let sent = [head, &body, GET, GET].concat();
            let mut client = Client { is_gone: false, ..Client::new(&sent) };
            let mut got = client.turn().0;
            client.begin(("transfer-encoding", "chunked"));
            got.push_str(&client.turn().0);
            assert_eq!(got, [head, &body].concat());
            assert_eq!(client.turn().0, "");
            client.requests.end();
            assert_eq!(client.turn().0, GET);
        }
    }

    #[test]
    fn the_end_of_chunks_is_found_wherever_the_bytes_are_divided() {
        let body = b"3\r\nabc\r\n0\r\n\r\n";
        for at in 0..body.len() {
            let (first, second) = body.split_at(at);
            let mut chunks = Chunks::Size(0);
            let further = [second, b"GET / HTTP/1.1".as_slice()].concat();
            let passed = (chunks.pass(first), chunks.pass(&further));
            assert_eq!((passed, chunks == Chunks::Over), ((at, second.len()), true), "divided at {at}");
        }
    }

    #[test]
    fn an_upgraded_connection_passes_everything() {
        let sent = GET.repeat(100);
        let mut client = Client::new(&sent);
        client.turn();
        client.begin(("upgrade", "websocket"));
        assert_eq!(client.turn(), (GET.repeat(99), true));
    }

    #[test]
    fn every_end_of_a_head_is_found_wherever_the_bytes_are_divided() {
        for head in ["GET / HTTP/1.1\r\nA: b\r\n\r\n", "GET / HTTP/1.1\nA: b\n\n", "GET / HTTP/1.1\nA: b\r\n\n"] {
            for at in 0..head.len() {
                let mut ends = HeadEnds { is_line_empty: false };
                let (first, second) = head.as_bytes().split_at(at);
                let found = [ends.next(first), ends.next(second).map(|index| index + at)];
                assert_eq!(found, [None, Some(head.len())], "{head:?} divided at {at}");
            }
        }
    }
}
