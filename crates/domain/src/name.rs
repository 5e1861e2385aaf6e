//! The names of resources. A name is checked once, when it is parsed.

use std::fmt;

use crate::field::{FieldCode, InvalidValue, check_length, check_no_control_characters};
use crate::ids::is_id_shaped;
use crate::pattern::{label, trimmed};

/// The maximum number of characters of a name.
pub const MAX_LENGTH: usize = 255;

/// A name of a pool, a profile or an extension, which is part of paths: `^[A-Za-z0-9._-]{1,255}$`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlugName(String);

impl SlugName {
    /// The pattern of names. It also accepts reserved ones: `.`, `..` and texts with the shape of an id.
    pub const PATTERN: &str = "^[A-Za-z0-9._-]{1,255}$";

    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check_length(text, MAX_LENGTH)?;
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "may hold letters, digits, '.', '_' and '-' only"));
        }
        reserved(text)?;
        Ok(Self(text.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name for people: trimmed, 1 to 255 characters, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelName(String);

impl LabelName {
    /// The pattern of names. It also accepts reserved ones: `.`, `..` and texts with the shape of an id.
    pub const PATTERN: &str = trimmed!(label!(""));
    /// The pattern of names that are part of paths.
    pub const PATTERN_IN_PATH: &str = trimmed!(label!("/"));

    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let text = text.trim();
        check_length(text, MAX_LENGTH)?;
        check_no_control_characters(text)?;
        reserved(text)?;
        Ok(Self(text.to_owned()))
    }

    /// Like [`parse`](Self::parse), but refuses `/`, for resources whose name is part of paths.
    ///
    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse_in_path(text: &str) -> Result<Self, InvalidValue> {
        if text.contains('/') {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold '/'"));
        }
        Self::parse(text)
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn reserved(text: &str) -> Result<(), InvalidValue> {
    if text == "." || text == ".." {
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not be '.' or '..'"));
    }
    if is_id_shaped(text) {
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not have the shape of an identifier"));
    }
    Ok(())
}

impl fmt::Display for SlugName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for LabelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slug_names_keep_to_their_alphabet() {
        for text in ["a", "A.b_c-9", &"x".repeat(255)] {
            assert_eq!(SlugName::parse(text).expect(text).as_str(), text);
        }
        for (text, code) in [
            ("", FieldCode::TooShort),
            (&*"x".repeat(256), FieldCode::TooLong),
            ("a b", FieldCode::InvalidFormat),
            ("ä", FieldCode::InvalidFormat),
            (".", FieldCode::InvalidFormat),
            ("..", FieldCode::InvalidFormat),
            ("01k9zk0000000000000000000a", FieldCode::InvalidFormat),
        ] {
            assert_eq!(SlugName::parse(text).expect_err(text).code, code, "{text}");
        }
    }

    #[test]
    fn label_names_are_trimmed_and_hold_no_control_characters() {
        assert_eq!(LabelName::parse("  Über 1/2 ").expect("a name").as_str(), "Über 1/2");
        for text in ["a\0b", "a\nb", "\u{7f}x"] {
            assert_eq!(LabelName::parse(text).expect_err(text).code, FieldCode::InvalidFormat);
        }
        assert_eq!(LabelName::parse("   ").expect_err("blank").code, FieldCode::TooShort);
        assert_eq!(LabelName::parse(&"n".repeat(10_240)).expect_err("long").code, FieldCode::TooLong);
        assert_eq!(LabelName::parse_in_path("a/b").expect_err("slash").code, FieldCode::InvalidFormat);
    }
}
