//! What the protocol's parser refuses by itself (a head that is no HTTP, too long or too slow) never becomes a request,
//! so it is answered below all of our code, without a body. Here such an answer gets the body that all errors have. And
//! what it refuses of a body while the handler still works (its chunks are none) it does not answer at all: it lets go of
//! the connection. Here such a request gets an answer.

use std::{
    cell::Cell,
    future::{Future as _, poll_fn},
    io,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::rt::net::TcpStream;
use casement_domain::IdSource;
use rustix::io::fcntl_dupfd_cloexec;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    runtime::Handle,
    time::Sleep,
};

use crate::{
    error::Code,
    relay::{DeliveryReceipt, SendBacklog, Writes},
    request_heads::{Heads, PendingHead},
};

/// The parser's own answers are shorter.
const MAX_BARE: usize = 512;
/// How much a refused client may still send, in bytes, and for how long. Closed with something unread, the connection
/// would be reset, and the answer lost on its way.
const MAX_DRAINED: usize = 4 * 1024 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a handler is at work on a request of the connection, and how many requests there were.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveRequests(Rc<(Cell<bool>, Cell<u64>)>);

impl ActiveRequests {
    pub(crate) fn set(&self, at_work: bool) {
        self.0.0.set(at_work);
        if at_work {
            self.0.1.set(self.requests() + 1);
        }
    }

    fn is_at_work(&self) -> bool {
        self.0.0.get()
    }

    fn requests(&self) -> u64 {
        self.0.1.get()
    }
}

/// A client's connection.
pub(crate) struct Connection {
    stream: TcpStream,
    ids: Arc<dyn IdSource>,
    refusal: Option<Refusal>,
    writes: Writes,
    receipt: DeliveryReceipt,
    answering: ActiveRequests,
    heads: Arc<Heads>,
    from: Option<IpAddr>,
    /// While it waits for the rest of a head.
    half_sent: Option<PendingHead>,
    /// No request has come yet, or a part of the next one.
    head_begun: bool,
    /// How many there were when it was looked last.
    requests: u64,
    /// It ended its side, or broke.
    client_gone: bool,
    /// After an upgrade the bytes are not ours.
    upgraded: bool,
}

/// An answer that takes another's place.
struct Refusal {
    /// What of it is not written yet.
    left: Vec<u8>,
    /// How long the other was.
    stands_for: usize,
    /// How much was read since, only to be thrown away.
    drained: usize,
    until: Pin<Box<Sleep>>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, ids: Arc<dyn IdSource>, heads: Arc<Heads>) -> Self {
        Self {
            from: stream.peer_addr().ok().map(|peer| peer.ip()),
            stream,
            ids,
            heads,
            half_sent: None,
            head_begun: true,
            requests: 0,
            refusal: None,
            writes: Writes::default(),
            receipt: DeliveryReceipt::of_connection(),
            answering: ActiveRequests::default(),
            client_gone: false,
            upgraded: false,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn receipt(&self) -> DeliveryReceipt {
        self.receipt.clone()
    }

    pub(crate) fn answering(&self) -> ActiveRequests {
        self.answering.clone()
    }

    fn refusal(&self, code: Code, message: &str, stands_for: usize) -> Refusal {
        Refusal {
            left: answer(code, message, self.ids.as_ref()),
            stands_for,
            drained: 0,
            until: Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)),
        }
    }

    /// With a handler at work and the client still there, only the parser ends a connection.
    fn owes_answer(&self) -> bool {
        self.answering.is_at_work() && !self.client_gone
    }

    /// Whether the connection is closed because others need the room in which it waits for the rest of a head.
    fn lacks_head(&mut self, has_read: bool, cx: &Context<'_>) -> bool {
        let requests = self.answering.requests();
        if requests != self.requests {
            (self.half_sent, self.head_begun, self.requests) = (None, false, requests);
        }
        if self.answering.is_at_work() || self.upgraded {
            return false;
        }
        if has_read {
            self.head_begun = true;
            return false;
        }
        if !self.head_begun {
            return false;
        }
        let half_sent = self.half_sent.get_or_insert_with(|| self.heads.wait(self.from));
        half_sent.is_closed(cx)
    }

    pub(crate) fn backlog(&self) -> SendBacklog {
        self.writes.backlog()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.owes_answer() {
            return;
        }
        // The descriptor itself goes with its owner.
        let kept = fcntl_dupfd_cloexec(&self.stream, 0).map(std::net::TcpStream::from);
        let (Ok(runtime), Ok(Ok(mut stream))) = (Handle::try_current(), kept.map(TcpStream::from_std)) else { return };
        let mut refusal = self.refusal(Code::BadRequest, "what follows the head of the request is no HTTP", 0);
        runtime.spawn(async move {
            if let Err(error) = poll_fn(|cx| refusal.poll_send(&mut stream, cx)).await {
                tracing::debug!(%error, "a client did not take why it was refused");
            }
        });
    }
}

