//! Logs of a session, read by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::session_log::{self as wire, MAX_LOG_LINE, STREAM};
use casement_domain::ids::BrowserId;
use casement_domain::session_log::{FollowLog, LogLine, LogLines, LogMachine, LogSource};
use casement_domain::session_operation::OperationError;

use super::lines::parse_timestamp;
use crate::engine::Engine;

/// The timeout of opening a log.
const QUICK_TIMEOUT: Duration = Duration::from_secs(20);

#[async_trait]
impl LogMachine for Engine {
    async fn follow(&self, browser: BrowserId, log: FollowLog) -> Result<LogLines, OperationError> {
        let source = match log.source {
            LogSource::Path(path) => wire::LogSource::Path(path),
            LogSource::Chromium => wire::LogSource::Chromium,
            LogSource::Display => wire::LogSource::Display,
            LogSource::Agent => wire::LogSource::Agent,
        };
        let request = wire::FollowLog { source, follow: log.follow };
        let lines = self.agent_lines(browser, STREAM, &request, QUICK_TIMEOUT, MAX_LOG_LINE).await?;
        Ok(lines.converted(|line: wire::LogLine| {
            Ok(LogLine { read_at: parse_timestamp(line.read_at_ms)?, message: line.message })
        }))
    }
}
