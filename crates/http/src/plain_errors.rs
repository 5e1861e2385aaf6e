//! What the protocol's parser refuses by itself (a head that is no HTTP, too long or too slow) never becomes a request,
//! so it is answered below all of our code, without a body. Here such an answer gets the body that all errors have.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use actix_web::rt::net::TcpStream;
use casement_domain::IdSource;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::Code;

/// The parser's own answers are shorter.
const LONGEST_BARE: usize = 512;

/// A client's connection.
pub(crate) struct Connection {
    stream: TcpStream,
    ids: Arc<dyn IdSource>,
    /// The answer that takes another's place, as far as it is not written yet, and how long the other was.
    instead: Option<(Vec<u8>, usize)>,
    /// After an upgrade the bytes are not ours.
    upgraded: bool,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, ids: Arc<dyn IdSource>) -> Self {
        Self { stream, ids, instead: None, upgraded: false }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
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

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.upgraded && this.instead.is_none() && bytes.starts_with(b"HTTP/1.1 ") {
            this.upgraded = bytes.starts_with(b"HTTP/1.1 101");
            this.instead = bare(bytes).map(|(code, message)| (answer(code, message, this.ids.as_ref()), bytes.len()));
        }
        let Some((left, stands_for)) = &mut this.instead else {
            return Pin::new(&mut this.stream).poll_write(cx, bytes);
        };
        while !left.is_empty() {
            let written = ready!(Pin::new(&mut this.stream).poll_write(cx, left))?;
            if written == 0 {
                return Poll::Ready(Ok(0));
            }
            left.drain(..written);
        }
        let stands_for = *stands_for;
        this.instead = None;
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
