//! Truncates the strings of a JSON text while it arrives, so that every message fits into little memory.
//!
//! A page decides the length of a message of the browser, for example by a console line of ten megabytes. Only the
//! beginning of a long string remains; the text stays valid JSON. Unpaired surrogates, which pages can send and no
//! reader accepts, are replaced.

use memchr::memchr2;

/// The longest string, in bytes of JSON.
pub(super) const MAX_STRING: usize = 128 << 10;
/// After this many bytes of one message all further strings are dropped.
const MAX_MESSAGE: usize = 2 << 20;
/// A message that is longer than this without its strings is lost.
const MAX_BARE: usize = 4 << 20;

/// A complete message.
#[derive(Debug, Default)]
pub(super) struct RedactedMessage {
    /// The JSON text.
    pub(super) text: Vec<u8>,
    /// True if a string is truncated.
    pub(super) is_truncated: bool,
    /// True if the message was too long; `text` is empty then.
    pub(super) is_lost: bool,
}

/// The place of the next byte in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    String,
}

/// Redacts one message, which may arrive in parts.
#[derive(Debug)]
pub(super) struct Redactor {
    message: RedactedMessage,
    place: Place,
    /// The start of the current string.
    string_start: usize,
    /// True while the rest of that string is dropped.
    skipping: bool,
    /// An incomplete escape.
    escape: Vec<u8>,
    /// A high surrogate whose low surrogate may follow.
    high: Option<[u8; 6]>,
}

impl Default for Redactor {
    fn default() -> Self {
        let (message, escape, high) = Default::default();
        Self { message, place: Place::Outside, string_start: 0, skipping: false, escape, high }
    }
}

impl Redactor {
    /// Processes the next bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.message.is_lost {
            if !self.escape.is_empty() {
                bytes = self.complete_escape(bytes);
                continue;
            }
            let end = match self.place {
                Place::Outside => memchr::memchr(b'"', bytes),
                Place::String => memchr2(b'"', b'\\', bytes),
            };
            let (plain, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.add_plain(plain);
            bytes = rest;
            match (self.place, bytes.first()) {
                (_, None) => {}
                (Place::Outside, _) => {
                    self.message.text.push(b'"');
                    self.place = Place::String;
                    self.string_start = self.message.text.len();
                    self.skipping = false;
                    bytes = &bytes[1..];
                }
                (Place::String, Some(b'"')) => {
                    self.replace_unpaired();
                    self.message.text.push(b'"');
                    self.place = Place::Outside;
                    bytes = &bytes[1..];
                }
                (Place::String, Some(_)) => {
                    self.escape.push(b'\\');
                    bytes = &bytes[1..];
                }
            }
        }
    }

    /// Takes the complete message.
    pub(super) fn take(&mut self) -> RedactedMessage {
        std::mem::take(self).message
    }

    fn add_plain(&mut self, plain: &[u8]) {
        if plain.is_empty() {
            return;
        }
        if self.place == Place::Outside {
            if self.message.text.len() + plain.len() > MAX_BARE {
                self.message = RedactedMessage { is_lost: true, ..RedactedMessage::default() };
                return;
            }
            self.message.text.extend_from_slice(plain);
            return;
        }
        self.replace_unpaired();
        let room = self.room();
        if plain.len() <= room {
            self.message.text.extend_from_slice(plain);
        } else {
            self.message.text.extend_from_slice(&plain[..room]);
            self.skip();
        }
    }

    /// Returns how many more bytes of this string are accepted.
    fn room(&self) -> usize {
        if self.skipping {
            return 0;
        }
        let of_string = MAX_STRING.saturating_sub(self.message.text.len() - self.string_start);
        of_string.min(MAX_MESSAGE.saturating_sub(self.message.text.len()))
    }

    fn skip(&mut self) {
        if !self.skipping {
            self.skipping = true;
            self.message.is_truncated = true;
            remove_incomplete_character(&mut self.message.text, self.string_start);
        }
    }

    /// Continues an escape and returns the bytes after it.
    fn complete_escape<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let is_complete = |escape: &[u8]| escape.len() == if escape.get(1) == Some(&b'u') { 6 } else { 2 };
        for (at, byte) in bytes.iter().enumerate() {
            self.escape.push(*byte);
            if is_complete(&self.escape) {
                let escape = std::mem::take(&mut self.escape);
                self.add_escape(&escape);
                return &bytes[at + 1..];
            }
        }
        &[]
    }

    fn add_escape(&mut self, escape: &[u8]) {
        let unit = std::str::from_utf8(escape.get(2..).unwrap_or_default());
        let unit = unit.ok().and_then(|digits| u16::from_str_radix(digits, 16).ok());
        match (unit, escape.try_into()) {
            (Some(0xd800..=0xdbff), Ok(high)) => {
                self.replace_unpaired();
                self.high = Some(high);
            }
            (Some(0xdc00..=0xdfff), _) => match self.high.take() {
                Some(high) => self.add_complete(&[&high, escape].concat()),
                None => self.add_complete(b"\\ufffd"),
            },
            _ => {
                self.replace_unpaired();
                self.add_complete(escape);
            }
        }
    }

    /// Replaces a high surrogate without a low surrogate.
    fn replace_unpaired(&mut self) {
        if self.high.take().is_some() {
            self.add_complete(b"\\ufffd");
        }
    }

    fn add_complete(&mut self, escape: &[u8]) {
        if escape.len() <= self.room() {
            self.message.text.extend_from_slice(escape);
        } else {
            self.skip();
        }
    }
}

