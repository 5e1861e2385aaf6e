//! Checks the frames of a client one by one, and forwards them to the browser in pieces that it accepts.
//!
//! Only frame headers are parsed. The server itself reports protocol violations and binary messages to the client, because
//! the browser would just close the connection, which looks like a crash.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    CloseReason, TooLong,
    wire::{self, BadFrame, Header, HeaderBuffer},
};

/// The maximum payload of a frame that is forwarded in one piece. Chromium's endpoint holds a whole frame with its
/// header in a buffer of 100 MiB, so a frame of exactly 100 MiB would not fit. A multiple of four, so that the mask
/// continues unchanged in the next piece.
const MAX_PIECE_BYTES: u64 = 32 * 1024 * 1024;

/// The state of one client's frames.
#[derive(Debug)]
pub(crate) struct ClientFrames {
    limit: u64,
    /// The header that is being read; its received bytes are not forwarded yet.
    header: HeaderBuffer,
    /// The remaining bytes of the current frame, and of its current piece.
    payload_left: u64,
    piece_left: u64,
    mask: [u8; 4],
    fin: bool,
    /// Whether a message is incomplete, and its length so far.
    in_message: bool,
    message: u64,
    messages: u64,
    close_seen: bool,
    /// The number of pings of the server that the client has not answered.
    unanswered_pings: u32,
    /// Whether the current frame answers a ping of the server, and is not forwarded.
    is_dropped: bool,
    violation: Option<CloseReason>,
}

