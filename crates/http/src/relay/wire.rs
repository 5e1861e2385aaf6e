//! WebSocket frames (RFC 6455 §5.2): tracks their headers in a byte stream, and decodes whole frames where messages
//! must be parsed.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::CloseReason;

pub(crate) const CONTINUATION: u8 = 0x0;
pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xA;

/// The maximum size of a frame header: two bytes, eight of length, four of mask.
const MAX_HEADER_BYTES: usize = 14;
/// The maximum payload of a control frame, in bytes.
const MAX_CONTROL_BYTES: u64 = 125;

/// A message exceeds the limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit, in bytes.
    pub limit: u64,
}

/// A frame that is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("a message is binary")]
    Binary,
    #[error("the WebSocket protocol is broken: {0}")]
    Protocol(&'static str),
}

impl From<BadFrame> for CloseReason {
    fn from(bad: BadFrame) -> Self {
        match bad {
            BadFrame::TooLong(_) => Self::MessageTooBig,
            BadFrame::Binary => Self::UnsupportedData,
            BadFrame::Protocol(_) => Self::Protocol,
        }
    }
}

/// Tracks the frame headers of one direction. Payloads are skipped by their length and not parsed.
#[derive(Debug)]
pub struct FrameTracker {
    header: HeaderBuffer,
    payload_left: u64,
    message: u64,
    limit: u64,
    close_seen: bool,
    messages: u64,
}

impl FrameTracker {
    /// Starts between two frames. Messages above `limit` bytes, over all their fragments, are refused.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { header: HeaderBuffer::default(), payload_left: 0, message: 0, limit, close_seen: false, messages: 0 }
    }

    /// Advances over `bytes`, the next ones of the stream.
    ///
    /// # Errors
    /// [`TooLong`] as soon as the header of the frame that exceeds the limit is known.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let skip = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(bytes.len());
                self.payload_left -= skip as u64;
                bytes = &bytes[skip..];
                continue;
            }
            bytes = &bytes[self.header.fill(bytes)..];
            if let Some(header) = self.header.take_complete() {
                self.begin_frame(&Header::parse(header.as_slice()))?;
            }
        }
        Ok(())
    }

    /// Returns whether the stream is between two frames, where a control frame may be inserted.
    #[must_use]
    pub fn between_frames(&self) -> bool {
        self.header.is_empty() && self.payload_left == 0
    }

    /// Returns how many of `bytes`, the next ones of the stream, belong to the frame that has started.
    pub(super) fn rest_of_frame(&self, bytes: &[u8]) -> usize {
        let (mut header, mut payload, mut at) = (self.header.clone(), self.payload_left, 0);
        if !header.is_empty() {
            at = header.fill(bytes);
            let Some(header) = header.take_complete() else { return at };
            payload = Header::parse(header.as_slice()).payload;
        }
        at.saturating_add(usize::try_from(payload).unwrap_or(usize::MAX)).min(bytes.len())
    }

    /// Returns the number of messages whose last frame has started.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns whether a close frame has started; no frame may follow it.
    #[must_use]
    pub fn close_seen(&self) -> bool {
        self.close_seen
    }

    fn begin_frame(&mut self, header: &Header) -> Result<(), TooLong> {
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

/// Collects the bytes of a frame header, which may arrive in several chunks.
#[derive(Clone, Debug, Default)]
pub(super) struct HeaderBuffer {
    bytes: [u8; MAX_HEADER_BYTES],
    length: usize,
}

impl HeaderBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn is_complete(&self) -> bool {
        self.length >= 2 && self.length == header_length(self.bytes[1])
    }

    /// Adds the bytes that belong to the header and returns their number.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> usize {
        let mut count = 0;
        while count < bytes.len() && !self.is_complete() {
            self.bytes[self.length] = bytes[count];
            self.length += 1;
            count += 1;
        }
        count
    }

    /// Returns the header and empties the buffer, if the header is complete.
    pub(super) fn take_complete(&mut self) -> Option<Self> {
        self.is_complete().then(|| std::mem::take(self))
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
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

pub(super) struct Header {
    pub(super) fin: bool,
    reserved: bool,
    pub(super) opcode: u8,
    pub(super) payload: u64,
    pub(super) mask: Option<[u8; 4]>,
}

impl Header {
    /// Parses the header at the beginning of `bytes`, and returns it with its length; `None` while it is incomplete.
    pub(super) fn first(bytes: &[u8]) -> Option<(Self, usize)> {
        let length = header_length(*bytes.get(1)?);
        Some((Self::parse(bytes.get(..length)?), length))
    }

    /// Parses `bytes`, which are exactly one header.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let (first, second, mut rest) = (bytes[0], bytes[1], &bytes[2..]);
        let payload = match second & 0x7f {
            126 => u64::from(rest.get_u16()),
            127 => rest.get_u64(),
            short => u64::from(short),
        };
        let mask = (second & 0x80 != 0).then(|| [rest[0], rest[1], rest[2], rest[3]]);
        let (fin, reserved, opcode) = (first & 0x80 != 0, first & 0x70 != 0, first & 0x0f);
        Self { fin, reserved, opcode, payload, mask }
    }

    /// Checks the rules for frames of both sides. Extensions are never negotiated.
    pub(super) fn check(&self) -> Result<(), BadFrame> {
        if self.reserved {
            return Err(BadFrame::Protocol("a reserved bit is set"));
        }
        if !matches!(self.opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG) {
            return Err(BadFrame::Protocol("the opcode is reserved"));
        }
        if self.payload >> 63 != 0 {
            return Err(BadFrame::Protocol("the length is none"));
        }
        if self.opcode >= CLOSE && (!self.fin || self.payload > MAX_CONTROL_BYTES) {
            return Err(BadFrame::Protocol("a control frame is long or in fragments"));
        }
        if self.opcode == CLOSE && self.payload == 1 {
            return Err(BadFrame::Protocol("a close frame has half a code"));
        }
        Ok(())
    }
}

