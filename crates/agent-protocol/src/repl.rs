//! The REPL, a JavaScript session whose variables persist: `/v1/repl/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`EvaluateCode`] → [`Evaluation`].
pub const EVALUATE: &str = "/v1/repl/evaluate";

/// The maximum number of evaluations that wait behind the running one.
pub const MAX_WAITING: usize = 16;
/// The maximum number of bytes of all texts of an evaluation.
pub const MAX_TEXT: usize = 1 << 20;
/// The maximum number of bytes of all pictures of an evaluation, in base64.
pub const MAX_IMAGES: usize = 8 << 20;

/// Code to evaluate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluateCode {
    /// TypeScript or JavaScript; empty to start a fresh REPL only.
    pub code: String,
    /// True to begin with a fresh REPL.
    pub reset: bool,
    /// The timeout of the evaluation, in milliseconds.
    pub timeout_ms: u64,
    /// The timeout of waiting and running together, in milliseconds.
    #[serde(default)]
    pub within_ms: Option<u64>,
}

/// The result of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The process that holds the variables.
    pub repl_id: String,
    /// True if the code ended without an error.
    pub success: bool,
    /// The output, in order.
    pub content: Vec<Content>,
    /// True if a part of the output is missing.
    pub content_truncated: bool,
    /// The time of the evaluation, in milliseconds.
    pub duration_ms: u64,
    /// The message of the error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The stack of the error, with the lines and columns of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// True if the process has ended, so that its variables are lost.
    pub terminated: bool,
}

/// A part of the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// A text.
    Text {
        /// What wrote it.
        channel: Channel,
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

/// What wrote a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// `repl.write`.
    Write,
    /// The console and the standard output.
    Stdout,
    /// The console's errors and the standard error.
    Stderr,
}
