//! The use cases of logs.

use std::sync::Arc;

use super::{FollowLog, LogLines, LogMachine};
use crate::session::{Activity, Session};
use crate::session_operation::{OperationError, enter};

/// The use cases of a session's logs.
#[derive(Clone)]
pub struct SessionLogs {
    machine: Arc<dyn LogMachine>,
    activity: Activity,
}

impl SessionLogs {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn LogMachine>, activity: Activity) -> Self {
        Self { machine, activity }
    }

    /// Returns the lines of a log. The session is in use until the stream is dropped.
    ///
    /// # Errors
    /// See [`LogMachine::follow`].
    pub async fn follow(&self, session: &Session, log: FollowLog) -> Result<LogLines, OperationError> {
        let entered = enter(session, &self.activity)?;
        let lines = self.machine.follow(entered.browser, log).await?;
        Ok(entered.during(lines))
    }
}
