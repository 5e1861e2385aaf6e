//! The use cases of scripts.

use std::sync::Arc;

use super::{NewScript, ScriptEnd, ScriptMachine};
use crate::session::{Activity, Session};
use crate::session_operation::{OperationError, enter};

/// The use cases of scripts.
#[derive(Clone)]
pub struct Scripts {
    machine: Arc<dyn ScriptMachine>,
    activity: Activity,
}

impl Scripts {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn ScriptMachine>, activity: Activity) -> Self {
        Self { machine, activity }
    }

    /// Runs a script.
    ///
    /// # Errors
    /// See [`ScriptMachine::execute`].
    pub async fn execute(&self, session: &Session, script: NewScript) -> Result<ScriptEnd, OperationError> {
        let entered = enter(session, &self.activity)?;
        self.machine.execute(entered.browser, script).await
    }
}
