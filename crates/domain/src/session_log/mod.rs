//! Logs of a session: files of its own, and what the programs that make it up complain of.

mod model;
mod ports;
mod service;

pub use model::{FollowInput, FollowLog, LogLine, LogSource};
#[cfg(feature = "mocks")]
pub use ports::MockLogMachine;
pub use ports::{LogLines, LogMachine};
pub use service::SessionLogs;
