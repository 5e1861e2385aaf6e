//! What the protocol's parser refuses by itself (a head that is no HTTP, too long or too slow) never becomes a request,
//! so it is answered below all of our code, without a body. Here such an answer gets the body that all errors have.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::rt::net::TcpStream;
use casement_domain::IdSource;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use crate::{
    error::Code,
    relay::{Backlog, Writes},
};

/// The parser's own answers are shorter.
const LONGEST_BARE: usize = 512;
/// How much a refused client may still send, in bytes, and for how long. Closed with something unread, the connection
/// would be reset, and the answer lost on its way.
const MOST_DRAINED: usize = 4 * 1024 * 1024;
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// A client's connection.
pub(crate) struct Connection {
    stream: TcpStream,
    ids: Arc<dyn IdSource>,
    refusal: Option<Refusal>,
    writes: Writes,
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
    pub(crate) fn new(stream: TcpStream, ids: Arc<dyn IdSource>) -> Self {
        Self { stream, ids, refusal: None, writes: Writes::default(), upgraded: false }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn backlog(&self) -> Backlog {
        self.writes.backlog()
    }
}

/// The code of an answer that the parser gave by itself; ours all carry a request id.
fn bare(answer: &[u8]) -> Option<(Code, &'static str)> {
    let status = answer.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    if answer.len() > LONGEST_BARE || !answer.ends_with(b"\r\n\r\n") {
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

fn answer(code: Code, message: &str, ids: &dyn IdSource) -> Vec<u8> {
    let body = format!(r#"{{"code":"{}","message":"{message}"}}"#, code.as_str());
    let status = actix_web::http::StatusCode::from_u16(code.status());
    let reason = status.ok().and_then(|status| status.canonical_reason()).unwrap_or_default();
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-length: {}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
         connection: close\r\nx-request-id: {}\r\n\r\n{body}",
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
        while self.drained < MOST_DRAINED && self.until.as_mut().poll(cx).is_pending() {
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
            this.refusal = bare(bytes).map(|(code, message)| Refusal {
                left: answer(code, message, this.ids.as_ref()),
                stands_for: bytes.len(),
                drained: 0,
                until: Box::pin(tokio::time::sleep(DRAIN_PATIENCE)),
            });
        }
        let Some(refusal) = &mut this.refusal else {
            let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
            return this.writes.watch(written, cx);
        };
        ready!(refusal.poll_send(&mut this.stream, cx))?;
        let stands_for = refusal.stands_for;
        this.refusal = None;
        Poll::Ready(Ok(stands_for))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