/// Removes an incomplete character at the end of the text.
fn remove_incomplete_character(text: &mut Vec<u8>, string_start: usize) {
    let tail = &text[string_start.max(text.len().saturating_sub(3))..];
    let Some(first) = tail.iter().rposition(|byte| byte & 0b1100_0000 != 0b1000_0000) else { return };
    let length = match tail[first] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
        _ => 1,
    };
    let left = tail.len() - first;
    if left < length {
        text.truncate(text.len() - left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn redacted(text: &[u8], step: usize) -> RedactedMessage {
        let mut redactor = Redactor::default();
        text.chunks(step).for_each(|part| redactor.feed(part));
        redactor.take()
    }

    #[test]
    fn short_strings_pass_unchanged_in_any_parts() {
        let value = json!({ "a\"b": ["\\", "\u{1f600}ä\n", 1.5, null, { "x": "" }], "ctrl": "\u{0}\u{1b}[31m" });
        let text = serde_json::to_vec(&value).expect("JSON");
        for step in [1, 2, 3, 7, 1000] {
            let got = redacted(&text, step);
            assert_eq!((&got.text, got.is_truncated, got.is_lost), (&text, false, false));
        }
        let pairs = br#"["\ud83d\ude00", "\u00e4"]"#;
        assert_eq!(redacted(pairs, 1).text, pairs);
    }

    #[test]
    fn unpaired_surrogates_are_replaced() {
        let got = redacted(br#"["\ud83d", "\ude00x", "\ud83d\ud83d\ude00", "\ud83dy\ud83d\n", "\ud83d\u0041"]"#, 1);
        let value: Value = serde_json::from_slice(&got.text).expect("readable");
        assert_eq!(value, json!(["\u{fffd}", "\u{fffd}x", "\u{fffd}😀", "\u{fffd}y\u{fffd}\n", "\u{fffd}A"]));
    }

    #[test]
    fn a_long_string_is_truncated_between_characters() {
        for piece in ["x", "ä", "€", "😀", "\\u20ac", "\\ud83d\\ude00", "\\\\"] {
            for shift in [1, 2, 4] {
                let long = format!(
                    "{{\"k\":\"{}{}\",\"n\":1}}",
                    "s".repeat(shift),
                    piece.repeat(MAX_STRING / piece.len() + 10)
                );
                let got = redacted(long.as_bytes(), 1 << 16);
                let value: Value = serde_json::from_slice(&got.text).expect("readable");
                assert!(got.is_truncated && value["n"] == 1);
                assert!(got.text.len() < MAX_STRING + 50 && got.text.len() > MAX_STRING - 20, "{}", got.text.len());
            }
        }
    }

    #[test]
    fn many_strings_and_endless_messages_are_bounded() {
        let many = serde_json::to_vec(&vec!["x".repeat(MAX_STRING / 2); 200]).expect("JSON");
        let got = redacted(&many, 4096);
        assert!(got.is_truncated && got.text.len() < MAX_MESSAGE + 10_000);
        assert_eq!(serde_json::from_slice::<Vec<String>>(&got.text).expect("readable").len(), 200);
        let endless = vec![b'1'; MAX_BARE + 1];
        assert!(redacted(&endless, 4096).is_lost);
    }
}
