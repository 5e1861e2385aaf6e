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
    /// Logs of what `machine` runs.
    #[must_use]
    pub fn new(machine: Arc<dyn LogMachine>, activity: Activity) -> Self {
        Self { machine, activity }
    }

    /// The lines of a log. As long as somebody listens the session is in use.
    ///
    /// # Errors
    /// See [`LogMachine::follow`].
    pub async fn follow(&self, session: &Session, log: FollowLog) -> Result<LogLines, OperationError> {
        let entered = enter(session, &self.activity)?;
        let lines = self.machine.follow(entered.browser, log).await?;
        Ok(entered.during(lines))
    }
}
