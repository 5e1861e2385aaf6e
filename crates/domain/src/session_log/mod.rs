//! Logs of a session: files in its sandbox, and the output of the browser, the X server and the agent.

mod model;
mod ports;
mod service;

pub use model::{FollowLog, LogLine, LogSource};
#[cfg(feature = "mocks")]
pub use ports::MockLogMachine;
pub use ports::{LogLines, LogMachine};
pub use service::SessionLogs;
