//! Scripts, run beside the browser.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Runs a script: [`ExecuteScript`] to [`ScriptEnd`].
pub const EXECUTE: &str = "/v1/script/execute";

/// Scripts that wait for their turn behind the one that runs.
pub const MAX_WAITING: usize = 16;
/// The most bytes of what a script prints that are kept, of each of its two streams.
pub const MAX_OUTPUT: usize = 1 << 20;
/// The most bytes of what a script returns, as JSON.
pub const MAX_RESULT: usize = 10 << 20;

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecuteScript {
    /// The body of an asynchronous function of `page`, `context` and `browser`, in TypeScript or JavaScript.
    pub code: String,
    /// How long it may run, in milliseconds.
    pub timeout_ms: u64,
    /// How long the whole may take, waiting included, in milliseconds.
    #[serde(default)]
    pub within_ms: Option<u64>,
}

/// How a script ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptEnd {
    /// Whether it came to its end.
    pub success: bool,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "as_given")]
    pub result: Option<Box<RawValue>>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it printed.
    #[serde(default)]
    pub stdout: String,
    /// What it complained.
    #[serde(default)]
    pub stderr: String,
}

/// A value as it stands, `null` included: a script that returns `null` returns something.
pub fn as_given<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(source).map(Some)
}
