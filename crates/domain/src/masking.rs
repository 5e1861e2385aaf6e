//! Masks secrets of this service in texts that are logged, recorded or repeated in an error: API keys, session tokens,
//! connect tokens, and the codes and cookies of hosted pages, wherever they stand.
//!
//! All of them end in 32 random or signed bytes as base64url, which is a run of 43 letters, digits, `-` and `_`. A token
//! without its signature opens nothing.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// What a secret is replaced by.
const MASK: &str = "…";
/// The length of 32 bytes as base64url.
const SECRET_CHARS: usize = 43;
/// The beginning of an API key, and its length up to the secret: `csk_`, an id and `_`.
const KEY_PREFIX: &str = "csk_";
const KEY_ID_CHARS: usize = KEY_PREFIX.len() + 26 + 1;
/// How often a text may be percent-encoded.
const MAX_ENCODINGS: usize = 3;

/// Returns the text with every secret replaced by `…`. The id of an API key stays. A secret that is percent-encoded, even
/// repeatedly, is found too; its word is then returned decoded, without control characters.
#[must_use]
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    if text.len() < SECRET_CHARS {
        return text.into();
    }
    let words: Vec<_> = text.split_inclusive(char::is_whitespace).map(mask_word).collect();
    if words.iter().all(|word| matches!(word, Cow::Borrowed(_))) { text.into() } else { words.concat().into() }
}

fn mask_word(word: &str) -> Cow<'_, str> {
    let plain = masked(word);
    if !plain.contains('%') {
        return plain;
    }
    let body = plain.trim_end();
    let mut decoded = body.to_owned();
    for _ in 0..MAX_ENCODINGS {
        decoded = percent_decode_str(&decoded).decode_utf8_lossy().into_owned();
        if let Cow::Owned(hidden) = masked(&decoded) {
            let hidden = mask_word(&hidden).replace(char::is_control, " ");
            return format!("{hidden}{}", &plain[body.len()..]).into();
        }
    }
    plain
}

fn masked(text: &str) -> Cow<'_, str> {
    let (mut clean, mut copied) = (String::new(), 0);
    for (start, run) in runs(text) {
        if let Some(shown) = shown_part(run) {
            clean.push_str(&text[copied..start]);
            clean.push_str(shown);
            clean.push_str(MASK);
            copied = start + run.len();
        }
    }
    if copied == 0 {
        return text.into();
    }
    clean.push_str(&text[copied..]);
    clean.into()
}

/// Returns the runs of characters of base64url that are long enough to hold a secret, with their positions.
fn runs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).filter_map(move |run| {
        let start = at + text[at..].find(run).unwrap_or_default();
        at = start + run.len();
        (run.len() >= SECRET_CHARS.min(KEY_ID_CHARS)).then_some((start, run))
    })
}

/// Returns what may be shown of a run that is a secret; `None` if it is none.
fn shown_part(run: &str) -> Option<&str> {
    if let Some(at) = run.find(KEY_PREFIX) {
        let end = at + KEY_ID_CHARS;
        return (run.len() > end).then(|| &run[..end]);
    }
    let has = |of: fn(&char) -> bool| run.chars().any(|c| of(&c));
    let is_mixed = has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase);
    // A longer run is a secret with something before or after it. Names of that length rarely have all three.
    let is_secret = match run.len() {
        SECRET_CHARS => is_mixed,
        length => length > SECRET_CHARS && is_mixed && has(char::is_ascii_digit),
    };
    is_secret.then_some("")
}

#[cfg(test)]
mod tests {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

    use super::*;

    const SECRET: &str = "q83vEjRWeJq83vEjRWeJq83vEjRWeJq83vEjRWeJq80";
    const KEY_ID: &str = "csk_01arz3ndektsv4rrffq69g5fav_";

    #[test]
    fn a_secret_is_masked_wherever_it_stands() {
        let key = format!("{KEY_ID}{SECRET}");
        let token = format!("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIwMSJ9.{SECRET}");
        let connect = format!("connect.01arz3ndektsv4rrffq69g5fav.1.{SECRET}");
        for secret in [key.as_str(), &token, &connect, SECRET] {
            for place in ["/wd/hub//S/session", "/connect/S", "/vm/a/cdp?jwt=S&x=1", "/login/a/S", "no session S", "S"]
            {
                let text = place.replace('S', secret);
                let shown = mask_secrets(&text);
                assert!(!shown.contains(SECRET) && shown.contains(MASK), "{shown}");
            }
        }
        assert_eq!(mask_secrets(&format!("a {key} b")), format!("a {KEY_ID}… b"));
        assert_eq!(mask_secrets(&format!("x{key}y {key}")), format!("x{KEY_ID}… {KEY_ID}…"));
    }

    #[test]
    fn a_secret_that_is_percent_encoded_is_masked() {
        let mut text = format!("/vm/a/cdp?jwt={KEY_ID}{SECRET}");
        for _ in 0..MAX_ENCODINGS {
            text = utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string();
            let shown = mask_secrets(&text);
            assert!(!shown.contains(&SECRET[1..]) && shown.contains(MASK), "{shown}");
        }
        let inside = format!("/connect/{}", SECRET.replace('R', "%52"));
        assert_eq!(mask_secrets(&inside), "/connect/…");
        assert_eq!(mask_secrets(&format!("50%25 {inside}%0A\n")), "50%25 /connect/… \n");
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in [
            "/browsers/01arz3ndektsv4rrffq69g5fav/telemetry/events",
            "csk_01arz3ndektsv4rrffq69g5fav_****abcd",
            "csk_01arz3ndektsv4rrffq69g5fav_",
            "/a%20b/%C3%A4/100%",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "a-very-long-name-of-a-pool-in-lower-case-only",
            "Prüfung-Äpfel-ünd-Birnen-Äpfel-ünd-Birnen-Äpfel",
        ] {
            assert_eq!(mask_secrets(text), text);
        }
    }
}
