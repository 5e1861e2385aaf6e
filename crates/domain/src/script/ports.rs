//! The port that runs scripts.

use async_trait::async_trait;

use super::{Evaluation, Executor, ExecutorName, NewEvaluation, NewScript, ScriptEnd};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// The port that runs scripts in a sandbox.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ScriptMachine: Send + Sync {
    /// Runs a script in a fresh context, after the scripts that were sent to its executor before. A name that no
    /// executor has creates one. Dropping the future ends the script. The failure or timeout of a script is a result,
    /// not an error.
    ///
    /// # Errors
    /// [`OperationError::NotSupported`] if scripts cannot run, [`OperationError::Limit`] if too many scripts wait,
    /// [`OperationError::State`] if the session has the maximum number of named executors, [`OperationError::Failed`]
    /// if the script could not be run.
    async fn execute(&self, browser: BrowserId, script: NewScript) -> Result<ScriptEnd, OperationError>;

    /// Returns the executors: the default one, then the named ones by age.
    ///
    /// # Errors
    /// The browser or its agent failed.
    async fn executors(&self, browser: BrowserId) -> Result<Vec<Executor>, OperationError>;

    /// Deletes an executor and with `close_tab` its tab; its running and waiting scripts fail. The default executor
    /// remains: only its running script fails.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if no executor has the name.
    async fn delete_executor(
        &self,
        browser: BrowserId,
        name: ExecutorName,
        close_tab: bool,
    ) -> Result<(), OperationError>;

    /// Evaluates code in the REPL, after the code that was sent before. Dropping the future ends the REPL. The failure
    /// or timeout of the code is a result, not an error.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    async fn evaluate(&self, browser: BrowserId, code: NewEvaluation) -> Result<Evaluation, OperationError>;
}
