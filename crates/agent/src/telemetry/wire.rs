//! A connection to the browser's debugging protocol with bounded memory, regardless of the length of messages.
//!
//! A common WebSocket client buffers a message completely or closes the connection. Here the strings of a message are
//! truncated while it arrives, see [`Redactor`].

use std::io;

use base64::Engine as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::redactor::{RedactedMessage, Redactor};
use crate::endpoint::{Endpoint, Stream};

/// The size of the read buffer.
const BUFFER_BYTES: usize = 64 << 10;
/// The longest response to the handshake.
const MAX_HEAD: usize = 8 << 10;
/// The longest control frame of the WebSocket protocol.
const MAX_CONTROL: u64 = 125;
/// The beginnings of console messages and uncaught errors.
const CONSOLE_STARTS: [&[u8]; 2] =
    [b"{\"method\":\"Runtime.consoleAPICalled\"", b"{\"method\":\"Runtime.exceptionThrown\""];

/// An open connection. Dropping it closes it.
pub(super) struct Wire {
    stream: Stream,
    read: Vec<u8>,
    /// The position of the unprocessed bytes in `read`.
    at: usize,
    frame: Option<Frame>,
    redactor: Redactor,
    to_send: Vec<u8>,
    /// True to skip console messages, when a page sends more than can be handled.
    pub(super) skips_console: bool,
}

/// A frame in progress.
#[derive(Clone, Copy)]
struct Frame {
    opcode: u8,
    is_last: bool,
    left: u64,
    is_skipped: bool,
}

impl Wire {
    /// Connects to the browser.
    pub(super) async fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        let mut stream = endpoint.open().await?;
        let mut key = [0; 16];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        let key = base64::engine::general_purpose::STANDARD.encode(key);
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n",
            endpoint.path(),
            endpoint.host()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut read = Vec::with_capacity(BUFFER_BYTES);
        let end = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if read.len() > MAX_HEAD || stream.read_buf(&mut read).await? == 0 {
                return Err(io::Error::other("the browser does not speak its debugging protocol"));
            }
        };
        if !read.starts_with(b"HTTP/1.1 101 ") {
            return Err(io::Error::other("the browser refused a debugging connection"));
        }
        Ok(Self {
            stream,
            read,
            at: end,
            frame: None,
            redactor: Redactor::default(),
            to_send: Vec::new(),
            skips_console: false,
        })
    }

    /// Returns the next message that has arrived completely.
    ///
    /// # Errors
    /// If the browser closes the connection or violates the WebSocket protocol.
    pub(super) fn message(&mut self) -> io::Result<Option<RedactedMessage>> {
        loop {
            let Some(frame) = &mut self.frame else {
                match self.head()? {
                    Some(frame) => self.frame = Some(frame),
                    None => return Ok(None),
                }
                continue;
            };
            let available = (self.read.len() - self.at).min(usize::try_from(frame.left).unwrap_or(usize::MAX));
            let payload = &self.read[self.at..self.at + available];
            if frame.is_skipped {
                // The payload is discarded.
            } else if frame.opcode < 8 {
                self.redactor.feed(payload);
            } else if (available as u64) < frame.left {
                // A control frame is handled once it is complete.
                return Ok(None);
            } else if frame.opcode == PING {
                let payload = payload.to_vec();
                write_frame(&mut self.to_send, PONG, &payload);
            }
            self.at += available;
            frame.left -= available as u64;
            if frame.left > 0 {
                return Ok(None);
            }
            let Frame { opcode, is_last, is_skipped, .. } = *frame;
            self.frame = None;
            if is_skipped {
                return Ok(Some(RedactedMessage { is_lost: true, ..RedactedMessage::default() }));
            }
            if opcode < 8 && is_last {
                return Ok(Some(self.redactor.take()));
            }
        }
    }

    /// Waits for more bytes. Cancel-safe.
    ///
    /// # Errors
    /// If the connection has ended.
    pub(super) async fn read_more(&mut self) -> io::Result<()> {
        self.read.drain(..self.at);
        self.at = 0;
        self.read.reserve(BUFFER_BYTES.saturating_sub(self.read.len()));
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Queues a text for [`flush`](Self::flush).
    pub(super) fn send(&mut self, text: &[u8]) {
        write_frame(&mut self.to_send, TEXT, text);
    }

    /// Sends the queued texts.
    ///
    /// # Errors
    /// If the connection has ended.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if !self.to_send.is_empty() {
            self.stream.write_all(&self.to_send).await?;
            self.to_send.clear();
            self.to_send.shrink_to(BUFFER_BYTES);
        }
        Ok(())
    }

    /// Takes the queued texts.
    #[cfg(test)]
    pub(super) fn take_queued(&mut self) -> Vec<serde_json::Value> {
        let mut rest = std::mem::take(&mut self.to_send);
        let mut sent = Vec::new();
        while let [_, short, ..] = *rest {
            let (head, length) = match short & 0x7f {
                126 => (4, usize::from(u16::from_be_bytes([rest[2], rest[3]]))),
                short => (2, usize::from(short)),
            };
            let payload = head + 4;
            sent.push(serde_json::from_slice(&rest[payload..payload + length]).expect("JSON"));
            rest.drain(..payload + length);
        }
        sent
    }

    /// Parses the head of the next frame, once it has arrived.
    fn head(&mut self) -> io::Result<Option<Frame>> {
        let bytes = &self.read[self.at..];
        let [first, second, ..] = *bytes else { return Ok(None) };
        let (short, opcode) = (second & 0x7f, first & 0x0f);
        let size = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(long) = bytes.get(2..2 + size) else { return Ok(None) };
        let left = if size == 0 { short.into() } else { long.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) };
        if second & 0x80 != 0 || (opcode >= 8 && left > MAX_CONTROL) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if opcode == CLOSE {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_last = first & 0x80 != 0;
        let may_skip = self.skips_console && opcode == TEXT && is_last;
        let start_of_payload = &bytes[2 + size..];
        // Too few bytes have arrived to decide.
        let is_undecided = |start: &&[u8]| {
            (start_of_payload.len() as u64) < left
                && start_of_payload.len() < start.len()
                && start.starts_with(start_of_payload)
        };
        if may_skip && CONSOLE_STARTS.iter().any(is_undecided) {
            return Ok(None);
        }
        let is_skipped = may_skip && CONSOLE_STARTS.iter().any(|start| start_of_payload.starts_with(start));
        self.at += 2 + size;
        Ok(Some(Frame { opcode, is_last, left, is_skipped }))
    }
}

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Writes a frame of a client. Its mask is zero: a mask protects from proxies that misinterpret a payload, and what is
/// between here and a browser has taken part in the handshake.
fn write_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(0x80 | opcode);
    match payload.len() {
        short @ 0..=125 => out.push(0x80 | short as u8),
        middle @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}
