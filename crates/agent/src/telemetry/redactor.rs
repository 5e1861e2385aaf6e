//! Cuts the strings of a JSON text while it arrives, so that whatever a page says fits into little memory.
//!
//! A page decides how long a message of the browser is: ten megabytes in a console line, an address of one. What is kept of a string
//! is its beginning; the text stays valid JSON. On the way, halves of surrogate pairs, which are no characters, are replaced: a page
//! can say them, and no reader takes them.

use memchr::memchr2;

/// Longest string that is kept, in bytes as JSON.
pub(super) const MAX_STRING: usize = 128 << 10;
/// Beyond this many bytes of one message no further string is kept.
const MAX_MESSAGE: usize = 2 << 20;
/// A message that is longer than this without its strings is let go.
const MAX_BARE: usize = 4 << 20;

/// A whole message.
#[derive(Debug, Default)]
pub(super) struct RedactedMessage {
    /// JSON.
    pub(super) text: Vec<u8>,
    /// Some string of it is not whole.
    pub(super) cut: bool,
    /// It had no end: `text` is no JSON.
    pub(super) lost: bool,
}

/// Where in the text the next byte lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    String,
}

/// Takes in one message, in any parts.
#[derive(Debug)]
pub(super) struct Redactor {
    message: RedactedMessage,
    place: Place,
    /// Where the string began that is being read.
    began: usize,
    /// The rest of that string is let go.
    skipping: bool,
    /// An escape that is not whole.
    escape: Vec<u8>,
    /// The first half of a surrogate pair whose other half may follow.
    high: Option<[u8; 6]>,
}

impl Default for Redactor {
    fn default() -> Self {
        let (message, escape, high) = Default::default();
        Self { message, place: Place::Outside, began: 0, skipping: false, escape, high }
    }
}

