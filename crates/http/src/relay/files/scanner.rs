//! Finds the messages of a client that contain one of a few words.
//!
//! A message is looked at as a whole: its frames are unmasked and searched, nothing is parsed. All other bytes pass as
//! they are: long messages, binary ones, and everything that breaks the protocol, which `ClientFrames` reports.

use std::{collections::VecDeque, ops::Range};

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

use crate::relay::wire::{self, Header};

/// The maximum payload of a message that is searched, in bytes. Commands that name files are shorter.
pub(super) const MAX_MESSAGE_BYTES: u64 = 64 * 1024;
/// The maximum number of frames of a message that is searched.
const MAX_FRAMES: usize = 64;

/// A part of what a client sent, in its order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes that are forwarded as they are.
    Bytes(Bytes),
    /// A message that contains one of the words.
    Message(Message),
}

/// A whole text message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its frames as they were received.
    pub(super) raw: Bytes,
    /// Its payload, unmasked.
    pub(super) text: Vec<u8>,
}

impl Message {
    /// Encodes `text` as one frame in place of this message, with the mask of its first frame.
    pub(super) fn replaced_by(&self, text: &str) -> Bytes {
        let mask = Header::first(&self.raw).and_then(|(header, _)| header.mask);
        wire::encode(wire::TEXT, text.as_bytes(), Some(mask.unwrap_or_default()))
    }
}

/// The state of one client's bytes.
#[derive(Debug)]
pub(super) struct MessageScanner {
    words: Vec<Finder<'static>>,
    /// The beginning of an incomplete message, and the number of bytes without which nothing more is known of it.
    pending: BytesMut,
    needed: usize,
    /// The bytes that pass without a look, and whether the message that they belong to goes on after them.
    skipped: u64,
    in_skipped_message: bool,
    text: Vec<u8>,
}

enum Next {
    /// This many bytes pass.
    Passes(usize),
    /// The message of this many bytes contains a word.
    Contains(usize),
    /// Nothing is known before this many bytes are there.
    Incomplete(usize),
}

impl MessageScanner {
    /// Starts between two messages.
    pub(super) fn new(words: &[&'static str]) -> Self {
        Self {
            words: words.iter().copied().map(Finder::new).collect(),
            pending: BytesMut::new(),
            needed: 0,
            skipped: 0,
            in_skipped_message: false,
            text: Vec::new(),
        }
    }

    /// Takes `chunk`, the next bytes of the client, and appends what is complete to `parts`.
    pub(super) fn scan(&mut self, mut chunk: Bytes, parts: &mut VecDeque<Part>) {
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(&chunk);
            if self.pending.len() < self.needed {
                return;
            }
            chunk = self.pending.split().freeze();
        }
        // The bytes from `from` to `at` pass and were not appended yet.
        let (mut from, mut at) = (0, 0);
        while at < chunk.len() {
            match self.next(&chunk[at..]) {
                Next::Passes(length) => at += length,
                Next::Incomplete(needed) => {
                    self.needed = needed;
                    break;
                }
                Next::Contains(length) => {
                    pass(&chunk, from..at, parts);
                    let raw = chunk.slice(at..at + length);
                    parts.push_back(Part::Message(Message { raw, text: std::mem::take(&mut self.text) }));
                    at += length;
                    from = at;
                }
            }
        }
        pass(&chunk, from..at, parts);
        self.pending.extend_from_slice(&chunk[at..]);
    }

    fn next(&mut self, bytes: &[u8]) -> Next {
        if self.skipped == 0 {
            match measure(bytes, self.in_skipped_message) {
                Measured::Incomplete { needed } => return Next::Incomplete(needed),
                Measured::Message { length } => {
                    let found = self.contains_a_word(&bytes[..length]);
                    return if found { Next::Contains(length) } else { Next::Passes(length) };
                }
                Measured::Skipped { length, in_message } => {
                    (self.skipped, self.in_skipped_message) = (length, in_message);
                }
            }
        }
        let length = usize::try_from(self.skipped).unwrap_or(usize::MAX).min(bytes.len());
        self.skipped -= length as u64;
        Next::Passes(length)
    }

    fn contains_a_word(&mut self, mut frames: &[u8]) -> bool {
        self.text.clear();
        while let Some((header, length)) = Header::first(frames) {
            let end = length + usize::try_from(header.payload).unwrap_or(usize::MAX).min(frames.len() - length);
            let start = self.text.len();
            self.text.extend_from_slice(&frames[length..end]);
            wire::apply_mask(header.mask.unwrap_or_default(), &mut self.text[start..]);
            frames = &frames[end..];
        }
        self.words.iter().any(|word| word.find(&self.text).is_some())
    }
}

enum Measured {
    /// Nothing is known before `needed` bytes are there.
    Incomplete { needed: usize },
    /// A whole text message.
    Message { length: usize },
    /// The next `length` bytes pass, and so does the rest of their message if `in_message`.
    Skipped { length: u64, in_message: bool },
}

/// Measures the message at the beginning of `bytes`.
fn measure(bytes: &[u8], in_skipped_message: bool) -> Measured {
    let (mut length, mut payload) = (0, 0_u64);
    for _ in 0..MAX_FRAMES {
        let Some((header, header_length)) = Header::first(&bytes[length..]) else {
            return Measured::Incomplete { needed: bytes.len() + 1 };
        };
        let end = ((length + header_length) as u64).saturating_add(header.payload);
        let begins = length == 0;
        payload = payload.saturating_add(header.payload);
        let is_readable = !in_skipped_message
            && header.opcode == if begins { wire::TEXT } else { wire::CONTINUATION }
            && header.mask.is_some()
            && payload <= MAX_MESSAGE_BYTES;
        if !is_readable {
            // A control frame is no part of the message around it.
            let is_control = header.opcode >= wire::CLOSE;
            let in_message = if is_control { in_skipped_message || !begins } else { !header.fin };
            return Measured::Skipped { length: end, in_message };
        }
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        if bytes.len() < end {
            return Measured::Incomplete { needed: end };
        }
        length = end;
        if header.fin {
            return Measured::Message { length };
        }
    }
    Measured::Skipped { length: length as u64, in_message: true }
}

fn pass(chunk: &Bytes, part: Range<usize>, parts: &mut VecDeque<Part>) {
    if !part.is_empty() {
        parts.push_back(Part::Bytes(chunk.slice(part)));
    }
}

#[cfg(test)]
#[path = "scanner_tests.rs"]
mod tests;
