//! WebSocket frames (RFC 6455 §5.2): following their headers through a byte stream, and, where messages must be
//! read, taking whole frames out of a buffer.

use bytes::{Buf, BufMut, Bytes, BytesMut};

pub(crate) const CONTINUATION: u8 = 0x0;
pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xA;

/// The longest frame header: two bytes, eight of length, four of mask.
const LONGEST_HEADER: usize = 14;

/// A message grew above the limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit, in bytes.
    pub limit: u64,
}

/// Follows the frame headers of one direction; payloads are skipped by their length and never looked at.
#[derive(Debug)]
pub struct FrameTracker {
    header: [u8; LONGEST_HEADER],
    have: usize,
    payload_left: u64,
    message: u64,
    limit: u64,
    close_seen: bool,
    messages: u64,
}

impl FrameTracker {
    /// Begins between two frames. Messages above `limit` bytes, over all their fragments, are refused.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            header: [0; LONGEST_HEADER],
            have: 0,
            payload_left: 0,
            message: 0,
            limit,
            close_seen: false,
            messages: 0,
        }
    }

    /// Goes on over `bytes`, the next ones of the stream.
    ///
    /// # Errors
    /// [`TooLong`] as soon as the header of the frame that goes over the limit is known.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let skip = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(bytes.len());
                self.payload_left -= skip as u64;
                bytes = &bytes[skip..];
                continue;
            }
            let take = (self.header_length() - self.have).min(bytes.len());
            self.header[self.have..self.have + take].copy_from_slice(&bytes[..take]);
            self.have += take;
            bytes = &bytes[take..];
            // The second byte tells how long the header really is, so it may have grown.
            if self.have >= 2 && self.have == self.header_length() {
                self.begin_frame()?;
            }
        }
        Ok(())
    }

    /// Whether the stream stands between two frames, where a control frame may be put in.
    #[must_use]
    pub fn between_frames(&self) -> bool {
        self.have == 0 && self.payload_left == 0
    }

    /// How many messages have begun to end: their last frame has begun.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether a close frame has begun to pass: nothing may follow it.
    #[must_use]
    pub fn close_seen(&self) -> bool {
        self.close_seen
    }

    fn header_length(&self) -> usize {
        if self.have < 2 { 2 } else { header_length(self.header[1]) }
    }

    fn begin_frame(&mut self) -> Result<(), TooLong> {
        let header = Header::parse(&self.header[..self.have]);
        self.have = 0;
        self.payload_left = header.payload;
        self.close_seen |= header.opcode == CLOSE;
        if header.opcode < CLOSE {
            self.messages += u64::from(header.fin);
            if header.opcode != CONTINUATION {
                self.message = 0;
            }
            self.message = self.message.saturating_add(header.payload);
            if self.message > self.limit {
                return Err(TooLong { limit: self.limit });
            }
        }
        Ok(())
    }
}

fn header_length(second: u8) -> usize {
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let length = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    2 + length + mask
}

struct Header {
    fin: bool,
    opcode: u8,
    payload: u64,
    mask: Option<[u8; 4]>,
}

impl Header {
    /// `bytes` is exactly one whole header.
    fn parse(bytes: &[u8]) -> Self {
        let (first, second, mut rest) = (bytes[0], bytes[1], &bytes[2..]);
        let payload = match second & 0x7f {
            126 => u64::from(rest.get_u16()),
            127 => rest.get_u64(),
            short => u64::from(short),
        };
        let mask = (second & 0x80 != 0).then(|| [rest[0], rest[1], rest[2], rest[3]]);
        Self { fin: first & 0x80 != 0, opcode: first & 0x0f, payload, mask }
    }
}

/// One whole frame, unmasked.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) fin: bool,
    pub(crate) opcode: u8,
    pub(crate) masked: bool,
    pub(crate) payload: BytesMut,
}

/// Takes the first frame out of `buffer`, or nothing while it is incomplete.
pub(crate) fn decode(buffer: &mut BytesMut, limit: u64) -> Result<Option<Frame>, TooLong> {
    if buffer.len() < 2 || buffer.len() < header_length(buffer[1]) {
        return Ok(None);
    }
    let length = header_length(buffer[1]);
    let header = Header::parse(&buffer[..length]);
    if header.payload > limit {
        return Err(TooLong { limit });
    }
    let payload = usize::try_from(header.payload).map_err(|_| TooLong { limit })?;
    if buffer.len() - length < payload {
        return Ok(None);
    }
    buffer.advance(length);
    let mut payload = buffer.split_to(payload);
    if let Some(mask) = header.mask {
        apply(mask, &mut payload);
    }
    Ok(Some(Frame { fin: header.fin, opcode: header.opcode, masked: header.mask.is_some(), payload }))
}

/// A whole, unfragmented frame; masked if it goes from a client to a server.
pub(crate) fn encode(opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Bytes {
    let mut frame = BytesMut::with_capacity(LONGEST_HEADER + payload.len());
    frame.put_u8(0x80 | opcode);
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        // The casts cannot cut: each arm bounds the length.
        short @ 0..=125 => frame.put_u8(masked | short as u8),
        middle @ 126..=0xffff => {
            frame.put_u8(masked | 126);
            frame.put_u16(middle as u16);
        }
        long => {
            frame.put_u8(masked | 127);
            frame.put_u64(long as u64);
        }
    }
    if let Some(mask) = mask {
        frame.put_slice(&mask);
    }
    let start = frame.len();
    frame.put_slice(payload);
    if let Some(mask) = mask {
        apply(mask, &mut frame[start..]);
    }
    frame.freeze()
}

fn apply(mask: [u8; 4], payload: &mut [u8]) {
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}
