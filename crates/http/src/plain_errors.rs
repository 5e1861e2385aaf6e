//! Error responses for requests that the HTTP parser refuses. A head that is malformed, too long or too slow never
//! becomes a request: the parser itself responds, without a body. This module replaces such a response by one with the
//! body of all errors. If the parser refuses a body while the handler still runs, for example because of malformed
//! chunks, it closes the connection without a response. This module sends one.

use std::{
    future::{Future as _, poll_fn},
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use casement_domain::IdSource;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    runtime::Handle,
    time::Sleep,
};

use crate::{
    active_requests::ActiveRequests,
    error::Code,
    read_ahead::ReadAhead,
    relay::{DeliveryReceipt, SendBacklog, Writes},
    transport::{NodePeer, Transport},
    waits::{Wait, Waits},
    websocket_end::{UpgradedBodyEnd, WebSocketFrames},
};

/// The maximum size of the parser's own responses, in bytes.
const MAX_BARE_BYTES: usize = 512;
/// The maximum number of bytes that are read from a refused client, and the maximum time for that. A connection that is
/// closed with unread data is reset, which could lose the response.
const MAX_DRAINED_BYTES: usize = 4 * 1024 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The bytes of an unread response that are in buffers of this process, beside the rest of its body.
const BUFFERED_BYTES: usize = 128 << 10;

/// A client's connection, between its byte stream and the HTTP parser.
pub(crate) struct Connection {
    stream: Transport,
    ids: Arc<dyn IdSource>,
    refusal: Option<Refusal>,
    ahead: ReadAhead,
    writes: Writes,
    receipt: DeliveryReceipt,
    active_requests: ActiveRequests,
    waits: Waits,
    peer: Option<IpAddr>,
    /// Set while the connection waits for a head or the rest of one.
    wait: Option<Wait>,
    /// Set while the client does not read.
    unread: Option<Wait>,
    /// Whether the connection waits for its first head, or a part of the next head may have arrived.
    head_started: bool,
    /// The number of requests at the last check.
    seen_requests: u64,
    /// Whether the client closed its side, or the connection failed.
    client_disconnected: bool,
    node: Option<NodePeer>,
    /// The frames of an upgraded connection, whose bytes are forwarded unchanged.
    websocket: Option<Box<WebSocketFrames>>,
    body_end: UpgradedBodyEnd,
}

