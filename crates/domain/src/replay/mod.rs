//! Recordings of a session's display: in its sandbox while it is active, and stored for some time after its end.

mod leaving;
mod model;
mod ports;
mod service;
mod stored;

pub use leaving::{ReplayDeps, SessionReplays};
pub use model::{NewReplay, Replay, ReplayState};
#[cfg(feature = "mocks")]
pub use ports::{MockReplayMachine, MockReplayRepository};
pub use ports::{ReplayMachine, ReplayRepository};
pub use service::{Part, ReplayError, Replays, Video};
pub use stored::{ReplayArchive, ReplayLimits};
