//! Bounds of JSON text from programs that are not trusted: clients, browsers and WebDriver servers.
//!
//! A parsed value takes up to a hundred times the memory of its text, so the number of values is bounded, not only the
//! length of the text. Values that are only passed on stay text.

use serde_json::Value;

/// The maximum number of values of a text, including arrays and objects.
pub const MAX_VALUES: usize = 50_000;

/// A text from a program that is not trusted was refused.
#[derive(Debug, thiserror::Error)]
pub enum UntrustedJsonError {
    /// The text has too many values.
    #[error("the JSON has more than {limit} values")]
    TooManyValues {
        /// The limit.
        limit: usize,
    },
    /// The text is not JSON of the expected form, or nested too deeply.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
}

/// Parses a text of at most [`MAX_VALUES`] values.
///
/// # Errors
/// [`UntrustedJsonError`]; the values are counted before anything is parsed.
pub fn parse(text: &[u8]) -> Result<Value, UntrustedJsonError> {
    if !has_at_most(MAX_VALUES, text) {
        return Err(UntrustedJsonError::TooManyValues { limit: MAX_VALUES });
    }
    Ok(serde_json::from_slice(text)?)
}

/// Returns whether a text has at most `limit` values, without parsing it. An empty array or object counts as two.
#[must_use]
pub fn has_at_most(limit: usize, text: &[u8]) -> bool {
    let is_separator = |byte: &&u8| matches!(byte, b',' | b'[' | b'{');
    // Most texts have few separators even if those inside strings count.
    if text.iter().filter(is_separator).count() < limit {
        return true;
    }
    let (mut values, mut is_in_string, mut is_escaped) = (1_usize, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            byte if !is_in_string && is_separator(&byte) => values += 1,
            _ => {}
        }
        if values > limit {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Value, UntrustedJsonError> {
        parse(text.as_bytes())
    }

    #[test]
    fn a_text_of_too_many_values_is_refused() {
        for value in ["0", "[]", "{}", r#"{"":0}"#] {
            let many = format!("[{}0]", format!("{value},").repeat(MAX_VALUES));
            assert!(matches!(parsed(&many), Err(UntrustedJsonError::TooManyValues { limit: MAX_VALUES })), "{value}");
        }
        let deep = "[".repeat(MAX_VALUES + 1);
        assert!(matches!(parsed(&deep), Err(UntrustedJsonError::TooManyValues { .. })));
        let most = format!("[{}0]", "0,".repeat(MAX_VALUES - 2));
        assert_eq!(parsed(&most).expect("accepted").as_array().map(Vec::len), Some(MAX_VALUES - 1));
    }

    #[test]
    fn separators_in_strings_are_no_values() {
        let text = r#"\"[{,\\"#.repeat(MAX_VALUES);
        let list = format!(r#"{{"a":"{text}","b":["{text}"]}}"#);
        assert!(parsed(&list).is_ok());
        let many = format!(r#"["{text}",{}0]"#, "0,".repeat(MAX_VALUES));
        assert!(parsed(&many).is_err());
    }

    #[test]
    fn a_deep_text_is_refused_by_the_parser() {
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        assert!(matches!(parsed(&deep), Err(UntrustedJsonError::Form(_))));
    }
}
