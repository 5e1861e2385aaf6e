//! Logs: the words of `/v1/session_log/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`FollowLog`] → a stream of lines, a [`LogLine`] each.
pub const STREAM: &str = "/v1/session_log/stream";

/// Longest message; longer lines are cut. In bytes.
pub const MAX_MESSAGE: usize = 16 << 10;
/// Longest line of [`STREAM`], in bytes: every byte of a message may need six.
pub const MAX_LOG_LINE: usize = 6 * MAX_MESSAGE + 256;

/// Body of [`STREAM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowLog {
    /// Which log.
    pub source: LogSource,
    /// Go on with what is added; otherwise the stream ends where the log ends now.
    pub follow: bool,
}

/// Where lines come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// A regular file of the session, by its absolute path, from its beginning on.
    Path(String),
    /// What the browser complains of, as far as it is kept.
    Chromium,
    /// What the X server complains of, as far as it is kept; nothing where there is none.
    Display,
    /// What the agent says, as far as it is kept.
    Agent,
}

/// One line of [`STREAM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was read, in milliseconds since 1970.
    pub read_at_ms: u64,
    /// The line without its end. What is no UTF-8 is replaced.
    pub message: String,
}