impl ClientFrames {
    /// Starts between two frames. Messages above `limit` bytes, over all their fragments, are refused.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            header: HeaderBuffer::default(),
            payload_left: 0,
            piece_left: 0,
            mask: [0; 4],
            fin: true,
            in_message: false,
            message: 0,
            messages: 0,
            close_seen: false,
            unanswered_pings: 0,
            is_dropped: false,
            violation: None,
        }
    }

    /// Returns the number of messages whose last frame has started.
    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns whether a close frame has started; no frame may follow it.
    pub(crate) fn close_seen(&self) -> bool {
        self.close_seen
    }

    /// Notes that the server has sent a ping of its own. Its pong is not forwarded.
    pub(crate) fn expect_pong(&mut self) {
        self.unanswered_pings = self.unanswered_pings.saturating_add(1);
    }

    /// Returns the reason why no more frames of this client are forwarded.
    pub(crate) fn violation(&self) -> Option<CloseReason> {
        self.violation
    }

    /// Parses `chunk`, the next bytes of the client, and appends the bytes for the browser to `out`; none after the
    /// first [`violation`](Self::violation).
    pub(crate) fn pass(&mut self, chunk: &Bytes, out: &mut VecDeque<Bytes>) {
        // The bytes from `from` to `at` are parsed and not forwarded yet.
        let (mut from, mut at) = (0, 0);
        while at < chunk.len() && self.violation.is_none() {
            if self.payload_left > 0 {
                at += self.skip(chunk.len() - at);
                if self.is_dropped {
                    from = at;
                    continue;
                }
                if self.piece_left == 0 && self.payload_left > 0 {
                    forward(chunk, from..at, out);
                    out.push_back(self.next_piece(wire::CONTINUATION));
                    from = at;
                }
                continue;
            }
            let (starts_in_earlier_chunk, header_start) = (!self.header.is_empty(), at);
            at += self.header.fill(&chunk[at..]);
            let Some(header) = self.header.take_complete() else {
                // The rest of the header is in the next chunk.
                forward(chunk, from..header_start, out);
                from = at;
                continue;
            };
            let opcode = match self.begin_frame(&Header::parse(header.as_slice())) {
                Ok(opcode) => opcode,
                Err(bad) => {
                    forward(chunk, from..header_start, out);
                    self.violation = Some(bad.into());
                    return;
                }
            };
            if self.is_dropped {
                forward(chunk, from..header_start, out);
                self.piece_left = self.payload_left;
                from = at;
                continue;
            }
            if self.payload_left > MAX_PIECE_BYTES {
                forward(chunk, from..header_start, out);
                out.push_back(self.next_piece(opcode));
                from = at;
                continue;
            }
            self.piece_left = self.payload_left;
            if starts_in_earlier_chunk {
                out.push_back(Bytes::copy_from_slice(header.as_slice()));
                from = at;
            }
        }
        forward(chunk, from..at, out);
    }

    fn skip(&mut self, max: usize) -> usize {
        let skipped = usize::try_from(self.piece_left).unwrap_or(usize::MAX).min(max);
        self.piece_left -= skipped as u64;
        self.payload_left -= skipped as u64;
        skipped
    }

    /// Starts the next piece of the current frame and returns its header.
    fn next_piece(&mut self, opcode: u8) -> Bytes {
        self.piece_left = self.payload_left.min(MAX_PIECE_BYTES);
        let last = self.piece_left == self.payload_left;
        wire::header(self.fin && last, opcode, self.piece_left, Some(self.mask))
    }

    fn begin_frame(&mut self, header: &Header) -> Result<u8, BadFrame> {
        header.check()?;
        self.mask = header.mask.ok_or(BadFrame::Protocol("a client's frame is not masked"))?;
        if header.opcode == wire::BINARY {
            return Err(BadFrame::Binary);
        }
        self.is_dropped = header.opcode == wire::PONG && self.unanswered_pings > 0;
        if self.is_dropped {
            self.unanswered_pings -= 1;
        }
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

fn forward(chunk: &Bytes, part: std::ops::Range<usize>, out: &mut VecDeque<Bytes>) {
    if !part.is_empty() {
        out.push_back(chunk.slice(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the forwarded bytes if `bytes` arrive in chunks of `size`, and the violation.
    fn forwarded(bytes: &[u8], size: usize, limit: u64) -> (Vec<u8>, Option<CloseReason>) {
        let (mut frames, mut out) = (ClientFrames::new(limit), VecDeque::new());
        for chunk in bytes.chunks(size) {
            frames.pass(&Bytes::copy_from_slice(chunk), &mut out);
        }
        (out.into_iter().flatten().collect(), frames.violation())
    }

    fn frame(fin: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = wire::header(fin, opcode, payload.len() as u64, Some([1, 2, 3, 4])).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn valid_frames_pass_unchanged_for_any_chunk_size() {
        let mut all = Vec::new();
        for (fin, opcode, length) in [
            (true, 1, 0),
            (true, 1, 200),
            (false, 1, 5),
            (true, 9, 125),
            (false, 0, 70_000),
            (true, 0, 1),
            (true, 8, 2),
        ] {
            all.extend(frame(fin, opcode, &vec![7; length]));
        }
        for size in [1, 2, 3, 7, 16, 1000, all.len()] {
            assert!(forwarded(&all, size, u64::MAX) == (all.clone(), None), "{size}");
        }
    }

    #[test]
    fn protocol_violations_end_the_relay_and_are_not_forwarded() {
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
                let (output, violation) = forwarded(&whole, size, u64::MAX);
                assert_eq!(violation, Some(CloseReason::Protocol), "{what}, by {size}");
                assert!(output.starts_with(&good) && whole.starts_with(&output), "{what}: {output:?}");
            }
        }
    }

    #[test]
    fn a_binary_message_is_refused_with_a_reason_of_its_own() {
        for bad in [frame(true, 2, b"x"), frame(false, 2, b"x")] {
            let (output, violation) = forwarded(&[frame(true, 1, b"good"), bad].concat(), 3, u64::MAX);
            assert_eq!(violation, Some(CloseReason::UnsupportedData));
            assert_eq!(output, frame(true, 1, b"good"));
        }
    }

    #[test]
    fn only_the_answers_to_pings_of_the_server_are_left_out() {
        let (text, pong) = (frame(true, 1, b"text"), frame(true, 10, b"pong"));
        let first_part = frame(false, 1, b"first");
        let rest = frame(true, 0, b"rest");
        let all = [&text[..], &pong, &first_part, &pong, &rest, &pong].concat();
        let expected = [&text[..], &first_part, &rest, &pong].concat();
        for size in [1, 2, 7, all.len()] {
            let (mut frames, mut out) = (ClientFrames::new(u64::MAX), VecDeque::new());
            frames.expect_pong();
            frames.expect_pong();
            for chunk in all.chunks(size) {
                frames.pass(&Bytes::copy_from_slice(chunk), &mut out);
            }
            let passed: Vec<u8> = out.into_iter().flatten().collect();
            assert_eq!((passed, frames.violation()), (expected.clone(), None), "by {size}");
        }
    }

    #[test]
    fn a_message_at_the_limit_passes_in_pieces_and_a_longer_one_is_refused() {
        let limit = 2 * MAX_PIECE_BYTES + 5;
        let payload: Vec<u8> = (0..limit).map(|at| at.to_le_bytes()[0]).collect();
        let (output, violation) = forwarded(&frame(true, 1, &payload), 100_000, limit);
        assert_eq!(violation, None);
        let (mut rest, mut whole, mut headers) = (bytes::BytesMut::from(&output[..]), Vec::new(), Vec::new());
        let mut sent = bytes::BytesMut::from(&frame(true, 1, &payload)[..]);
        let sent = wire::decode(&mut sent, u64::MAX).expect("a frame").expect("whole");
        while let Some(piece) = wire::decode(&mut rest, u64::MAX).expect("a frame") {
            headers.push((piece.fin, piece.opcode, piece.payload.len() as u64));
            whole.extend_from_slice(&piece.payload);
        }
        assert_eq!(headers, [(false, 1, MAX_PIECE_BYTES), (false, 0, MAX_PIECE_BYTES), (true, 0, 5)]);
        assert!(whole == sent.payload, "the payload is unchanged");
        let (output, violation) = forwarded(&wire::header(true, 1, limit + 1, Some([1; 4])), 3, limit);
        assert_eq!((output.len(), violation), (0, Some(CloseReason::MessageTooBig)));
        let two = [frame(false, 1, b"12345"), frame(true, 0, b"6")].concat();
        assert_eq!(forwarded(&two, 4, 5).1, Some(CloseReason::MessageTooBig), "over all its fragments");
    }
}
