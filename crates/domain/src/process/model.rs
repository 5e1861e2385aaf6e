//! The inputs and outputs of a program.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use time::OffsetDateTime;

use crate::ids::ProcessId;
use crate::session_operation::ByteStream;

/// A program with its arguments and environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of the program; a command line for a shell if `args` is `None`.
    pub command: String,
    /// The arguments.
    pub args: Option<Vec<String>>,
    /// The working directory; `None`: the home of the sandbox's user.
    pub cwd: Option<String>,
    /// The environment variables in addition to those of the sandbox. They may contain secrets.
    pub env: BTreeMap<String, String>,
}

/// A program whose caller waits for its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The program.
    pub program: Program,
    /// The time after which the program and its child processes are killed.
    pub within: Duration,
}

/// The result of a program.
pub struct ExecutionResult {
    /// The exit code; 128 plus the number of the signal if a signal ended it.
    pub exit_code: i32,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The number of bytes of standard output in `output`.
    pub stdout_bytes: u64,
    /// The number of bytes of standard error in `output`.
    pub stderr_bytes: u64,
    /// The number of further bytes of standard output, which were dropped.
    pub stdout_dropped: u64,
    /// The number of further bytes of standard error, which were dropped.
    pub stderr_dropped: u64,
    /// The standard output, followed by the standard error.
    pub output: ByteStream,
}

/// A program that runs in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    /// The identifier that the program gets.
    pub id: ProcessId,
    /// The program.
    pub program: Program,
    /// The size of the program's terminal, if it gets one.
    pub terminal: Option<TerminalSize>,
    /// The time after which the program and its child processes are killed.
    pub within: Option<Duration>,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// The number of columns, 1 to 1000.
    pub cols: u16,
    /// The number of rows, 1 to 1000.
    pub rows: u16,
}

/// A started program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spawned {
    /// The identifier.
    pub id: ProcessId,
    /// The process id in the sandbox.
    pub pid: i32,
    /// The time of the start.
    pub started_at: OffsetDateTime,
}

/// The status of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessStatus {
    /// Whether it runs.
    pub state: ProcessState,
    /// The CPU usage with child processes since the last call or the start, in percent of one processor.
    pub cpu_pct: f64,
    /// The resident memory in bytes, with child processes.
    pub mem_bytes: u64,
}

/// Whether a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// The program runs.
    Running,
    /// The program has ended with this exit code; 128 plus the number of the signal if a signal ended it.
    Exited(i32),
}

/// A signal to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGTERM`.
    Term,
    /// `SIGKILL`.
    Kill,
    /// `SIGINT`.
    Int,
    /// `SIGHUP`.
    Hup,
}

/// An output stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output, or the output of the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An event of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The program wrote output.
    Data {
        /// The stream.
        stream: OutputStream,
        /// The bytes.
        data: Bytes,
        /// The number of bytes before these that were dropped because the reader was too slow or too late.
        dropped: u64,
    },
    /// The program ended.
    Exit {
        /// The exit code.
        exit_code: i32,
    },
}
