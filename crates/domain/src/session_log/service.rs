//! The use cases of logs.

use std::sync::Arc;

use super::{FollowLog, LogLines, LogMachine};
use crate::engine::Capability;
use crate::session::Session;
use crate::session_operation::{OperationError, SessionOperations};

/// The use cases of a session's logs.
#[derive(Clone)]
pub struct SessionLogs {
    machine: Arc<dyn LogMachine>,
    operations: SessionOperations,
}

impl SessionLogs {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn LogMachine>, operations: SessionOperations) -> Self {
        Self { machine, operations }
    }

    /// Returns the lines of a log. The session is in use until the stream is dropped.
    ///
    /// # Errors
    /// See [`LogMachine::follow`].
    pub async fn follow(&self, session: &Session, log: FollowLog) -> Result<LogLines, OperationError> {
        let entered = self.operations.begin(session, Capability::Logs)?;
        let lines = self.machine.follow(entered.browser, log).await?;
        Ok(entered.during(lines))
    }
}
