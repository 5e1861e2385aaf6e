//! Paths as text, also those that are not UTF-8.
//!
//! The API names files in JSON and in queries, which are text, but a name in Linux is any bytes. Each byte that is not
//! part of valid UTF-8 is a character of its own, U+EF80 to U+EFFF for the bytes 0x80 to 0xFF. These are private-use
//! characters, which other programs use for this purpose too. A name that contains such a character is written as the
//! bytes of the character, so that different names never have the same text.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The character of byte 0. Only bytes from 0x80 on have one.
const BASE: u32 = 0xef00;

/// Returns the byte that a character stands for.
fn byte_of(character: char) -> Option<u8> {
    u32::from(character).checked_sub(BASE).and_then(|byte| u8::try_from(byte).ok()).filter(|byte| !byte.is_ascii())
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    // Each of these numbers is a character.
    text.extend(bytes.iter().filter_map(|byte| char::from_u32(BASE + u32::from(*byte))));
}

/// Returns the text of a path or a name.
pub(crate) fn to_text(path: impl AsRef<Path>) -> String {
    let mut text = String::new();
    for chunk in path.as_ref().as_os_str().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match byte_of(character) {
                None => text.push(character),
                Some(_) => push_bytes(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_bytes(&mut text, chunk.invalid());
    }
    text
}

/// Returns the path of a text.
pub(crate) fn from_text(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match byte_of(character) {
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Some(byte) => bytes.push(byte),
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn text_of(bytes: &[u8]) -> String {
        to_text(OsStr::from_bytes(bytes))
    }

    #[test]
    fn names_that_are_utf_8_are_their_own_text() {
        for name in ["", "/", "a\nb", "ü\u{202e}☃", "a\\xff%FF", "\u{fffd}", "\u{ef7f}\u{f000}"] {
            assert_eq!((text_of(name.as_bytes()).as_str(), from_text(name).as_path()), (name, Path::new(name)));
        }
    }

    #[test]
    fn each_byte_that_is_not_utf_8_is_one_character() {
        assert_eq!(text_of(b"caf\xe9/\x80\xff"), "caf\u{efe9}/\u{ef80}\u{efff}");
        // The beginning of a character without its end.
        assert_eq!(text_of(b"\xe2\x98"), "\u{efe2}\u{ef98}");
    }

    #[test]
    fn every_text_leads_back_to_its_name() {
        let parts: [&[u8]; 7] = [b"a", b"\xff", b"\x80", "ü".as_bytes(), "\u{efff}".as_bytes(), b"\xee", b"\xbe\xbf"];
        for number in 0..7_usize.pow(4) {
            let name: Vec<u8> = (0..4).flat_map(|digit| parts[number / 7_usize.pow(digit) % 7].to_vec()).collect();
            assert_eq!(from_text(&text_of(&name)).as_os_str().as_bytes(), name);
        }
    }
}
