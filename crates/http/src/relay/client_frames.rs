//! What a client sends, on its way to the browser: checked frame by frame, and given on in pieces that the browser takes.
//!
//! Payloads are never looked at. Frame headers are: what breaks the protocol is told to the client by us, since the browser would just
//! end the connection, and look as if it had crashed.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    CloseReason, TooLong,
    wire::{self, BadFrame, Header, MAX_HEADER},
};

/// The longest frame that is given on in one piece. Chromium's endpoint holds a whole frame with its header in a buffer of 100 MiB, so one
/// of exactly 100 MiB would not fit. A multiple of four: the mask goes on behind it as it began.
const CHUNK_BYTES: u64 = 32 * 1024 * 1024;

/// The frames of one client.
#[derive(Debug)]
pub(crate) struct ClientFrames {
    limit: u64,
    /// The header that is being read; what of it has come was not given on yet.
    header: [u8; MAX_HEADER],
    have: usize,
    /// Of the frame that is given on.
    payload_left: u64,
    piece_left: u64,
    mask: [u8; 4],
    fin: bool,
    /// A message has begun that has not ended, and its length until now.
    in_message: bool,
    message: u64,
    messages: u64,
    close_seen: bool,
    broken: Option<CloseReason>,
}

impl ClientFrames {
    /// Begins between two frames. Messages above `limit` bytes, over all their fragments, are refused.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            header: [0; MAX_HEADER],
            have: 0,
            payload_left: 0,
            piece_left: 0,
            mask: [0; 4],
            fin: true,
            in_message: false,
            message: 0,
            messages: 0,
            close_seen: false,
            broken: None,
        }
    }

    /// How many messages have begun to end: their last frame has begun.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether a close frame has begun to pass: nothing may follow it.
    pub(crate) fn close_seen(&self) -> bool {
        self.close_seen
    }

    /// Why nothing more of this client is given on.
    pub(crate) fn broken(&self) -> Option<CloseReason> {
        self.broken
    }

    /// Puts what the browser gets of `chunk`, the next bytes of the client, behind what is in `out`. From the first frame on that is
    /// [`broken`](Self::broken), it is nothing.
    pub(crate) fn pass(&mut self, chunk: &Bytes, out: &mut VecDeque<Bytes>) {
        // What lies between the two was looked at and not given on yet.
        let (mut from, mut at) = (0, 0);
        while at < chunk.len() && self.broken.is_none() {
            if self.payload_left > 0 {
                at += self.skip(chunk.len() - at);
                if self.piece_left == 0 && self.payload_left > 0 {
                    give(chunk, from..at, out);
                    out.push_back(self.next_piece(wire::CONTINUATION));
                    from = at;
                }
                continue;
            }
            let (begun_before, begin) = (self.have > 0, at);
            at += self.take_header(&chunk[at..]);
            if !self.has_header() {
                // The rest of it is in the next chunk.
                give(chunk, from..begin, out);
                from = at;
                continue;
            }
            let header = self.header[..self.have].to_vec();
            let opcode = match self.begin_frame() {
                Ok(opcode) => opcode,
                Err(bad) => {
                    give(chunk, from..begin, out);
                    self.broken = Some(bad.into());
                    return;
                }
            };
            if self.payload_left > CHUNK_BYTES {
                give(chunk, from..begin, out);
                out.push_back(self.next_piece(opcode));
                from = at;
            } else if begun_before {
                self.piece_left = self.payload_left;
                out.push_back(header.into());
                from = at;
            } else {
                self.piece_left = self.payload_left;
            }
        }
        give(chunk, from..at, out);
    }

    fn skip(&mut self, most: usize) -> usize {
        let skipped = usize::try_from(self.piece_left).unwrap_or(usize::MAX).min(most);
        self.piece_left -= skipped as u64;
        self.payload_left -= skipped as u64;
        skipped
    }

    /// The header of the next piece of the frame that is given on.
    fn next_piece(&mut self, opcode: u8) -> Bytes {
        self.piece_left = self.payload_left.min(CHUNK_BYTES);
        let last = self.piece_left == self.payload_left;
        wire::header(self.fin && last, opcode, self.piece_left, Some(self.mask))
    }

    fn has_header(&self) -> bool {
        self.have >= 2 && self.have == wire::header_length(self.header[1])
    }

    /// Takes what belongs to the header; answers how much that is.
    fn take_header(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.has_header() {
            self.header[self.have] = bytes[taken];
            self.have += 1;
            taken += 1;
        }
        taken
    }

    fn begin_frame(&mut self) -> Result<u8, BadFrame> {
        let header = Header::parse(&self.header[..self.have]);
        self.have = 0;
        header.check()?;
        self.mask = header.mask.ok_or(BadFrame::Protocol("a client's frame is not masked"))?;
        if header.opcode < wire::CLOSE {
            match (self.in_message, header.opcode == wire::CONTINUATION) {
                (false, true) => return Err(BadFrame::Protocol("a continuation of no message")),
                (true, false) => return Err(BadFrame::Protocol("a message within another")),
                (false, false) => self.message = 0,
                (true, true) => {}
            }
            self.in_message = !header.fin;
            self.messages += u64::from(header.fin);
            self.message = self.message.saturating_add(header.payload);
            if self.message > self.limit {
                return Err(TooLong { limit: self.limit }.into());
            }
        }
        self.close_seen |= header.opcode == wire::CLOSE;
        (self.payload_left, self.fin) = (header.payload, header.fin);
        Ok(header.opcode)
    }
}

