//! Requests for invocations, and their checks.

use serde_json::value::RawValue;

use super::InvocationEvent;
use crate::field::{
    FieldCode, Fields, InvalidInput, InvalidValue, check_length, check_max_bytes, check_no_control_characters, within,
};

/// The maximum number of bytes of a payload and of an output.
pub const MAX_JSON: usize = 1 << 20;
/// The maximum number of characters of a name to look up; registered names are not longer.
pub const MAX_NAME: usize = 255;
/// The shortest timeout of an invocation, in seconds.
pub const MIN_TIMEOUT_SECONDS: u32 = 10;
/// The longest timeout of an invocation, in seconds.
pub const MAX_TIMEOUT_SECONDS: u32 = 3600;
/// The default timeout, and the timeout of every invocation whose caller waits for its end.
const DEFAULT_TIMEOUT_SECONDS: u32 = 900;

/// A checked request for an invocation.
pub struct InvocationRequest {
    pub(super) app: String,
    pub(super) action: String,
    pub(super) version: String,
    pub(super) payload: Option<String>,
    pub(super) timeout_seconds: u32,
}

impl InvocationRequest {
    /// Checks the fields of a request. `payload` is JSON text. `timeout_seconds` is 10 to 3600, default 900; only
    /// invocations whose caller does not wait may have one.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(
        app_name: Option<String>,
        action_name: Option<String>,
        version: Option<String>,
        payload: Option<String>,
        timeout_seconds: Option<i64>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let app = fields.take_required("app_name", app_name, parse_name);
        let action = fields.take_required("action_name", action_name, parse_name);
        let version = fields.take_required("version", version, parse_name);
        let payload = fields.take_optional("payload", payload, parse_json);
        let timeout = fields.take_optional("async_timeout_seconds", timeout_seconds, |n| {
            within(n, MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)
        });
        let timeout_seconds = timeout.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        fields.finish_with(|| Some(Self { app: app?, action: action?, version: version?, payload, timeout_seconds }))
    }
}

/// Returns the event by which a caller ends an invocation: `status` is `succeeded` or `failed`, `output` is JSON text.
pub(super) fn parse_end(status: Option<&str>, output: Option<String>) -> Result<InvocationEvent, InvalidInput> {
    let mut fields = Fields::new();
    let event: Option<fn(Option<String>) -> InvocationEvent> =
        fields.take_required("status", status, |text| match text {
            "succeeded" => Ok(InvocationEvent::Finish as _),
            "failed" => Ok(InvocationEvent::Cancel as _),
            _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be succeeded or failed")),
        });
    let output = fields.take_optional("output", output, parse_json);
    fields.finish_with(|| Some(event?(output)))
}

fn parse_name(text: String) -> Result<String, InvalidValue> {
    check_length(&text, MAX_NAME)?;
    check_no_control_characters(&text)?;
    Ok(text)
}

/// Parses JSON text of at most 1 MiB.
///
/// # Errors
/// Returns `too_long` or `invalid_format`.
pub(super) fn parse_json(text: String) -> Result<String, InvalidValue> {
    check_max_bytes(&text, MAX_JSON)?;
    // Stores the text itself, to preserve the caller's numbers and order of members.
    serde_json::from_str::<&RawValue>(&text)
        .map(|_| ())
        .map_err(|error| InvalidValue::new(FieldCode::InvalidFormat, format!("must be JSON text: {error}")))?;
    Ok(text)
}
