//! A connection to the browser's debugging protocol that takes whatever a page makes the browser say, in bounded memory.
//!
//! An ordinary WebSocket client keeps a message as long as it is, or breaks the connection off. Here its strings are cut while it
//! arrives, see [`redact`](super::strain).

use std::io;

use base64::Engine as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::redactor::{RedactedMessage, Redactor};

/// What is read at once.
const BUFFER: usize = 64 << 10;
/// Longest answer to the handshake.
const MAX_HEAD: usize = 8 << 10;
/// Longest frame of control, by the WebSocket protocol.
const MAX_CONTROL: u64 = 125;
/// How messages of the console begin, and those of errors that nobody caught.
const CONSOLE: [&[u8]; 2] = [b"{\"method\":\"Runtime.consoleAPICalled\"", b"{\"method\":\"Runtime.exceptionThrown\""];

/// An open connection. Dropping it closes it.
pub(super) struct Wire {
    tcp: TcpStream,
    read: Vec<u8>,
    /// Up to where `read` is used up.
    at: usize,
    frame: Option<Frame>,
    redactor: Redactor,
    to_send: Vec<u8>,
    /// Messages of the console are let go unread: a page says more than can be taken in.
    pub(super) skips_console: bool,
}

/// A frame that is being read.
#[derive(Clone, Copy)]
struct Frame {
    code: u8,
    last: bool,
    left: u64,
    skipped: bool,
}

impl Wire {
    /// Opens the WebSocket at `path` of the browser on this port.
    pub(super) async fn connect(port: u16, path: &str) -> io::Result<Self> {
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).await?;
        tcp.set_nodelay(true)?;
        let mut key = [0; 16];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        let key = base64::engine::general_purpose::STANDARD.encode(key);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        tcp.write_all(request.as_bytes()).await?;
        let mut read = Vec::with_capacity(BUFFER);
        let end = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if read.len() > MAX_HEAD || tcp.read_buf(&mut read).await? == 0 {
                return Err(io::Error::other("the browser does not speak its debugging protocol"));
            }
        };
        if !read.starts_with(b"HTTP/1.1 101 ") {
            return Err(io::Error::other("the browser refused a debugging connection"));
        }
        Ok(Self {
            tcp,
            read,
            at: end,
            frame: None,
            redactor: Redactor::default(),
            to_send: Vec::new(),
            skips_console: false,
        })
    }

    /// The next message that has arrived as a whole.
    ///
    /// # Errors
    /// When the browser closes the connection, or says what is no WebSocket.
    pub(super) fn message(&mut self) -> io::Result<Option<RedactedMessage>> {
        loop {
            let Some(frame) = &mut self.frame else {
                match self.head()? {
                    Some(frame) => self.frame = Some(frame),
                    None => return Ok(None),
                }
                continue;
            };
            let there = (self.read.len() - self.at).min(usize::try_from(frame.left).unwrap_or(usize::MAX));
            let payload = &self.read[self.at..self.at + there];
            if frame.skipped {
                // Nothing of it is looked at.
            } else if frame.code < 8 {
                self.redactor.feed(payload);
            } else if (there as u64) < frame.left {
                // Short: it comes as a whole.
                return Ok(None);
            } else if frame.code == PING {
                let payload = payload.to_vec();
                write_frame(&mut self.to_send, PONG, &payload);
            }
            self.at += there;
            frame.left -= there as u64;
            if frame.left > 0 {
                return Ok(None);
            }
            let Frame { code, last, skipped, .. } = *frame;
            self.frame = None;
            if skipped {
                return Ok(Some(RedactedMessage { lost: true, ..RedactedMessage::default() }));
            }
            if code < 8 && last {
                return Ok(Some(self.redactor.take()));
            }
        }
    }

    /// Waits for more to arrive. May be given up at any moment.
    ///
    /// # Errors
    /// When the connection is at its end.
    pub(super) async fn more(&mut self) -> io::Result<()> {
        self.read.drain(..self.at);
        self.at = 0;
        self.read.reserve(BUFFER.saturating_sub(self.read.len()));
        match self.tcp.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Puts a text in the queue for [`flush`](Self::flush).
    pub(super) fn send(&mut self, text: &[u8]) {
        write_frame(&mut self.to_send, TEXT, text);
    }

    /// Sends what was put in the queue.
    ///
    /// # Errors
    /// When the connection is at its end.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if !self.to_send.is_empty() {
            self.tcp.write_all(&self.to_send).await?;
            self.to_send.clear();
            self.to_send.shrink_to(BUFFER);
        }
        Ok(())
    }

    /// What was put in the queue since it was last asked.
    #[cfg(test)]
    pub(super) fn sent(&mut self) -> Vec<serde_json::Value> {
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

    /// The head of the next frame, once it is there.
    fn head(&mut self) -> io::Result<Option<Frame>> {
        let bytes = &self.read[self.at..];
        let [first, second, ..] = *bytes else { return Ok(None) };
        let (short, code) = (second & 0x7f, first & 0x0f);
        let size = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(long) = bytes.get(2..2 + size) else { return Ok(None) };
        let left = if size == 0 { short.into() } else { long.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) };
        if second & 0x80 != 0 || (code >= 8 && left > MAX_CONTROL) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if code == CLOSE {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let last = first & 0x80 != 0;
        let whole = self.skips_console && code == TEXT && last;
        let begins = &bytes[2 + size..];
        // Not enough of it is there to tell.
        let open =
            |start: &&[u8]| (begins.len() as u64) < left && begins.len() < start.len() && start.starts_with(begins);
        if whole && CONSOLE.iter().any(open) {
            return Ok(None);
        }
        let skipped = whole && CONSOLE.iter().any(|start| begins.starts_with(start));
        self.at += 2 + size;
        Ok(Some(Frame { code, last, left, skipped }))
    }
}

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A whole frame of a client. Its mask is zero: there is no proxy in between that could take a payload for something else.
fn write_frame(out: &mut Vec<u8>, code: u8, payload: &[u8]) {
    out.push(0x80 | code);
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
