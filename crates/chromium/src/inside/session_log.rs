//! Logs, read by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::session_log::{self as words, MAX_LOG_LINE, STREAM};
use casement_domain::ids::BrowserId;
use casement_domain::session_log::{FollowLog, LogLine, LogLines, LogMachine, LogSource};
use casement_domain::session_operation::OperationError;

use super::lines::{Lines, moment};
use super::operation_error;
use crate::engine::Engine;

/// How long the agent may take to open a log.
const QUICK: Duration = Duration::from_secs(20);

#[async_trait]
impl LogMachine for Engine {
    async fn follow(&self, browser: BrowserId, log: FollowLog) -> Result<LogLines, OperationError> {
        let running = self.running(browser)?;
        let source = match log.source {
            LogSource::Path(path) => words::LogSource::Path(path),
            LogSource::Chromium => words::LogSource::Chromium,
            LogSource::Display => words::LogSource::Display,
            LogSource::Agent => words::LogSource::Agent,
        };
        let asked = words::FollowLog { source, follow: log.follow };
        let lines = running.agent.download(STREAM, &asked, QUICK).await;
        let lines = lines.map_err(|error| operation_error(&running, &error))?;
        Ok(Lines::new(running, lines, MAX_LOG_LINE)
            .told(|line: words::LogLine| Ok(LogLine { read_at: moment(line.read_at_ms)?, message: line.message })))
    }
}
