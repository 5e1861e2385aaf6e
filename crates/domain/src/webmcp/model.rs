//! A tool, its call and its result.

use std::time::Duration;

use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, check_length, check_max_bytes, within};

/// A tool that a document of a session has registered, or a custom tool for its page. The texts of a page's own tools are
/// not to be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTool {
    /// The reference by which the tool is called; valid for this registration in this document.
    pub tool_ref: String,
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// Its description.
    pub description: String,
    /// The JSON schema of its input as JSON text; `None` if the page gives no object.
    pub input_schema: Option<String>,
    /// The JSON schema of its output as JSON text, if one is given.
    pub output_schema: Option<String>,
    /// Hints about its effects.
    pub hints: ToolHints,
    /// The number of its browser window.
    pub window_id: u64,
    /// The number of its tab.
    pub tab_id: u64,
    /// The title of its page.
    pub page_title: String,
    /// The URL of its page, without the fragment.
    pub page_url: String,
    /// The embedded frame that registered it; `None` for the page itself.
    pub frame: Option<EmbeddedFrame>,
    /// The custom tool, if it is one.
    pub custom: Option<CustomSource>,
}

/// The custom tool that a tool of a page comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomSource {
    /// The id of the custom tool.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// The debugging target of the page.
    pub target_id: String,
}

/// Hints of a page or of a caller about the effects of a tool; `None` if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// Its output may contain texts of others.
    pub untrusted_content: Option<bool>,
    /// It has consequences, such as a payment.
    pub consequential: Option<bool>,
    /// It is a form, which is or is not submitted when it is filled in.
    pub autosubmit: Option<bool>,
    /// It deletes or overwrites.
    pub destructive: Option<bool>,
    /// A second call with the same input changes nothing more.
    pub idempotent: Option<bool>,
    /// It reaches things outside of the page.
    pub open_world: Option<bool>,
}

/// An embedded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedFrame {
    /// Its number.
    pub frame_id: u64,
    /// Its URL, without the fragment.
    pub url: String,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToolCall {
    /// The reference of the tool.
    pub tool_ref: String,
    /// The input: an object, as JSON text.
    pub input: String,
    /// The timeout.
    pub timeout: Duration,
}

impl NewToolCall {
    /// The longest input, in bytes of JSON.
    const MAX_INPUT: usize = 1 << 20;
    /// The longest reference, in characters.
    pub const MAX_REFERENCE: usize = 4096;
    const TIMEOUT_SECONDS: i64 = 60;
    /// The longest timeout, in seconds.
    pub const MAX_TIMEOUT_SECONDS: u32 = 600;

    /// Checks a call: a reference, an input of at most 1 MiB, a timeout of 1 to 600 seconds, default 60. A client that
    /// waits less ends the call earlier.
    ///
    /// # Errors
    /// Returns every field that is out of bounds.
    pub fn parse(
        tool_ref: Option<String>,
        input: Option<String>,
        timeout_sec: Option<i64>,
        client_timeout: Option<Duration>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let tool_ref =
            fields.take_required("tool_ref", tool_ref, |text| check_length(&text, Self::MAX_REFERENCE).map(|()| text));
        let input = fields.take_required("input", input, |text| {
            check_max_bytes(&text, Self::MAX_INPUT)?;
            let is_object = text.starts_with('{');
            is_object.then_some(text).ok_or_else(|| InvalidValue::new(FieldCode::InvalidType, "must be an object"))
        });
        let seconds = within(timeout_sec.unwrap_or(Self::TIMEOUT_SECONDS), 1, Self::MAX_TIMEOUT_SECONDS);
        let seconds = fields.take("timeout_sec", seconds);
        fields.finish_with(|| {
            let timeout = Duration::from_secs(seconds?.into());
            let timeout = client_timeout.map_or(timeout, |client| client.min(timeout));
            Some(Self { tool_ref: tool_ref?, input: input?, timeout })
        })
    }
}

/// The result of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The browser's id of the call.
    pub invocation_id: String,
    /// How it ended.
    pub status: ToolStatus,
    /// Its output as JSON text.
    pub output: Option<String>,
    /// The error.
    pub error: Option<String>,
}

/// How a call of a tool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolStatus {
    /// The tool has ended.
    Completed,
    /// The page canceled the call.
    Canceled,
    /// The tool failed, or its outcome is unknown.
    Error,
    /// A form is filled in and not submitted.
    AwaitingSubmission,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(tool_ref: &str, input: &str, timeout_sec: i64) -> Vec<(String, FieldCode)> {
        let call = NewToolCall::parse(Some(tool_ref.to_owned()), Some(input.to_owned()), Some(timeout_sec), None);
        call.expect_err("it is refused").fields().iter().map(|error| (error.field.clone(), error.code)).collect()
    }

    #[test]
    fn a_call_waits_a_minute_and_not_longer_than_its_client() {
        let timeout = |client| {
            NewToolCall::parse(Some("r".to_owned()), Some("{}".to_owned()), None, client).map(|call| call.timeout)
        };
        assert_eq!(timeout(None), Ok(Duration::from_secs(60)));
        assert_eq!(timeout(Some(Duration::from_secs(8))), Ok(Duration::from_secs(8)));
    }

    #[test]
    fn every_field_of_a_call_out_of_bounds_is_named() {
        let reported = |field: &str, code| (field.to_owned(), code);
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20));
        let expected = [
            reported("tool_ref", FieldCode::TooShort),
            reported("input", FieldCode::TooLong),
            reported("timeout_sec", FieldCode::OutOfRange),
        ];
        assert_eq!(refused("", &long, 601), expected);
        assert_eq!(refused("r", "[]", 1), [reported("input", FieldCode::InvalidType)]);
    }
}
