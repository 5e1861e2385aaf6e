//! Recordings: `/v1/replay/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`StartReplay`] → [`Replay`]. Answers when the first frame is recorded.
pub const START: &str = "/v1/replay/start";
/// `POST` → [`Replays`], oldest first.
pub const LIST: &str = "/v1/replay/list";
/// `POST`, [`ReplayName`] → [`Replay`]. Answers when the file is complete; at once if the recording has ended already.
pub const STOP: &str = "/v1/replay/stop";
/// `POST`, [`ReadReplay`] → the bytes.
pub const READ: &str = "/v1/replay/read";

/// The maximum number of frames per second.
pub const MAX_FRAMERATE: u32 = 60;
/// The longest recording, in seconds.
pub const MAX_DURATION_SECONDS: u32 = 21_600;

/// A recording to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartReplay {
    /// Its id: 1 to 40 characters of `0-9a-z`.
    pub replay_id: String,
    /// Frames per second, 1 to [`MAX_FRAMERATE`].
    pub framerate: u32,
    /// The seconds after which it stops by itself, 1 to [`MAX_DURATION_SECONDS`].
    pub max_duration_seconds: u32,
}

/// Identifies a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayName {
    /// The id.
    pub replay_id: String,
}

/// A part of a recording to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadReplay {
    /// The id of the recording.
    pub replay_id: String,
    /// The offset of the first byte.
    #[serde(default)]
    pub offset: u64,
    /// The number of bytes; up to the end when absent.
    #[serde(default)]
    pub length: Option<u64>,
}

/// A recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// Its id.
    pub replay_id: String,
    /// The time of its first frame, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// The time of its last frame, in milliseconds since 1970; absent while it runs.
    #[serde(default)]
    pub finished_at_ms: Option<u64>,
    /// Its state.
    pub state: ReplayState,
    /// The size of its file in bytes; of a failed recording, of the saved part. Grows while it runs.
    pub size_bytes: u64,
    /// The reason of its end, for people; absent while it runs and if it was stopped.
    #[serde(default)]
    pub detail: Option<String>,
}

/// The state of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// Frames are recorded.
    Running,
    /// Recording has ended; the file is being completed.
    Finishing,
    /// The file is complete.
    Finished,
    /// Frames were lost, or the file could not be completed.
    Failed,
    /// The state of a newer agent.
    #[serde(other)]
    Other,
}

/// Answer of [`LIST`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replays {
    /// Oldest first.
    pub replays: Vec<Replay>,
}
