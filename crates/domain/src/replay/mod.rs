//! Recordings of what a session shows, made inside its machine and kept as long as it lives.

mod model;
mod ports;
mod service;

pub use model::{NewReplay, Replay, ReplayState, StartReplay};
#[cfg(feature = "mocks")]
pub use ports::MockReplayMachine;
pub use ports::ReplayMachine;
pub use service::{Film, Part, Replays};
