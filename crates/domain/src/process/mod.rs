//! Programs that callers run in a session's sandbox.

mod input;
mod model;
mod ports;
mod service;

pub use input::{MAX_ARGS, MAX_ENV, MAX_PATH, MAX_SECONDS, MAX_SIDE, MAX_STDIN, MAX_WORD};
pub use input::{ProgramRequest, parse_stdin};
pub use model::{
    Exec, ExecutionResult, Output, OutputStream, ProcessState, ProcessStatus, Program, Signal, Spawn, Spawned,
    TerminalSize,
};
#[cfg(feature = "mocks")]
pub use ports::MockProcessMachine;
pub use ports::{OutputEvents, ProcessMachine};
pub use service::Processes;
