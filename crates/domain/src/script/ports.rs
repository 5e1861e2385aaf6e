//! The port that runs scripts.

use async_trait::async_trait;

use super::{NewScript, ScriptEnd};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// Runs scripts inside a session's machine.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ScriptMachine: Send + Sync {
    /// Runs a script in a context that no other has seen, after those that came before. A caller that goes away ends it. A script
    /// that fails, or is too late, has ended like any other.
    ///
    /// # Errors
    /// [`OperationError::NotSupported`] where no script can run, [`OperationError::Limit`] when too many wait, [`OperationError::Failed`].
    async fn execute(&self, browser: BrowserId, script: NewScript) -> Result<ScriptEnd, OperationError>;
}
