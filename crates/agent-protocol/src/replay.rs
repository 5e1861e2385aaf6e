//! Recordings: the words of `/v1/replay/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`StartReplay`] → [`Replay`]. Answers when the first picture is recorded.
pub const START: &str = "/v1/replay/start";
/// `POST` → [`Replays`], oldest first.
pub const LIST: &str = "/v1/replay/list";
/// `POST`, [`ReplayName`] → [`Replay`]. Answers when the file is whole; for one that has ended already, at once.
pub const STOP: &str = "/v1/replay/stop";
/// `POST`, [`ReadReplay`] → the bytes.
pub const READ: &str = "/v1/replay/read";

/// Most frames per second.
pub const MAX_FRAMERATE: u32 = 60;
/// Longest recording, in seconds.
pub const MAX_DURATION_SECONDS: u32 = 21_600;

/// A recording to begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartReplay {
    /// Its name: 1 to 40 characters of `0-9a-z`.
    pub replay_id: String,
    /// Frames per second, 1 to [`MAX_FRAMERATE`].
    pub framerate: u32,
    /// After how many seconds it stops by itself, 1 to [`MAX_DURATION_SECONDS`].
    pub max_duration_seconds: u32,
}

/// Names a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayName {
    /// Which.
    pub replay_id: String,
}

/// What is read of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadReplay {
    /// Of which.
    pub replay_id: String,
    /// The first byte.
    #[serde(default)]
    pub offset: u64,
    /// How many bytes; up to the end when absent.
    #[serde(default)]
    pub length: Option<u64>,
}

/// A recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// Its name.
    pub replay_id: String,
    /// When its first picture was taken, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// When its last picture was taken, in milliseconds since 1970; absent while it runs.
    #[serde(default)]
    pub finished_at_ms: Option<u64>,
    /// How it is.
    pub state: ReplayState,
    /// Size of its file in bytes. Of one that failed: of what could be saved of it. Grows while it runs.
    pub size_bytes: u64,
    /// Why it ended, for people; absent while it runs and when it was stopped.
    #[serde(default)]
    pub detail: Option<String>,
}

/// How a recording is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// Pictures are taken.
    Running,
    /// No more pictures are taken, the file is being made whole.
    Finishing,
    /// The file is whole.
    Finished,
    /// Pictures were missed, or the file could not be made.
    Failed,
    /// A word of a newer agent.
    #[serde(other)]
    Other,
}

/// Answer of [`LIST`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replays {
    /// Oldest first.
    pub replays: Vec<Replay>,
}
