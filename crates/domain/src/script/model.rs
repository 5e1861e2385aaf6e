//! The script and its result.

use std::time::Duration;

use super::ExecutorName;
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
    /// The executor that runs it.
    pub executor: ExecutorName,
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
    /// The tab of the script's `page`; `None` if the script failed before it had one.
    pub tab: Option<ScriptTab>,
}

/// The tab of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptTab {
    /// The target of the page in the browser's debugging protocol.
    pub target_id: String,
    /// Whether the tab was opened for this script.
    pub created: bool,
}

impl NewScript {
    /// Checks a script: 1 byte to 1 MiB of code, a timeout of 1 to 600 seconds, default 60, and the executor's name.
    ///
    /// # Errors
    /// Returns every field that is out of bounds.
    pub fn parse(
        code: Option<String>,
        timeout_sec: Option<i64>,
        executor: Option<&str>,
        client_timeout: Option<Duration>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let code = fields.take_required("code", code, |code| match code.len() {
            0 => Err(InvalidValue::new(FieldCode::TooShort, "must not be empty")),
            _ => code_within_bounds(code),
        });
        let timeout = fields.take("timeout_sec", timeout(timeout_sec));
        let executor = fields.take_optional("executor", executor, ExecutorName::parse);
        fields.finish_with(|| {
            Some(Self {
                code: code?,
                timeout: timeout?,
                within: client_timeout,
                executor: executor.unwrap_or_default(),
            })
        })
    }
}

/// The longest code, in bytes.
pub const MAX_CODE: usize = 1 << 20;
const TIMEOUT_SECONDS: i64 = 60;
/// The longest timeout, in seconds.
pub const MAX_TIMEOUT_SECONDS: u32 = 600;

/// Checks that code has at most 1 MiB.
pub(super) fn code_within_bounds(code: String) -> Result<String, InvalidValue> {
    check_max_bytes(&code, MAX_CODE).map(|()| code)
}

/// Checks a timeout of code: 1 to 600 seconds, default 60.
pub(super) fn timeout(timeout_sec: Option<i64>) -> Result<Duration, InvalidValue> {
    let seconds = within(timeout_sec.unwrap_or(TIMEOUT_SECONDS), 1, MAX_TIMEOUT_SECONDS)?;
    Ok(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Option<String>, timeout_sec: Option<i64>) -> Vec<(String, FieldCode)> {
        let refused = NewScript::parse(code, timeout_sec, None, None).expect_err("it is refused");
        refused.fields().iter().map(|error| (error.field.clone(), error.code)).collect()
    }

    #[test]
    fn a_script_may_run_for_a_minute_unless_it_says_otherwise() {
        let (code, executor) = ("return 1".to_owned(), ExecutorName::default());
        let script = NewScript { code, timeout: Duration::from_secs(60), within: None, executor };
        assert_eq!(NewScript::parse(Some("return 1".into()), None, None, None), Ok(script));
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
            assert!(NewScript::parse(Some(code), Some(seconds), None, None).is_ok());
        }
    }
}
