//! The tools that pages offer to agents by WebMCP: `/v1/webmcp/…`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `POST`, no body → [`ToolList`].
pub const LIST: &str = "/v1/webmcp/tools";
/// `POST`, [`InvokeTool`] → [`ToolResult`].
pub const INVOKE: &str = "/v1/webmcp/invoke";

/// The maximum number of tools in a list.
pub const MAX_TOOLS: usize = 1000;
/// The longest output of a tool, in bytes of JSON.
pub const MAX_OUTPUT: usize = 4 << 20;
/// The longest list of tools, in bytes of JSON.
pub const MAX_LIST: usize = 8 << 20;

/// Response of [`LIST`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolList {
    /// The tools of all pages.
    pub tools: Vec<Tool>,
}

/// A tool that a document has registered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The reference for [`InvokeTool`].
    pub tool_ref: String,
    /// Its name.
    pub name: String,
    /// Its name for people, if it has one.
    #[serde(default)]
    pub title: Option<String>,
    /// Its description.
    pub description: String,
    /// The JSON schema of its input; absent if the page gives none.
    #[serde(default)]
    pub input_schema: Option<Value>,
    /// The hints of the page.
    #[serde(default)]
    pub annotations: Annotations,
    /// The number of the window.
    pub window_id: u64,
    /// The number of the tab.
    pub tab_id: u64,
    /// The title of the page.
    pub page_title: String,
    /// The URL of the page, without its fragment.
    pub page_url: String,
    /// The embedded frame that registered it; absent for the page itself.
    #[serde(default)]
    pub frame: Option<Frame>,
}

/// The hints of a page about its tool; absent if the browser reports none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotations {
    /// It changes nothing.
    #[serde(default)]
    pub read_only: Option<bool>,
    /// Its output may contain texts of others.
    #[serde(default)]
    pub untrusted_content: Option<bool>,
    /// It has consequences: it books or pays.
    #[serde(default)]
    pub consequential: Option<bool>,
    /// For a form: it is submitted when it is filled in.
    #[serde(default)]
    pub autosubmit: Option<bool>,
}

/// An embedded frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Its number.
    pub frame_id: u64,
    /// Its URL, without its fragment.
    pub url: String,
}

/// Body of [`INVOKE`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InvokeTool {
    /// The reference of the tool.
    pub tool_ref: String,
    /// Its input, an object.
    pub input: Value,
    /// The timeout in milliseconds.
    pub timeout_ms: u64,
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the invocation.
    pub invocation_id: String,
    /// How it ended.
    pub status: ToolStatus,
    /// Its output, if it has completed with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_text: Option<String>,
}

/// How an invocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It ended.
    Completed,
    /// The page canceled it.
    Canceled,
    /// It failed, or its outcome is unknown.
    Error,
    /// A form is filled in and waits to be submitted.
    AwaitingSubmission,
}
