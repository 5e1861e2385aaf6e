//! Logs of a session: `/v1/session_log/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`FollowLog`] → a stream of lines, a [`LogLine`] each.
pub const STREAM: &str = "/v1/session_log/stream";

/// The longest message in bytes; longer lines are truncated.
pub const MAX_MESSAGE: usize = 16 << 10;
/// The longest line of [`STREAM`], in bytes: every byte of a message may need six.
pub const MAX_LOG_LINE: usize = 6 * MAX_MESSAGE + 256;

/// Body of [`STREAM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowLog {
    /// The log.
    pub source: LogSource,
    /// True to follow new lines; otherwise the stream ends at the current end of the log.
    pub follow: bool,
}

/// The source of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// A regular file of the session, by its absolute path, from its beginning.
    Path(String),
    /// The buffered error output of the browser.
    Chromium,
    /// The buffered error output of the X server; empty without one.
    Display,
    /// The buffered log of the agent.
    Agent,
}

/// One line of [`STREAM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The time at which the line was read, in milliseconds since 1970.
    pub read_at_ms: u64,
    /// The line without its end. Invalid UTF-8 is replaced.
    pub message: String,
}
