//! The public web store: parses the URLs of its pages and its package format.

use std::fmt;

use crate::field::{FieldCode, InvalidValue};
use crate::pattern::visible;

/// An extension in the store: 32 letters from `a` to `p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreItem(String);

impl StoreItem {
    /// The pattern of the URLs of extensions.
    pub const PATTERN: &str = concat!(
        r"^[Hh][Tt][Tt][Pp][Ss]?://[Cc][Hh][Rr][Oo][Mm][Ee]([Ww][Ee][Bb][Ss][Tt][Oo][Rr][Ee])?",
        r"\.[Gg][Oo][Oo][Gg][Ll][Ee]\.[Cc][Oo][Mm]",
        concat!("(/", visible!(r"/?#\\"), "*)*/[a-p]{32}(/", visible!(r"?#\\"), "*)?([?#]", visible!(r"\\"), "*)?$")
    );
    /// The maximum length of a URL, in bytes.
    pub const MAX_URL: usize = 2048;
    const HOSTS: [&str; 2] = ["chromewebstore.google.com", "chrome.google.com"];

    /// Parses the URL of an extension's page in the store.
    ///
    /// # Errors
    /// `invalid_format`; `blocked` for other hosts, because arbitrary URLs must not be fetched.
    pub fn parse(url: &str) -> Result<Self, InvalidValue> {
        let bad = || {
            InvalidValue::new(FieldCode::InvalidFormat, "must be the address of an extension in the Chrome Web Store")
        };
        if url.len() > Self::MAX_URL || url.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(bad());
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
        if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
            return Err(bad());
        }
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if !Self::HOSTS.iter().any(|known| host.eq_ignore_ascii_case(known)) {
            let message = format!("must be at {} or {}", Self::HOSTS[0], Self::HOSTS[1]);
            return Err(InvalidValue::new(FieldCode::Blocked, message));
        }
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let is_item = |part: &&str| part.len() == 32 && part.bytes().all(|b| (b'a'..=b'p').contains(&b));
        path.split('/').find(is_item).map(|item| Self(item.to_owned())).ok_or_else(bad)
    }

    /// Returns the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The platform that an extension is packed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// Linux.
    #[default]
    Linux,
    /// Windows.
    Windows,
    /// macOS.
    Mac,
}

impl Platform {
    /// # Errors
    /// `not_allowed`.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "linux" => Ok(Self::Linux),
            "win" => Ok(Self::Windows),
            "mac" => Ok(Self::Mac),
            _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be linux, win or mac")),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linux => "linux",
            Self::Windows => "win",
            Self::Mac => "mac",
        })
    }
}

/// Returns the offset of the ZIP archive in a packed extension, from its first 16 bytes; `None` if the format is
/// unknown.
#[must_use]
pub fn crx_payload(head: &[u8; 16]) -> Option<u64> {
    let number = |at: usize| u64::from(u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    match (&head[..4], number(4)) {
        (b"PK\x03\x04", _) => Some(0),
        (b"Cr24", 3) => Some(12 + number(8)),
        (b"Cr24", 2) => Some(16 + number(8) + number(12)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: &str = "cjpalhdlnbpafiamejdnhcphjbkeiagm";

    #[test]
    fn an_extension_is_found_in_the_addresses_of_the_store_and_nowhere_else() {
        for good in [
            format!("https://chromewebstore.google.com/detail/ublock-origin/{ITEM}"),
            format!("https://chromewebstore.google.com/detail/{ITEM}?hl=de#x"),
            format!("https://chrome.google.com/webstore/detail/ublock-origin/{ITEM}/related"),
            format!("HTTPS://ChromeWebStore.Google.com/detail/{ITEM}"),
        ] {
            assert_eq!(StoreItem::parse(&good).expect(&good).as_str(), ITEM);
        }
        for (bad, code) in [
            (format!("https://example.com/detail/{ITEM}"), FieldCode::Blocked),
            (format!("https://chromewebstore.google.com@example.com/{ITEM}"), FieldCode::Blocked),
            (format!("https://chromewebstore.google.com:8443/{ITEM}"), FieldCode::Blocked),
            (format!("https://example.com#chromewebstore.google.com/{ITEM}"), FieldCode::Blocked),
            (format!("file://chromewebstore.google.com/{ITEM}"), FieldCode::InvalidFormat),
            ("https://chromewebstore.google.com/detail/x".to_owned(), FieldCode::InvalidFormat),
            (format!("https://chromewebstore.google.com/detail/{ITEM}q"), FieldCode::InvalidFormat),
            (format!("https://chromewebstore.google.com/?x={ITEM}"), FieldCode::InvalidFormat),
            (format!("https://chromewebstore.google.com\\@example.com/{ITEM}"), FieldCode::InvalidFormat),
            (ITEM.to_owned(), FieldCode::InvalidFormat),
        ] {
            assert_eq!(StoreItem::parse(&bad).expect_err(&bad).code, code, "{bad}");
        }
    }

    #[test]
    fn the_zip_of_a_packed_extension_begins_after_its_signatures() {
        let crx3 = [b"Cr24".as_slice(), &3_u32.to_le_bytes(), &593_u32.to_le_bytes(), &[0; 4]].concat();
        assert_eq!(crx_payload(crx3.as_slice().try_into().expect("16 bytes")), Some(605));
        let crx2 = [b"Cr24".as_slice(), &2_u32.to_le_bytes(), &294_u32.to_le_bytes(), &256_u32.to_le_bytes()].concat();
        assert_eq!(crx_payload(crx2.as_slice().try_into().expect("16 bytes")), Some(566));
        assert_eq!(crx_payload(b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(crx_payload(b"<!doctype html>\n"), None);
        assert_eq!(crx_payload(b"Cr24\x09\0\0\0\0\0\0\0\0\0\0\0"), None);
    }
}
