//! The most recent output of a program, for any number of readers.

use std::collections::VecDeque;

use casement_agent_protocol::process::{MAX_BUFFERED_OUTPUT, OutputStream};

/// The maximum size of a piece, in bytes. Consecutive output of one stream is joined up to this size, because a program
/// may write byte by byte.
const CHUNK_BYTES: usize = 8 << 10;
/// The overhead of a piece besides its data, in bytes.
const PIECE_COST: usize = 64;

/// Output in the order it was read. Grows as needed, to at most [`MAX_BUFFERED_OUTPUT`].
#[derive(Debug, Default)]
pub(crate) struct Ring {
    pieces: VecDeque<Piece>,
    /// The bytes and overheads of all pieces.
    weight: usize,
    /// The number of bytes ever written.
    end: u64,
}

#[derive(Debug)]
struct Piece {
    stream: OutputStream,
    /// The number of bytes written before this piece.
    start: u64,
    data: Vec<u8>,
}

/// The next output for a reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) stream: OutputStream,
    pub(crate) data: Vec<u8>,
    /// The number of bytes before this part that the reader has missed.
    pub(crate) dropped: u64,
}

impl Ring {
    pub(crate) fn write(&mut self, stream: OutputStream, data: &[u8]) {
        for data in data.chunks(CHUNK_BYTES) {
            self.add(stream, data);
            self.end += data.len() as u64;
        }
        while self.weight > MAX_BUFFERED_OUTPUT {
            let Some(oldest) = self.pieces.pop_front() else { return };
            self.weight -= oldest.data.len() + PIECE_COST;
        }
    }

    fn add(&mut self, stream: OutputStream, data: &[u8]) {
        self.weight += data.len();
        match self.pieces.back_mut() {
            Some(last) if last.stream == stream && last.data.len() + data.len() <= CHUNK_BYTES => {
                last.data.extend_from_slice(data);
            }
            _ => {
                self.weight += PIECE_COST;
                self.pieces.push_back(Piece { stream, start: self.end, data: data.to_vec() });
            }
        }
    }

    /// Returns the output after the first `position` bytes, at most `max` bytes of one stream, and the position after
    /// it.
    pub(crate) fn read(&self, position: u64, max: usize) -> Option<(Part, u64)> {
        if position >= self.end {
            return None;
        }
        let first = self.pieces.partition_point(|piece| piece.start + piece.data.len() as u64 <= position);
        let mut pieces = self.pieces.iter().skip(first).peekable();
        let (stream, begin) = pieces.peek().map(|piece| (piece.stream, piece.start.max(position)))?;
        let mut data = Vec::new();
        for piece in pieces.take_while(|piece| piece.stream == stream) {
            // Only the first piece can begin before the position.
            let skipped = usize::try_from(begin.saturating_sub(piece.start)).unwrap_or(usize::MAX);
            let rest = piece.data.get(skipped..).unwrap_or_default();
            let room = max - data.len();
            data.extend_from_slice(&rest[..rest.len().min(room)]);
            if rest.len() >= room {
                break;
            }
        }
        let next = begin + data.len() as u64;
        Some((Part { stream, data, dropped: begin - position }, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutputStream::{Stderr, Stdout};

    fn all(ring: &Ring, mut position: u64) -> Vec<(OutputStream, usize, u64)> {
        let mut parts = Vec::new();
        while let Some((part, next)) = ring.read(position, 64 << 10) {
            parts.push((part.stream, part.data.len(), part.dropped));
            position = next;
        }
        parts
    }

    #[test]
    fn output_is_read_in_the_order_it_was_written() {
        let mut ring = Ring::default();
        ring.write(Stdout, b"one");
        ring.write(Stdout, b"two");
        ring.write(Stderr, b"three");
        ring.write(Stdout, b"four");
        let (part, next) = ring.read(0, 100).expect("something");
        assert_eq!((part.data.as_slice(), next), (b"onetwo".as_slice(), 6));
        assert_eq!(all(&ring, 1), [(Stdout, 5, 0), (Stderr, 5, 0), (Stdout, 4, 0)]);
        assert_eq!(ring.read(15, 100), None);
    }

    #[test]
    fn a_reader_that_is_too_slow_learns_how_much_it_missed() {
        let mut ring = Ring::default();
        let written = 5 << 20;
        for _ in 0..written / 1000 {
            ring.write(Stdout, &[7; 1000]);
        }
        let parts = all(&ring, 0);
        let read: u64 = parts.iter().map(|(_, length, _)| *length as u64).sum();
        let missed: u64 = parts.iter().map(|(.., dropped)| dropped).sum();
        assert_eq!(read + missed, ring.end);
        assert!(read as usize <= MAX_BUFFERED_OUTPUT && read as usize > MAX_BUFFERED_OUTPUT * 9 / 10, "{read}");
        assert!(parts.iter().skip(1).all(|(.., dropped)| *dropped == 0));
    }

    #[test]
    fn a_program_that_writes_byte_by_byte_costs_no_more() {
        let mut ring = Ring::default();
        for n in 0..200_000 {
            ring.write(if n % 2 == 0 { Stdout } else { Stderr }, b"x");
        }
        assert!(ring.pieces.len() <= MAX_BUFFERED_OUTPUT / PIECE_COST);
        assert!(ring.pieces.iter().all(|piece| piece.data.capacity() < 64));
    }

    #[test]
    fn what_is_read_at_once_is_bounded() {
        let mut ring = Ring::default();
        ring.write(Stdout, &[1; 100_000]);
        let (part, next) = ring.read(10, 50_000).expect("something");
        assert_eq!((part.data.len(), part.dropped, next), (50_000, 0, 50_010));
        assert_eq!(all(&ring, 0), [(Stdout, 64 << 10, 0), (Stdout, 100_000 - (64 << 10), 0)]);
    }
}
