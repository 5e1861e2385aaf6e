//! The script and its result.

use std::time::Duration;

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};

/// A script as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecuteScript {
    /// The body of an asynchronous function of `page`, `context` and `browser`, in TypeScript or JavaScript; 1 byte to 1 MiB.
    pub code: Option<String>,
    /// How long it may run, in seconds, 1 to 600.
    pub timeout_sec: Option<i64>,
    /// How long the caller waits for the answer, where that is known.
    pub client_timeout: Option<Duration>,
}

/// A script to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewScript {
    /// Its code.
    pub code: String,
    /// How long it may run.
    pub timeout: Duration,
    /// How long everything may take, with the wait for its turn.
    pub within: Option<Duration>,
}

/// How a script ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptEnd {
    /// Whether it came to its end, and what it returned could be given back.
    pub success: bool,
    /// What it returned, as the text of one JSON value; `None` for nothing.
    pub result: Option<String>,
    /// Why it did not succeed: message and stack, with the lines and columns of its own code.
    pub error: Option<String>,
    /// The beginning of what it printed, at most 1 MiB.
    pub stdout: String,
    /// The beginning of what it complained, at most 1 MiB.
    pub stderr: String,
}

impl ExecuteScript {
    const MAX_CODE: usize = 1 << 20;
    const TIMEOUT_SECONDS: i64 = 60;
    const MAX_TIMEOUT_SECONDS: u32 = 600;

    /// The script to run.
    ///
    /// # Errors
    /// Every field that leaves its bounds.
    pub fn parse(self) -> Result<NewScript, InvalidInput> {
        let mut fields = Fields::new();
        let code = fields.take_required("code", self.code, |code| match code.len() {
            0 => Err(InvalidValue::new(FieldCode::TooShort, "must not be empty")),
            length if length > Self::MAX_CODE => {
                Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {} bytes", Self::MAX_CODE)))
            }
            _ => Ok(code),
        });
        let seconds = within(self.timeout_sec.unwrap_or(Self::TIMEOUT_SECONDS), 1, Self::MAX_TIMEOUT_SECONDS);
        let seconds = fields.take("timeout_sec", seconds);
        fields.finish()?;
        let (Some(code), Some(seconds)) = (code, seconds) else { unreachable!("refused fields are errors") };
        Ok(NewScript { code, timeout: Duration::from_secs(seconds.into()), within: self.client_timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Option<String>, timeout_sec: Option<i64>) -> Vec<(String, FieldCode)> {
        let refused = ExecuteScript { code, timeout_sec, client_timeout: None }.parse().expect_err("it is refused");
        refused.fields().iter().map(|error| (error.field.clone(), error.code)).collect()
    }

    #[test]
    fn a_script_may_run_for_a_minute_unless_it_says_otherwise() {
        let wish = ExecuteScript { code: Some("return 1".into()), ..ExecuteScript::default() };
        let script = NewScript { code: "return 1".into(), timeout: Duration::from_secs(60), within: None };
        assert_eq!(wish.parse(), Ok(script));
    }

    #[test]
    fn every_field_that_leaves_its_bounds_is_told() {
        let told = |field: &str, code| (field.to_owned(), code);
        assert_eq!(
            refused(None, Some(0)),
            [told("code", FieldCode::Required), told("timeout_sec", FieldCode::OutOfRange)]
        );
        assert_eq!(
            refused(Some(String::new()), Some(601)),
            [told("code", FieldCode::TooShort), told("timeout_sec", FieldCode::OutOfRange)]
        );
        assert_eq!(refused(Some("é".repeat((1 << 19) + 1)), None), [told("code", FieldCode::TooLong)]);
    }

    #[test]
    fn the_bounds_themselves_are_allowed() {
        for (code, seconds) in [("x".to_owned(), 1), ("x".repeat(1 << 20), 600)] {
            let wish = ExecuteScript { code: Some(code), timeout_sec: Some(seconds), client_timeout: None };
            assert!(wish.parse().is_ok());
        }
    }
}