/// A response that replaces the parser's.
struct Refusal {
    /// The bytes that are not written yet.
    unsent: Vec<u8>,
    /// The length of the replaced response.
    replaced_bytes: usize,
    /// The number of bytes that were read and discarded since.
    drained_bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Connection {
    pub(crate) fn new(stream: Transport, peer: Option<IpAddr>, ids: Arc<dyn IdSource>, waits: Waits) -> Self {
        Self {
            peer,
            stream,
            ids,
            waits,
            wait: None,
            unread: None,
            head_started: true,
            seen_requests: 0,
            refusal: None,
            ahead: ReadAhead::new(),
            writes: Writes::default(),
            receipt: DeliveryReceipt::of_connection(),
            active_requests: ActiveRequests::default(),
            client_disconnected: false,
            websocket: None,
            body_end: UpgradedBodyEnd::default(),
            node: None,
        }
    }

    /// Makes this a connection of another node.
    pub(crate) fn of_node(mut self, node: NodePeer) -> Self {
        self.node = Some(node);
        self
    }

    /// Returns the other node if the connection is one of the cluster listener.
    pub(crate) fn node(&self) -> Option<NodePeer> {
        self.node
    }

    pub(crate) fn receipt(&self) -> DeliveryReceipt {
        self.receipt.clone()
    }

    /// Returns where the end of the body of an upgraded connection is marked.
    pub(crate) fn body_end(&self) -> UpgradedBodyEnd {
        self.body_end.clone()
    }

    pub(crate) fn active_requests(&self) -> ActiveRequests {
        self.active_requests.clone()
    }

    fn refusal(&self, code: Code, message: &str, replaced_bytes: usize) -> Refusal {
        Refusal {
            unsent: render(code, message, self.ids.as_ref()),
            replaced_bytes,
            drained_bytes: 0,
            deadline: Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)),
        }
    }

    /// Returns whether a request still needs a response. While a handler works and the client is connected, only the
    /// parser closes a connection.
    fn owes_response(&self) -> bool {
        self.active_requests.is_active() && !self.client_disconnected
    }

    /// Returns whether the connection must be closed to make room for others, because it waits for a head.
    fn must_make_room(&mut self, has_read: bool, cx: &Context<'_>) -> bool {
        let requests = self.active_requests.count();
        if requests != self.seen_requests {
            (self.wait, self.head_started, self.seen_requests) = (None, false, requests);
        }
        if self.active_requests.is_active() || self.websocket.is_some() {
            return false;
        }
        if has_read {
            if !self.head_started {
                (self.wait, self.head_started) = (None, true);
            }
            return false;
        }
        if !self.head_started && !self.is_idle() {
            return false;
        }
        let bound = if self.head_started { &self.waits.heads } else { &self.waits.idle };
        self.wait.get_or_insert_with(|| bound.register(self.peer, 1)).is_closed(cx)
    }

    /// Returns whether the connection only waits for the next request. Connections of nodes are not bounded, and those
    /// within this process end with their request.
    fn is_idle(&self) -> bool {
        !self.active_requests.is_busy()
            && self.unread.is_none()
            && self.node.is_none()
            && self.stream.socket().is_some()
    }

    /// Returns whether the next request must wait, because the client does not read the present response.
    fn must_wait(&self) -> bool {
        self.unread.is_some() && self.websocket.is_none() && !self.active_requests.is_active()
    }

    /// Notes whether the client reads, and returns whether the connection must be closed because too much is not read.
    /// `unsent`: the number of bytes that wait for the socket.
    fn must_drop_unread(&mut self, is_blocked: bool, unsent: usize, cx: &Context<'_>) -> bool {
        if !is_blocked {
            if self.unread.take().is_some() {
                // The next request may be read.
                cx.waker().wake_by_ref();
            }
            return false;
        }
        if self.websocket.is_some() || self.node.is_some() {
            return false;
        }
        let bytes = unsent.max(BUFFERED_BYTES) + self.active_requests.body_bytes();
        self.unread.get_or_insert_with(|| self.waits.unread.register(self.peer, bytes as u64)).is_closed(cx)
    }

    pub(crate) fn backlog(&self) -> SendBacklog {
        self.writes.backlog()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.owes_response() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let mut stream = self.stream.take();
        let mut refusal = self.refusal(Code::BadRequest, "what follows the head of the request is no HTTP", 0);
        runtime.spawn(async move {
            if let Err(error) = poll_fn(|cx| refusal.poll_send(&mut stream, cx)).await {
                tracing::debug!(%error, "a refused client did not read the response");
            }
        });
    }
}

/// Returns the code and message for a response of the parser itself; `None` for a handler's, which has a request id.
fn parse_bare(response: &[u8]) -> Option<(Code, &'static str)> {
    let status = response.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    if response.len() > MAX_BARE_BYTES || !response.ends_with(b"\r\n\r\n") {
        return None;
    }
    let head = std::str::from_utf8(response).ok()?.to_ascii_lowercase();
    if !head.contains("content-length: 0\r\n") || head.contains("x-request-id:") {
        return None;
    }
    match status {
        b"400" => Some((Code::BadRequest, "this is no HTTP request")),
        b"408" => Some((Code::RequestTimeout, "the head of the request did not come in time")),
        b"431" => Some((Code::BadRequest, "the request line or the headers are too long")),
        b"500" => Some((Code::Internal, "internal error")),
        _ => None,
    }
}

/// Returns the length of `bytes` without a response of the parser at the end, which it may append to that of a handler.
fn without_bare_end(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(MAX_BARE_BYTES);
    let begins = bytes[from..].windows(9).rposition(|window| window == b"HTTP/1.1 ").map(|at| from + at);
    begins.filter(|at| *at > 0 && parse_bare(&bytes[*at..]).is_some()).unwrap_or(bytes.len())
}

/// Renders an error as a response that ends its connection.
pub(crate) fn render(code: Code, message: &str, ids: &dyn IdSource) -> Vec<u8> {
    let body = format!(r#"{{"code":"{}","message":"{message}"}}"#, code.as_str());
    let status = actix_web::http::StatusCode::from_u16(code.status());
    let reason = status.ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
    // The request of a 500 is unknown, and a retry could repeat its effect.
    let is_final = matches!(code, Code::RequestTimeout | Code::Internal);
    let retry = if is_final { "x-should-retry: false\r\n" } else { "" };
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-length: {}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
         connection: close\r\n{retry}x-request-id: {}\r\n\r\n{body}",
        code.status(),
        body.len(),
        ids.next().to_string().to_ascii_lowercase()
    )
    .into_bytes()
}

