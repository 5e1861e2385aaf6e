//! Code of callers that runs in the session's sandbox with access to the browser: scripts, which begin without a trace
//! of earlier ones, and the REPL, whose variables persist.

mod executor;
mod model;
mod ports;
mod repl;
mod service;

pub use executor::{Executor, ExecutorName};
pub use model::{MAX_CODE, MAX_TIMEOUT_SECONDS, NewScript, ScriptEnd, ScriptTab};
#[cfg(feature = "mocks")]
pub use ports::MockScriptMachine;
pub use ports::ScriptMachine;
pub use repl::{Evaluation, NewEvaluation, ReplChannel, ReplContent};
pub use service::Scripts;
