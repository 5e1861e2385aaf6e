//! Scripts that run beside the browser: `/v1/script/…`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// `POST`, [`ExecuteScript`] → [`ScriptEnd`].
pub const EXECUTE: &str = "/v1/script/execute";

/// The maximum number of scripts that wait behind the running one.
pub const MAX_WAITING: usize = 16;
/// The maximum number of bytes retained of each output stream of a script.
pub const MAX_OUTPUT: usize = 1 << 20;
/// The longest result of a script, in bytes of JSON.
pub const MAX_RESULT: usize = 10 << 20;

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecuteScript {
    /// The body of an async function with the parameters `page`, `context` and `browser`, in TypeScript or JavaScript.
    pub code: String,
    /// The timeout of the run, in milliseconds.
    pub timeout_ms: u64,
    /// The timeout of waiting and running together, in milliseconds.
    #[serde(default)]
    pub within_ms: Option<u64>,
}

/// The result of a script.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptEnd {
    /// True if it ended without an error.
    pub success: bool,
    /// Its return value.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "as_given")]
    pub result: Option<Box<RawValue>>,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its standard output.
    #[serde(default)]
    pub stdout: String,
    /// Its standard error.
    #[serde(default)]
    pub stderr: String,
}

/// Deserializes a value unchanged, `null` included: a script that returns `null` has a return value.
pub fn as_given<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(source).map(Some)
}