impl Refusal {
    /// Writes the response and lets the client read it before the connection closes.
    fn poll_send(&mut self, stream: &mut Transport, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => drop(self.unsent.drain(..written)),
            }
        }
        ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        while self.drained_bytes < MAX_DRAINED_BYTES && self.deadline.as_mut().poll(cx).is_pending() {
            let mut discarded = [0; 8192];
            let mut buffer = ReadBuf::new(&mut discarded);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                break;
            }
            self.drained_bytes += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.websocket.is_none() && this.refusal.is_none() && bytes.starts_with(b"HTTP/1.1 ") {
            let is_upgrade = bytes.starts_with(b"HTTP/1.1 101");
            this.websocket = is_upgrade.then(|| Box::new(WebSocketFrames::new(this.body_end.clone())));
            if let Some((code, message)) = parse_bare(bytes) {
                this.refusal = Some(this.refusal(code, message, bytes.len()));
            }
        }
        let Some(refusal) = &mut this.refusal else {
            let length = if this.websocket.is_some() { bytes.len() } else { without_bare_end(bytes) };
            let written = Pin::new(&mut this.stream).poll_write(cx, &bytes[..length]);
            if this.must_drop_unread(written.is_pending(), length, cx) {
                this.client_disconnected = true;
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "too much is not read")));
            }
            let written = ready!(this.writes.watch(written, cx));
            this.client_disconnected |= written.is_err();
            if let (Some(websocket), Ok(count)) = (&mut this.websocket, &written) {
                websocket.written(&bytes[..*count]);
                if websocket.is_over() {
                    // The next read reports the end.
                    cx.waker().wake_by_ref();
                }
            }
            return Poll::Ready(written.map(|count| if count == length { bytes.len() } else { count }));
        };
        ready!(refusal.poll_send(&mut this.stream, cx))?;
        let replaced_bytes = refusal.replaced_bytes;
        this.refusal = None;
        Poll::Ready(Ok(replaced_bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        match this.stream.socket() {
            Some(socket) => this.receipt.flushed(socket),
            None => this.receipt.handed_over(),
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.owes_response() {
            // The response is sent when the connection is dropped, which follows the shutdown.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.websocket.as_ref().is_some_and(|websocket| websocket.is_over()) {
            this.client_disconnected = true;
            return Poll::Ready(Ok(()));
        }
        if this.must_wait() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = this.ahead.poll_read(&mut this.stream, this.websocket.is_some(), &this.active_requests, cx, buffer);
        if this.must_make_room(read.is_ready() || !this.ahead.is_empty(), cx) {
            // Reports the end of the stream, as if the client had disconnected.
            this.client_disconnected = true;
            return Poll::Ready(Ok(()));
        }
        let read = ready!(read);
        this.client_disconnected |= read.is_err() || buffer.filled().len() == before;
        if let Some(websocket) = &mut this.websocket {
            websocket.read(&buffer.filled()[before..]);
        }
        Poll::Ready(read)
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::CountingIds;

    use super::*;

    #[test]
    fn a_timeout_of_the_head_forbids_a_retry() {
        for (code, is_final) in [(Code::RequestTimeout, true), (Code::Internal, true), (Code::BadRequest, false)] {
            let response = String::from_utf8(render(code, "no", &CountingIds::default())).expect("UTF-8");
            assert_eq!(response.contains("\r\nx-should-retry: false\r\n"), is_final, "{response}");
        }
    }

    #[test]
    fn the_parsers_response_after_a_handlers_is_dropped() {
        let ours = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}";
        let bare = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        assert_eq!(without_bare_end(&[&ours[..], bare].concat()), ours.len());
        assert_eq!(without_bare_end(ours), ours.len());
        assert_eq!(without_bare_end(&[&ours[..], ours].concat()), 2 * ours.len());
        assert_eq!(without_bare_end(b""), 0);
    }

    #[test]
    fn only_the_parsers_own_responses_are_replaced() {
        let refused = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        assert_eq!(parse_bare(refused).map(|(code, _)| code), Some(Code::BadRequest));
        for other in [
            &b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx-request-id: a\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK",
            b"HTTP/1.1 4",
            b"",
        ] {
            assert_eq!(parse_bare(other), None);
        }
    }
}
