//! The inputs of callers, unchecked, and their checks.

use serde_json::value::RawValue;

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};

/// Bytes of a payload and of an output.
pub const MAX_JSON: usize = 1 << 20;
/// Characters of a name that is looked for; no longer one is registered.
const MAX_NAME: usize = 255;
/// Of who says none, and of who waits for the end.
const DEFAULT_TIMEOUT_SECONDS: u32 = 900;

/// An invocation as asked for.
#[derive(Clone, Debug, Default)]
pub struct Invoke {
    /// Required.
    pub app_name: Option<String>,
    /// Required.
    pub action_name: Option<String>,
    /// Required.
    pub version: Option<String>,
    /// JSON text.
    pub payload: Option<String>,
    /// Whether its caller does not wait; default: false.
    pub no_wait: Option<bool>,
    /// Of one whose caller does not wait; 10 to 3600, default: 900.
    pub async_timeout_seconds: Option<i64>,
}

/// An invocation as asked for, checked.
pub(super) struct NewInvocation {
    pub(super) app: String,
    pub(super) action: String,
    pub(super) version: String,
    pub(super) payload: Option<String>,
    pub(super) timeout_seconds: u32,
}

impl Invoke {
    pub(super) fn parse(self) -> Result<NewInvocation, InvalidInput> {
        let mut fields = Fields::new();
        let app = fields.take_required("app_name", self.app_name, name);
        let action = fields.take_required("action_name", self.action_name, name);
        let version = fields.take_required("version", self.version, name);
        let payload = fields.take_optional("payload", self.payload, json);
        // Of no meaning to a caller that waits, and so not looked at either.
        let timeout = self.async_timeout_seconds.filter(|_| self.no_wait == Some(true));
        let timeout = fields.take_optional("async_timeout_seconds", timeout, |n| within(n, 10, 3600));
        fields.finish()?;
        let (Some(app), Some(action), Some(version)) = (app, action, version) else {
            unreachable!("a refused field is an error")
        };
        let timeout_seconds = timeout.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        Ok(NewInvocation { app, action, version, payload, timeout_seconds })
    }
}

/// How a caller moves an invocation.
#[derive(Clone, Debug, Default)]
pub struct UpdateInvocation {
    /// Required: `succeeded` or `failed`.
    pub status: Option<String>,
    /// JSON text.
    pub output: Option<String>,
}

/// A move as asked for, checked.
pub(super) struct Move {
    pub(super) succeeded: bool,
    pub(super) output: Option<String>,
}

impl UpdateInvocation {
    pub(super) fn parse(self) -> Result<Move, InvalidInput> {
        let mut fields = Fields::new();
        let succeeded = fields.take_required("status", self.status.as_deref(), |text| match text {
            "succeeded" => Ok(true),
            "failed" => Ok(false),
            _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be succeeded or failed")),
        });
        let output = fields.take_optional("output", self.output, json);
        fields.finish()?;
        let Some(succeeded) = succeeded else { unreachable!("a refused field is an error") };
        Ok(Move { succeeded, output })
    }
}

fn name(text: String) -> Result<String, InvalidValue> {
    match text.chars().take(MAX_NAME + 1).count() {
        0 => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 character")),
        1..=MAX_NAME if text.chars().any(char::is_control) => {
            Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold control characters"))
        }
        1..=MAX_NAME => Ok(text),
        _ => Err(InvalidValue::new(FieldCode::TooLong, "must have at most 255 characters")),
    }
}

/// JSON text of at most 1 MiB.
///
/// # Errors
/// `too_long`; `invalid_format`.
pub(super) fn json(text: String) -> Result<String, InvalidValue> {
    if text.len() > MAX_JSON {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_JSON} bytes")));
    }
    // Read without being kept: its numbers and the order of its members are the caller's own.
    serde_json::from_str::<&RawValue>(&text)
        .map(|_| ())
        .map_err(|error| InvalidValue::new(FieldCode::InvalidFormat, format!("must be JSON text: {error}")))?;
    Ok(text)
}
