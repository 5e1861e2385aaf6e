//! The REPL: code whose variables persist between calls.

use std::time::Duration;

use super::model::{code_within_bounds, timeout};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue};

/// Code for the REPL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvaluation {
    /// TypeScript or JavaScript.
    pub code: String,
    /// Whether the variables of earlier calls are discarded before.
    pub reset: bool,
    /// The timeout of the code itself.
    pub timeout: Duration,
    /// The timeout of the caller, if known. It includes the wait for earlier calls.
    pub within: Option<Duration>,
}

impl NewEvaluation {
    /// Checks code: at most 1 MiB, empty only with `reset`; a timeout of 1 to 600 seconds, default 60.
    ///
    /// # Errors
    /// Returns every field that is out of bounds.
    pub fn parse(
        code: Option<String>,
        reset: Option<bool>,
        timeout_sec: Option<i64>,
        client_timeout: Option<Duration>,
    ) -> Result<Self, InvalidInput> {
        let reset = reset.unwrap_or(false);
        let mut fields = Fields::new();
        let code = fields.take_required("code", code, |code| match code.len() {
            0 if !reset => Err(InvalidValue::new(FieldCode::TooShort, "must not be empty without a reset")),
            _ => code_within_bounds(code),
        });
        let timeout = fields.take("timeout_sec", timeout(timeout_sec));
        fields.finish_with(|| Some(Self { code: code?, reset, timeout: timeout?, within: client_timeout }))
    }
}

/// The result of code in the REPL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// The process that holds the variables. Another id means that the variables of earlier calls are gone.
    pub repl_id: String,
    /// Whether the code ended without an error.
    pub success: bool,
    /// The output, in order.
    pub content: Vec<ReplContent>,
    /// Whether a part of the output is missing.
    pub is_content_truncated: bool,
    /// The time that the code took.
    pub duration: Duration,
    /// The message of the error.
    pub error: Option<String>,
    /// The stack of the error, with the lines and columns of the code.
    pub stack: Option<String>,
    /// Whether the process has ended with this call, and the variables with it.
    pub is_terminated: bool,
}

/// A part of the output of the REPL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplContent {
    /// A text.
    Text {
        /// What wrote it.
        channel: ReplChannel,
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its bytes in base64.
        data_b64: String,
        /// Its media type.
        mime_type: String,
    },
}

/// What wrote a text of the REPL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplChannel {
    /// `repl.write`.
    Write,
    /// The console and the standard output.
    Stdout,
    /// The console's errors and the standard error.
    Stderr,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Option<&str>, reset: bool, timeout_sec: i64) -> Vec<(String, FieldCode)> {
        let refused = NewEvaluation::parse(code.map(str::to_owned), Some(reset), Some(timeout_sec), None);
        refused.expect_err("it is refused").fields().iter().map(|error| (error.field.clone(), error.code)).collect()
    }

    #[test]
    fn code_may_be_empty_only_with_a_reset() {
        let reset = NewEvaluation::parse(Some(String::new()), Some(true), None, None).expect("a reset");
        assert_eq!((reset.reset, reset.timeout), (true, Duration::from_secs(60)));
        assert_eq!(refused(Some(""), false, 1), [("code".to_owned(), FieldCode::TooShort)]);
        assert_eq!(refused(None, true, 1), [("code".to_owned(), FieldCode::Required)]);
    }

    #[test]
    fn every_field_out_of_bounds_is_named() {
        let long = "x".repeat((1 << 20) + 1);
        let expected = [("code".to_owned(), FieldCode::TooLong), ("timeout_sec".to_owned(), FieldCode::OutOfRange)];
        assert_eq!(refused(Some(&long), false, 601), expected);
    }
}