fn give(chunk: &Bytes, part: std::ops::Range<usize>, out: &mut VecDeque<Bytes>) {
    if !part.is_empty() {
        out.push_back(chunk.slice(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is given on of `bytes` that come in chunks of `size`, and why it ends.
    fn passed(bytes: &[u8], size: usize, limit: u64) -> (Vec<u8>, Option<CloseReason>) {
        let (mut frames, mut out) = (ClientFrames::new(limit), VecDeque::new());
        for chunk in bytes.chunks(size) {
            frames.pass(&Bytes::copy_from_slice(chunk), &mut out);
        }
        (out.into_iter().flatten().collect(), frames.broken())
    }

    fn frame(fin: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = wire::header(fin, opcode, payload.len() as u64, Some([1, 2, 3, 4])).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn what_keeps_to_the_protocol_passes_as_it_came_however_it_is_cut() {
        let mut all = Vec::new();
        for (fin, opcode, length) in [
            (true, 1, 0),
            (true, 2, 200),
            (false, 1, 5),
            (true, 9, 125),
            (false, 0, 70_000),
            (true, 0, 1),
            (true, 8, 2),
        ] {
            all.extend(frame(fin, opcode, &vec![7; length]));
        }
        for size in [1, 2, 3, 7, 16, 1000, all.len()] {
            assert!(passed(&all, size, u64::MAX) == (all.clone(), None), "{size}");
        }
    }

    #[test]
    fn what_breaks_the_protocol_ends_as_that_and_is_not_given_on() {
        let good = frame(true, 1, b"good");
        let bad: [(&str, Vec<u8>); 12] = [
            ("unmasked", vec![0x81, 1, b'x']),
            ("RSV1", vec![0xC1, 0x80, 1, 2, 3, 4]),
            ("RSV2", vec![0xA1, 0x80, 1, 2, 3, 4]),
            ("RSV3 of a close frame", vec![0x98, 0x80, 1, 2, 3, 4]),
            ("a reserved opcode", frame(true, 3, b"x")),
            ("a reserved control opcode", frame(true, 0xB, b"x")),
            ("a control frame in fragments", frame(false, 9, b"x")),
            ("a long control frame", frame(true, 9, &[0; 126])),
            ("a close frame of one byte", frame(true, 8, b"x")),
            ("a continuation of nothing", frame(true, 0, b"x")),
            ("a length beyond all", vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]),
            ("a message in a message", [frame(false, 1, b"x"), frame(true, 1, b"x")].concat()),
        ];
        for (what, bytes) in bad {
            let whole = [good.clone(), bytes].concat();
            for size in [1, 3, whole.len()] {
                let (given, why) = passed(&whole, size, u64::MAX);
                assert_eq!(why, Some(CloseReason::Protocol), "{what}, by {size}");
                assert!(given.starts_with(&good) && whole.starts_with(&given), "{what}: {given:?}");
            }
        }
    }

    #[test]
    fn a_message_as_long_as_the_limit_passes_in_pieces_and_a_longer_one_is_refused() {
        let limit = 2 * CHUNK_BYTES + 5;
        let payload: Vec<u8> = (0..limit).map(|at| at.to_le_bytes()[0]).collect();
        let (given, why) = passed(&frame(true, 2, &payload), 100_000, limit);
        assert_eq!(why, None);
        let (mut rest, mut whole, mut heads) = (bytes::BytesMut::from(&given[..]), Vec::new(), Vec::new());
        let mut sent = bytes::BytesMut::from(&frame(true, 2, &payload)[..]);
        let sent = wire::decode(&mut sent, u64::MAX).expect("a frame").expect("whole");
        while let Some(piece) = wire::decode(&mut rest, u64::MAX).expect("a frame") {
            heads.push((piece.fin, piece.opcode, piece.payload.len() as u64));
            whole.extend_from_slice(&piece.payload);
        }
        assert_eq!(heads, [(false, 2, CHUNK_BYTES), (false, 0, CHUNK_BYTES), (true, 0, 5)]);
        assert!(whole == sent.payload, "the payload is what it was");
        let (given, why) = passed(&wire::header(true, 2, limit + 1, Some([1; 4])), 3, limit);
        assert_eq!((given.len(), why), (0, Some(CloseReason::MessageTooBig)));
        let two = [frame(false, 2, b"12345"), frame(true, 0, b"6")].concat();
        assert_eq!(passed(&two, 4, 5).1, Some(CloseReason::MessageTooBig), "over all its fragments");
    }
}
