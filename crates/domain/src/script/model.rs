//! The script and its result.

use std::time::Duration;

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, check_max_bytes, within};

/// A script to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewScript {
    /// The body of an asynchronous function of `page`, `context` and `browser`, in TypeScript or JavaScript.
    pub code: String,
    /// The timeout of the script itself.
    pub timeout: Duration,
    /// The timeout of the caller, if known. It includes the wait for earlier scripts.
    pub within: Option<Duration>,
}

/// The result of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptEnd {
    /// Whether the script ended without an error and its return value could be converted to JSON.
    pub success: bool,
    /// The return value as JSON text; `None` if there is none.
    pub result: Option<String>,
    /// The reason of a failure: message and stack, with the lines and columns of the script.
    pub error: Option<String>,
    /// The beginning of the standard output, at most 1 MiB.
    pub stdout: String,
    /// The beginning of the standard error, at most 1 MiB.
    pub stderr: String,
}

impl NewScript {
    /// The maximum length of a script, in bytes.
    pub const MAX_CODE: usize = 1 << 20;
    const TIMEOUT_SECONDS: i64 = 60;
    /// The longest timeout of a script, in seconds.
    pub const MAX_TIMEOUT_SECONDS: u32 = 600;

    /// Checks a script: 1 byte to 1 MiB of code, a timeout of 1 to 600 seconds, default 60.
    ///
    /// # Errors
    /// Returns every field that is out of bounds.
    pub fn parse(
        code: Option<String>,
        timeout_sec: Option<i64>,
        client_timeout: Option<Duration>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let code = fields.take_required("code", code, |code| match code.len() {
            0 => Err(InvalidValue::new(FieldCode::TooShort, "must not be empty")),
            _ => check_max_bytes(&code, Self::MAX_CODE).map(|()| code),
        });
        let seconds = within(timeout_sec.unwrap_or(Self::TIMEOUT_SECONDS), 1, Self::MAX_TIMEOUT_SECONDS);
        let seconds = fields.take("timeout_sec", seconds);
        fields.finish_with(|| {
            Some(Self { code: code?, timeout: Duration::from_secs(seconds?.into()), within: client_timeout })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Option<String>, timeout_sec: Option<i64>) -> Vec<(String, FieldCode)> {
        let refused = NewScript::parse(code, timeout_sec, None).expect_err("it is refused");
        refused.fields().iter().map(|error| (error.field.clone(), error.code)).collect()
    }

    #[test]
    fn a_script_may_run_for_a_minute_unless_it_says_otherwise() {
        let script = NewScript { code: "return 1".into(), timeout: Duration::from_secs(60), within: None };
        assert_eq!(NewScript::parse(Some("return 1".into()), None, None), Ok(script));
    }

    #[test]
    fn every_field_out_of_bounds_is_named() {
        let reported = |field: &str, code| (field.to_owned(), code);
        assert_eq!(
            refused(None, Some(0)),
            [reported("code", FieldCode::Required), reported("timeout_sec", FieldCode::OutOfRange)]
        );
        assert_eq!(
            refused(Some(String::new()), Some(601)),
            [reported("code", FieldCode::TooShort), reported("timeout_sec", FieldCode::OutOfRange)]
        );
        assert_eq!(refused(Some("é".repeat((1 << 19) + 1)), None), [reported("code", FieldCode::TooLong)]);
    }

    #[test]
    fn the_bounds_themselves_are_allowed() {
        for (code, seconds) in [("x".to_owned(), 1), ("x".repeat(1 << 20), 600)] {
            assert!(NewScript::parse(Some(code), Some(seconds), None).is_ok());
        }
    }
}
