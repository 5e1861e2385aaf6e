//! Absolute URLs of the web in requests.

use url::Url;

use crate::pattern::{plain, trimmed};

/// The pattern of the texts of which [`read`] makes a URL of `http` or `https`. It accepts other texts too.
pub const PATTERN: &str = trimmed!("[Hh][Tt][Tt][Pp][Ss]?:", plain!(""), "+");
/// The same, or nothing but white space.
pub const PATTERN_OR_NONE: &str = trimmed!("([Hh][Tt][Tt][Pp][Ss]?:", plain!(""), "+)?");

/// Reads an absolute URL as browsers do, without the white space around it. A text with control characters is none,
/// although browsers ignore some of them.
pub(crate) fn read(text: &str) -> Option<Url> {
    let text = text.trim();
    if text.chars().any(char::is_control) { None } else { Url::parse(text).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_without_the_white_space_around_it() {
        let read = |text| read(text).map(String::from);
        assert_eq!(read("\n\u{a0}HTTP://A.example:65535\t").as_deref(), Some("http://a.example:65535/"));
        for text in ["", "a.example", "http://a\n.example", "ht\ttp://a.example", "http://a.example/\0"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