/// The code of an answer that the parser gave by itself; ours all carry a request id.
fn bare(answer: &[u8]) -> Option<(Code, &'static str)> {
    let status = answer.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    if answer.len() > MAX_BARE || !answer.ends_with(b"\r\n\r\n") {
        return None;
    }
    let head = std::str::from_utf8(answer).ok()?.to_ascii_lowercase();
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

/// How much of `bytes` is ours: the parser may put its own answer behind ours to the same request.
fn without_bare_end(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(MAX_BARE);
    let begins = bytes[from..].windows(9).rposition(|window| window == b"HTTP/1.1 ").map(|at| from + at);
    begins.filter(|at| *at > 0 && bare(&bytes[*at..]).is_some()).unwrap_or(bytes.len())
}

fn answer(code: Code, message: &str, ids: &dyn IdSource) -> Vec<u8> {
    let body = format!(r#"{{"code":"{}","message":"{message}"}}"#, code.as_str());
    let status = actix_web::http::StatusCode::from_u16(code.status());
    let reason = status.ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
    // Which request a 500 answers is not known: it may be one that would be done twice.
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
    /// Writes the answer and lets the client read it before the connection closes.
    fn poll_send(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.left.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => drop(self.left.drain(..written)),
            }
        }
        ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        while self.drained < MAX_DRAINED && self.until.as_mut().poll(cx).is_pending() {
            let mut waste = [0; 8192];
            let mut buffer = ReadBuf::new(&mut waste);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                break;
            }
            self.drained += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.upgraded && this.refusal.is_none() && bytes.starts_with(b"HTTP/1.1 ") {
            this.upgraded = bytes.starts_with(b"HTTP/1.1 101");
            if let Some((code, message)) = bare(bytes) {
                this.refusal = Some(this.refusal(code, message, bytes.len()));
            }
        }
        let Some(refusal) = &mut this.refusal else {
            let wanted = if this.upgraded { bytes.len() } else { without_bare_end(bytes) };
            let written = Pin::new(&mut this.stream).poll_write(cx, &bytes[..wanted]);
            let written = ready!(this.writes.watch(written, cx));
            this.client_gone |= written.is_err();
            return Poll::Ready(written.map(|count| if count == wanted { bytes.len() } else { count }));
        };
        ready!(refusal.poll_send(&mut this.stream, cx))?;
        let stands_for = refusal.stands_for;
        this.refusal = None;
        Poll::Ready(Ok(stands_for))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        this.receipt.flushed(&this.stream);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.owes_answer() {
            // It is given when the connection is let go of, which is next.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if this.lacks_head(read.is_ready(), cx) {
            // As if its client had gone.
            this.client_gone = true;
            return Poll::Ready(Ok(()));
        }
        let read = ready!(read);
        this.client_gone |= read.is_err() || buffer.filled().len() == before;
        Poll::Ready(read)
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::CountingIds;

    use super::*;

    #[test]
    fn a_head_that_came_too_slowly_is_not_sent_again_by_itself() {
        for (code, is_final) in [(Code::RequestTimeout, true), (Code::Internal, true), (Code::BadRequest, false)] {
            let answer = String::from_utf8(answer(code, "no", &CountingIds::default())).expect("UTF-8");
            assert_eq!(answer.contains("\r\nx-should-retry: false\r\n"), is_final, "{answer}");
        }
    }

    #[test]
    fn the_parsers_answer_behind_ours_is_left_out() {
        let ours = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}";
        let bare = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        assert_eq!(without_bare_end(&[&ours[..], bare].concat()), ours.len());
        assert_eq!(without_bare_end(ours), ours.len());
        assert_eq!(without_bare_end(&[&ours[..], ours].concat()), 2 * ours.len());
        assert_eq!(without_bare_end(b""), 0);
    }

    #[test]
    fn only_the_parsers_own_answers_are_replaced() {
        let refused = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        assert_eq!(bare(refused).map(|(code, _)| code), Some(Code::BadRequest));
        for other in [
            &b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx-request-id: a\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK",
            b"HTTP/1.1 4",
            b"",
        ] {
            assert_eq!(bare(other), None);
        }
    }
}
