//! The tools that pages offer to agents by WebMCP: `/v1/webmcp/…`.
//!
//! The server reads schemas and outputs as text (`J` is a raw value): values take many times the memory of their text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `POST`, [`ListTools`] or no body → [`ToolList`].
pub const LIST: &str = "/v1/webmcp/tools";
/// `POST`, [`InvokeTool`] → [`ToolResult`].
pub const INVOKE: &str = "/v1/webmcp/invoke";
/// `POST`, [`AddTools`] → [`CustomTools`]: those that were added.
pub const ADD_CUSTOM: &str = "/v1/webmcp/add_custom";
/// `POST`, no body → [`CustomTools`].
pub const LIST_CUSTOM: &str = "/v1/webmcp/custom";
/// `POST`, [`RemoveTool`] → nothing.
pub const REMOVE_CUSTOM: &str = "/v1/webmcp/remove_custom";

/// The maximum number of tools in a list.
pub const MAX_TOOLS: usize = 1000;
/// The longest output of a tool, in bytes of JSON.
pub const MAX_OUTPUT: usize = 4 << 20;
/// The longest list of tools, in bytes of JSON.
pub const MAX_LIST: usize = 8 << 20;

/// The longest source of custom tools, in bytes.
pub const MAX_SOURCE: usize = 8_000_000;
/// The maximum number of custom tools of a session.
pub const MAX_CUSTOM_TOOLS: usize = 256;
/// The longest description of a custom tool, in bytes of JSON.
pub const MAX_CUSTOM_TOOL: usize = 256 << 10;

/// Body of [`LIST`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListTools {
    /// True if custom tools are left out.
    #[serde(default)]
    pub exclude_custom: bool,
}

/// Response of [`LIST`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "J: Deserialize<'de>"))]
pub struct ToolList<J = Value> {
    /// The tools of all pages.
    pub tools: Vec<Tool<J>>,
}

/// A tool that a document has registered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "J: Deserialize<'de>"))]
pub struct Tool<J = Value> {
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
    pub input_schema: Option<J>,
    /// The JSON schema of its output, if one is given.
    #[serde(default)]
    pub output_schema: Option<J>,
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
    /// The custom tool, if it is one.
    #[serde(default)]
    pub custom: Option<CustomSource>,
}

/// The custom tool that a tool of a page comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomSource {
    /// The id of the custom tool.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// The target of the page.
    pub target_id: String,
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
    /// It deletes or overwrites.
    #[serde(default)]
    pub destructive: Option<bool>,
    /// A second call with the same input changes nothing more.
    #[serde(default)]
    pub idempotent: Option<bool>,
    /// It reaches things outside of the page.
    #[serde(default)]
    pub open_world: Option<bool>,
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
#[serde(bound(deserialize = "J: Deserialize<'de>"))]
pub struct ToolResult<J = Value> {
    /// The id of the invocation.
    pub invocation_id: String,
    /// How it ended.
    pub status: ToolStatus,
    /// Its output, if it has completed with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<J>,
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

/// Body of [`ADD_CUSTOM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddTools {
    /// The namespace of all tools of the source.
    pub namespace: String,
    /// A JavaScript expression whose value is an array of definitions.
    pub source: String,
    /// True if the other tools of the namespace are removed.
    #[serde(default)]
    pub overwrite: bool,
}

/// Custom tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "J: Deserialize<'de>"))]
pub struct CustomTools<J = Value> {
    /// The tools, in the order in which they were added.
    pub tools: Vec<CustomTool<J>>,
}

/// A tool that a caller has added to the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "J: Deserialize<'de>"))]
pub struct CustomTool<J = Value> {
    /// Its id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Where its function runs.
    pub kind: CustomToolKind,
    /// The patterns of the documents for which it is listed.
    pub url_patterns: Vec<String>,
    /// Its name.
    pub name: String,
    /// Its name for people, if it has one.
    #[serde(default)]
    pub title: Option<String>,
    /// Its description.
    pub description: String,
    /// The JSON schema of its input.
    pub input_schema: J,
    /// The JSON schema of its output, if one is given.
    #[serde(default)]
    pub output_schema: Option<J>,
    /// The hints of the caller.
    #[serde(default)]
    pub annotations: Annotations,
}

/// Where the function of a custom tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CustomToolKind {
    /// In the page.
    Page,
    /// Beside the browser, as a script.
    Cdp,
}

/// Body of [`REMOVE_CUSTOM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveTool {
    /// The id of the tool.
    pub id: String,
}
