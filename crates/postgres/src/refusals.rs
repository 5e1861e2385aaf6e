//! The codes with which the server refuses statements. Diesel passes on the message of an error, which the server may
//! translate, and not its code (SQLSTATE), which says what happened. So the codes are read from the stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::error::SqlState;

/// The number of errors of a connection that are remembered. Each is looked up at once.
const MAX_REMEMBERED: usize = 32;
/// The longest error whose code is read, in bytes.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// The type of each message and its length.
const HEADER_BYTES: usize = 5;
/// The type of an error in PostgreSQL's protocol.
const ERROR: u8 = b'E';

/// The last errors of one connection. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals(Arc<Mutex<VecDeque<(String, SqlState)>>>);

impl Refusals {
    /// Returns the code of the error with this message.
    pub(crate) fn code_of(&self, message: &str) -> Option<SqlState> {
        self.0.lock().iter().rev().find(|(known, _)| known == message).map(|(_, code)| code.clone())
    }

    /// Reads the fields of an error: each has a letter, a text and a zero.
    fn remember(&self, error: &[u8]) {
        let text_of = |letter: u8| {
            let field = error.split(|byte| *byte == 0).find(|field| field.first() == Some(&letter))?;
            std::str::from_utf8(&field[1..]).ok()
        };
        let (Some(message), Some(code)) = (text_of(b'M'), text_of(b'C')) else { return };
        let mut known = self.0.lock();
        if known.len() == MAX_REMEMBERED {
            known.pop_front();
        }
        known.push_back((message.to_owned(), SqlState::from_code(code)));
    }
}

/// A stream from the server whose errors are remembered.
pub(crate) struct Observed<S> {
    stream: S,
    messages: Messages,
}

impl<S> Observed<S> {
    /// Observes a stream of messages, behind the bytes that precede the first one.
    pub(crate) fn new(stream: S, refusals: Refusals, preceding_bytes: usize) -> Self {
        Self { stream, messages: Messages::new(refusals, preceding_bytes) }
    }

    pub(crate) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns the stream, and what remembers its errors.
    pub(crate) fn into_parts(self) -> (S, Refusals) {
        (self.stream, self.messages.refusals)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.messages.read(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Follows the messages of a stream, of which it keeps only errors.
struct Messages {
    refusals: Refusals,
    /// The number of bytes to pass over.
    skip: usize,
    header: [u8; HEADER_BYTES],
    /// The number of bytes of the header that were read.
    header_bytes: usize,
    /// The error that is being read, with its length.
    error: Option<(usize, Vec<u8>)>,
}

impl Messages {
    fn new(refusals: Refusals, skip: usize) -> Self {
        Self { refusals, skip, header: [0; HEADER_BYTES], header_bytes: 0, error: None }
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = if self.skip > 0 {
                let count = self.skip.min(bytes.len());
                self.skip -= count;
                count
            } else if self.error.is_some() {
                self.read_error(bytes)
            } else {
                self.read_header(bytes)
            };
            bytes = &bytes[count..];
        }
    }

    /// Reads a part of an error; returns the number of bytes.
    fn read_error(&mut self, bytes: &[u8]) -> usize {
        let Some((length, mut error)) = self.error.take() else { return 0 };
        let count = (length - error.len()).min(bytes.len());
        error.extend_from_slice(&bytes[..count]);
        if error.len() == length {
            self.refusals.remember(&error);
        } else {
            self.error = Some((length, error));
        }
        count
    }

    /// Reads a part of a header; returns the number of bytes.
    fn read_header(&mut self, bytes: &[u8]) -> usize {
        let count = (HEADER_BYTES - self.header_bytes).min(bytes.len());
        self.header[self.header_bytes..self.header_bytes + count].copy_from_slice(&bytes[..count]);
        self.header_bytes += count;
        if self.header_bytes == HEADER_BYTES {
            self.header_bytes = 0;
            let [kind, length @ ..] = self.header;
            // The length counts its own four bytes.
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX).saturating_sub(4);
            if kind == ERROR && (1..=MAX_ERROR_BYTES).contains(&length) {
                self.error = Some((length, Vec::new()));
            } else {
                self.skip = length;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("a short message");
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    fn error(code: &str, text: &str) -> Vec<u8> {
        message(b'E', format!("SFEHLER\0VERROR\0C{code}\0M{text}\0\0").as_bytes())
    }

    #[test]
    fn the_code_of_an_error_is_found_however_the_stream_is_cut_and_in_any_language() {
        let rows = message(b'D', b"E\0\0\0\x09C57014\0Mno error\0");
        let stream = [b"N".to_vec(), rows, error("57014", "storniere Anfrage"), error("22012", "Division durch Null")];
        let stream = stream.concat();
        for size in [1, 2, 3, 7, stream.len()] {
            let refusals = Refusals::default();
            let mut messages = Messages::new(refusals.clone(), 1);
            stream.chunks(size).for_each(|chunk| messages.read(chunk));
            assert_eq!(refusals.code_of("storniere Anfrage"), Some(SqlState::QUERY_CANCELED), "{size}");
            assert_eq!(refusals.code_of("Division durch Null"), Some(SqlState::DIVISION_BY_ZERO), "{size}");
            assert_eq!(refusals.code_of("no error"), None, "{size}");
        }
    }

    #[test]
    fn few_errors_are_remembered_and_long_ones_passed_over() {
        let refusals = Refusals::default();
        let mut messages = Messages::new(refusals.clone(), 0);
        messages.read(&error("57014", &"x".repeat(2 * MAX_ERROR_BYTES)));
        assert!(refusals.0.lock().is_empty());
        for n in 0..10 * MAX_REMEMBERED {
            messages.read(&error("57014", &n.to_string()));
        }
        assert_eq!(refusals.0.lock().len(), MAX_REMEMBERED);
        assert!(refusals.code_of(&(10 * MAX_REMEMBERED - 1).to_string()).is_some());
    }
}