/// A whole frame, unmasked.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) fin: bool,
    pub(crate) opcode: u8,
    pub(crate) masked: bool,
    pub(crate) payload: BytesMut,
}

/// Decodes the first frame of `buffer`; `None` while it is incomplete.
///
/// # Errors
/// [`BadFrame`] as soon as the header is complete.
pub(crate) fn decode(buffer: &mut BytesMut, limit: u64) -> Result<Option<Frame>, BadFrame> {
    let Some((header, length)) = Header::first(buffer) else { return Ok(None) };
    header.check()?;
    if header.payload > limit {
        return Err(TooLong { limit }.into());
    }
    let payload = usize::try_from(header.payload).map_err(|_| TooLong { limit })?;
    if buffer.len() - length < payload {
        return Ok(None);
    }
    buffer.advance(length);
    let mut payload = buffer.split_to(payload);
    if let Some(mask) = header.mask {
        apply_mask(mask, &mut payload);
    }
    Ok(Some(Frame { fin: header.fin, opcode: header.opcode, masked: header.mask.is_some(), payload }))
}

/// Encodes a whole, unfragmented frame. `mask` is required for a frame from a client to a server.
pub(crate) fn encode(opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Bytes {
    let mut frame = BytesMut::with_capacity(MAX_HEADER_BYTES + payload.len());
    put_header(&mut frame, true, opcode, payload.len() as u64, mask);
    let start = frame.len();
    frame.put_slice(payload);
    if let Some(mask) = mask {
        apply_mask(mask, &mut frame[start..]);
    }
    frame.freeze()
}

/// Encodes the header of a frame.
pub(super) fn header(fin: bool, opcode: u8, payload: u64, mask: Option<[u8; 4]>) -> Bytes {
    let mut header = BytesMut::with_capacity(MAX_HEADER_BYTES);
    put_header(&mut header, fin, opcode, payload, mask);
    header.freeze()
}

fn put_header(frame: &mut BytesMut, fin: bool, opcode: u8, payload: u64, mask: Option<[u8; 4]>) {
    frame.put_u8(if fin { 0x80 | opcode } else { opcode });
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload {
        // The casts cannot truncate: each arm bounds the length.
        short @ 0..=125 => frame.put_u8(masked | short as u8),
        middle @ 126..=0xffff => {
            frame.put_u8(masked | 126);
            frame.put_u16(middle as u16);
        }
        long => {
            frame.put_u8(masked | 127);
            frame.put_u64(long);
        }
    }
    if let Some(mask) = mask {
        frame.put_slice(&mask);
    }
}

/// Returns whether a close frame may carry this code (RFC 6455 §7.4).
pub(crate) fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Masks or unmasks a payload.
pub(super) fn apply_mask(mask: [u8; 4], payload: &mut [u8]) {
    // Blocks of several words become vector instructions.
    const BLOCK: usize = 32;
    let key: [u8; BLOCK] = std::array::from_fn(|at| mask[at % 4]);
    let mut blocks = payload.chunks_exact_mut(BLOCK);
    for block in &mut blocks {
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
    }
    blocks.into_remainder().iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
}
