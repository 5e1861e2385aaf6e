//! Executors: each runs its scripts one after the other, beside the other ones.

use time::OffsetDateTime;

use crate::field::{FieldCode, InvalidValue, check_length};

/// The name of an executor: `^[A-Za-z0-9._-]{1,64}$`, except `.` and `..`. `default` is the executor of scripts that
/// name none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExecutorName(Option<String>);

impl ExecutorName {
    /// The pattern of names.
    pub const PATTERN: &str = r"^(\.{0,2}[A-Za-z0-9_-]|\.{3})[A-Za-z0-9._-]*$";
    /// The name of the default executor.
    const DEFAULT: &str = "default";
    /// The maximum number of characters.
    pub const MAX_LENGTH: usize = 64;

    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check_length(text, Self::MAX_LENGTH)?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !text.bytes().all(is_allowed) || matches!(text, "." | "..") {
            let message = "may hold letters, digits, '.', '_' and '-' only, and may not be '.' or '..'";
            return Err(InvalidValue::new(FieldCode::InvalidFormat, message));
        }
        Ok(Self((text != Self::DEFAULT).then(|| text.to_owned())))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or(Self::DEFAULT)
    }

    /// Returns the name of a named executor; `None` for the default one.
    #[must_use]
    pub fn named(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// An executor of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executor {
    /// Its name.
    pub name: ExecutorName,
    /// Whether a script runs on it.
    pub is_busy: bool,
    /// When it was created.
    pub created_at: OffsetDateTime,
    /// When its last script started; `None` before the first one.
    pub last_used_at: Option<OffsetDateTime>,
    /// The target of its tab, once it has one. The default executor has none.
    pub target_id: Option<String>,
    /// The URL of its tab while the tab is open.
    pub url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_default_means_the_executor_of_scripts_that_name_none() {
        assert_eq!(ExecutorName::parse("default"), Ok(ExecutorName::default()));
        assert_eq!((ExecutorName::default().as_str(), ExecutorName::default().named()), ("default", None));
        let named = ExecutorName::parse("tab-1").expect("a name");
        assert_eq!((named.as_str(), named.named()), ("tab-1", Some("tab-1")));
    }

    #[test]
    fn names_of_executors_keep_to_their_alphabet_and_length() {
        for text in ["a", "A.b_c-9", &"x".repeat(64), "01k9zk0000000000000000000a"] {
            assert_eq!(ExecutorName::parse(text).expect(text).as_str(), text);
        }
        for (text, code) in [
            ("", FieldCode::TooShort),
            (&*"x".repeat(65), FieldCode::TooLong),
            ("a b", FieldCode::InvalidFormat),
            ("a/b", FieldCode::InvalidFormat),
            ("..", FieldCode::InvalidFormat),
        ] {
            assert_eq!(ExecutorName::parse(text).expect_err(text).code, code, "{text}");
        }
    }
}
