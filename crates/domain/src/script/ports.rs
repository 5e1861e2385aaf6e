//! The port that runs scripts.

use async_trait::async_trait;

use super::{NewScript, ScriptEnd};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// The port that runs scripts in a sandbox.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ScriptMachine: Send + Sync {
    /// Runs a script in a fresh context, after the scripts that were sent before. Dropping the future ends the script.
    /// The failure or timeout of a script is a result, not an error.
    ///
    /// # Errors
    /// [`OperationError::NotSupported`] if scripts cannot run, [`OperationError::Limit`] if too many scripts wait,
    /// [`OperationError::Failed`] if the script could not be run.
    async fn execute(&self, browser: BrowserId, script: NewScript) -> Result<ScriptEnd, OperationError>;
}