impl Redactor {
    /// The next bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.message.lost {
            if !self.escape.is_empty() {
                bytes = self.complete_escape(bytes);
                continue;
            }
            let end = match self.place {
                Place::Outside => memchr::memchr(b'"', bytes),
                Place::String => memchr2(b'"', b'\\', bytes),
            };
            let (plain, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.keep(plain);
            bytes = rest;
            match (self.place, bytes.first()) {
                (_, None) => {}
                (Place::Outside, _) => {
                    self.message.text.push(b'"');
                    self.place = Place::String;
                    self.began = self.message.text.len();
                    self.skipping = false;
                    bytes = &bytes[1..];
                }
                (Place::String, Some(b'"')) => {
                    self.end_pair();
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

    /// The message, which is at its end.
    pub(super) fn take(&mut self) -> RedactedMessage {
        std::mem::take(self).message
    }

    fn keep(&mut self, plain: &[u8]) {
        if plain.is_empty() {
            return;
        }
        if self.place == Place::Outside {
            if self.message.text.len() + plain.len() > MAX_BARE {
                self.message = RedactedMessage { lost: true, ..RedactedMessage::default() };
                return;
            }
            self.message.text.extend_from_slice(plain);
            return;
        }
        self.end_pair();
        let room = self.room();
        if plain.len() <= room {
            self.message.text.extend_from_slice(plain);
        } else {
            self.message.text.extend_from_slice(&plain[..room]);
            self.skip();
        }
    }

    /// How many more bytes of this string are kept.
    fn room(&self) -> usize {
        if self.skipping {
            return 0;
        }
        let of_string = MAX_STRING.saturating_sub(self.message.text.len() - self.began);
        of_string.min(MAX_MESSAGE.saturating_sub(self.message.text.len()))
    }

    fn skip(&mut self) {
        if !self.skipping {
            self.skipping = true;
            self.message.cut = true;
            drop_broken_end(&mut self.message.text, self.began);
        }
    }

    /// Reads on in an escape; gives back what comes after.
    fn complete_escape<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let whole = |escape: &[u8]| escape.len() == if escape.get(1) == Some(&b'u') { 6 } else { 2 };
        for (at, byte) in bytes.iter().enumerate() {
            self.escape.push(*byte);
            if whole(&self.escape) {
                let escape = std::mem::take(&mut self.escape);
                self.keep_escape(&escape);
                return &bytes[at + 1..];
            }
        }
        &[]
    }

    fn keep_escape(&mut self, escape: &[u8]) {
        let unit = std::str::from_utf8(escape.get(2..).unwrap_or_default());
        let unit = unit.ok().and_then(|digits| u16::from_str_radix(digits, 16).ok());
        match (unit, escape.try_into()) {
            (Some(0xd800..=0xdbff), Ok(high)) => {
                self.end_pair();
                self.high = Some(high);
            }
            (Some(0xdc00..=0xdfff), _) => match self.high.take() {
                Some(high) => self.keep_whole(&[&high, escape].concat()),
                None => self.keep_whole(b"\\ufffd"),
            },
            _ => {
                self.end_pair();
                self.keep_whole(escape);
            }
        }
    }

    /// A first half that no other half followed.
    fn end_pair(&mut self) {
        if self.high.take().is_some() {
            self.keep_whole(b"\\ufffd");
        }
    }

    fn keep_whole(&mut self, escape: &[u8]) {
        if escape.len() <= self.room() {
            self.message.text.extend_from_slice(escape);
        } else {
            self.skip();
        }
    }
}

/// Takes the bytes of a character away that is not whole.
fn drop_broken_end(text: &mut Vec<u8>, began: usize) {
    let tail = &text[began.max(text.len().saturating_sub(3))..];
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

    fn strained(text: &[u8], step: usize) -> RedactedMessage {
        let mut redactor = Redactor::default();
        text.chunks(step).for_each(|part| redactor.feed(part));
        redactor.take()
    }

    #[test]
    fn what_is_short_passes_as_it_is_in_whatever_parts_it_comes() {
        let value = json!({ "a\"b": ["\\", "\u{1f600}ä\n", 1.5, null, { "x": "" }], "ctrl": "\u{0}\u{1b}[31m" });
        let text = serde_json::to_vec(&value).expect("JSON");
        for step in [1, 2, 3, 7, 1000] {
            let got = strained(&text, step);
            assert_eq!((&got.text, got.cut, got.lost), (&text, false, false));
        }
        let pairs = br#"["\ud83d\ude00", "\u00e4"]"#;
        assert_eq!(strained(pairs, 1).text, pairs);
    }

    #[test]
    fn halves_of_pairs_are_replaced() {
        let got = strained(br#"["\ud83d", "\ude00x", "\ud83d\ud83d\ude00", "\ud83dy\ud83d\n", "\ud83d\u0041"]"#, 1);
        let value: Value = serde_json::from_slice(&got.text).expect("readable");
        assert_eq!(value, json!(["\u{fffd}", "\u{fffd}x", "\u{fffd}😀", "\u{fffd}y\u{fffd}\n", "\u{fffd}A"]));
    }

    #[test]
    fn of_a_long_string_the_beginning_is_stored_in_whole_characters() {
        for piece in ["x", "ä", "€", "😀", "\\u20ac", "\\ud83d\\ude00", "\\\\"] {
            for shift in [1, 2, 4] {
                let long = format!(
                    "{{\"k\":\"{}{}\",\"n\":1}}",
                    "s".repeat(shift),
                    piece.repeat(MAX_STRING / piece.len() + 10)
                );
                let got = strained(long.as_bytes(), 1 << 16);
                let value: Value = serde_json::from_slice(&got.text).expect("readable");
                assert!(got.cut && value["n"] == 1);
                assert!(got.text.len() < MAX_STRING + 50 && got.text.len() > MAX_STRING - 20, "{}", got.text.len());
            }
        }
    }

    #[test]
    fn a_message_of_many_strings_and_one_without_end_are_bounded() {
        let many = serde_json::to_vec(&vec!["x".repeat(MAX_STRING / 2); 200]).expect("JSON");
        let got = strained(&many, 4096);
        assert!(got.cut && got.text.len() < MAX_MESSAGE + 10_000);
        assert_eq!(serde_json::from_slice::<Vec<String>>(&got.text).expect("readable").len(), 200);
        let endless = vec![b'1'; MAX_BARE + 1];
        assert!(strained(&endless, 4096).lost);
    }
}
