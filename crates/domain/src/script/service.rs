//! The use cases of scripts.

use std::sync::Arc;

use super::{Evaluation, Executor, ExecutorName, NewEvaluation, NewScript, ScriptEnd, ScriptMachine};
use crate::engine::Capability;
use crate::session::Session;
use crate::session_operation::{OperationError, SessionOperations};

/// The use cases of scripts.
#[derive(Clone)]
pub struct Scripts {
    machine: Arc<dyn ScriptMachine>,
    operations: SessionOperations,
}

impl Scripts {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn ScriptMachine>, operations: SessionOperations) -> Self {
        Self { machine, operations }
    }

    /// Runs a script.
    ///
    /// # Errors
    /// See [`ScriptMachine::execute`].
    pub async fn execute(&self, session: &Session, script: NewScript) -> Result<ScriptEnd, OperationError> {
        let entered = self.operations.begin(session, Capability::Scripts)?;
        self.machine.execute(entered.browser, script).await
    }

    /// Returns the executors of a session. None is older than the session, although its browser may be.
    ///
    /// # Errors
    /// See [`ScriptMachine::executors`].
    pub async fn executors(&self, session: &Session) -> Result<Vec<Executor>, OperationError> {
        let entered = self.operations.begin(session, Capability::Scripts)?;
        let mut executors = self.machine.executors(entered.browser).await?;
        for executor in &mut executors {
            executor.created_at = executor.created_at.max(session.created_at);
        }
        Ok(executors)
    }

    /// Deletes an executor.
    ///
    /// # Errors
    /// See [`ScriptMachine::delete_executor`].
    pub async fn delete_executor(
        &self,
        session: &Session,
        name: ExecutorName,
        close_tab: bool,
    ) -> Result<(), OperationError> {
        let entered = self.operations.begin(session, Capability::Scripts)?;
        self.machine.delete_executor(entered.browser, name, close_tab).await
    }

    /// Evaluates code in the REPL.
    ///
    /// # Errors
    /// See [`ScriptMachine::evaluate`].
    pub async fn evaluate(&self, session: &Session, code: NewEvaluation) -> Result<Evaluation, OperationError> {
        let entered = self.operations.begin(session, Capability::Scripts)?;
        self.machine.evaluate(entered.browser, code).await
    }
}
