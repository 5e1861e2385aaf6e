//! Scripts that run beside the browser: `/v1/script/…`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// `POST`, [`ExecuteScript`] → [`ScriptEnd`].
pub const EXECUTE: &str = "/v1/script/execute";
/// `POST`, [`ExecuteScript`] with an executor → [`ScriptEnd`]. An older agent, which would run the script on its only
/// executor, refuses this path.
pub const EXECUTE_IN: &str = "/v1/script/execute_in";
/// `POST`, no body → [`ExecutorList`].
pub const LIST_EXECUTORS: &str = "/v1/script/executors";
/// `POST`, [`DeleteExecutor`] → nothing.
pub const DELETE_EXECUTOR: &str = "/v1/script/delete_executor";

/// The maximum number of scripts that wait behind the running one, for each executor.
pub const MAX_WAITING: usize = 16;
/// The maximum number of named executors of a session.
pub const MAX_NAMED_EXECUTORS: usize = 8;
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
    /// The name of the executor; absent for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
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
    /// The tab of its `page`; absent if it failed before it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tab: Option<Tab>,
}

/// The tab of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tab {
    /// The target of its page.
    pub target_id: String,
    /// True if it was opened for this script.
    pub created: bool,
}

/// Response of [`LIST_EXECUTORS`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorList {
    /// The default executor, then the named ones by age.
    pub executors: Vec<Executor>,
}

/// An executor: it runs scripts one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executor {
    /// Its name; absent for the default one.
    #[serde(default)]
    pub name: Option<String>,
    /// True if a script runs on it.
    pub busy: bool,
    /// When it was created, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// When its last script started, in milliseconds since 1970; absent before the first one.
    #[serde(default)]
    pub last_used_at_ms: Option<u64>,
    /// The target of its tab, once it has one.
    #[serde(default)]
    pub target_id: Option<String>,
    /// The URL of its tab while the tab is open.
    #[serde(default)]
    pub url: Option<String>,
}

/// Body of [`DELETE_EXECUTOR`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteExecutor {
    /// The name of the executor; absent for the default one, which continues with a new process.
    #[serde(default)]
    pub name: Option<String>,
    /// True if its tab is closed.
    pub close_tab: bool,
}

/// Deserializes a value unchanged, `null` included: a script that returns `null` has a return value.
pub fn as_given<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(source).map(Some)
}
