//! Names: parsed once, and behind that nobody checks again.

use std::fmt;

use crate::field::{FieldCode, InvalidValue};
use crate::ids::is_id_shaped;

/// A name that stands in paths: `^[A-Za-z0-9._-]{1,255}$`; of pools, profiles and extensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlugName(String);

impl SlugName {
    /// # Errors
    /// The rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        length(text)?;
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "may hold letters, digits, '.', '_' and '-' only"));
        }
        reserved(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name for people: trimmed, 1 to 255 characters, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelName(String);

impl LabelName {
    /// # Errors
    /// The rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let text = text.trim();
        length(text)?;
        if text.chars().any(char::is_control) {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold control characters"));
        }
        reserved(text)?;
        Ok(Self(text.to_owned()))
    }

    /// As [`parse`](Self::parse), for resources whose name stands in a path: of sessions, projects and credentials.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn parse_in_path(text: &str) -> Result<Self, InvalidValue> {
        if text.contains('/') {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold '/'"));
        }
        Self::parse(text)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn length(text: &str) -> Result<(), InvalidValue> {
    match text.chars().take(256).count() {
        0 => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 character")),
        1..=255 => Ok(()),
        _ => Err(InvalidValue::new(FieldCode::TooLong, "must have at most 255 characters")),
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
