//! The inputs and outputs of a program.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use time::OffsetDateTime;

use crate::ids::ProcessId;
use crate::session_operation::ByteStream;

/// A program and what it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name; without arguments, a line for a shell.
    pub command: String,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Its working directory; `None`: the home of the sandbox's user.
    pub cwd: Option<String>,
    /// Its environment, beside that of the sandbox. May hold secrets.
    pub env: BTreeMap<String, String>,
}

/// A program that its caller waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// What to run.
    pub program: Program,
    /// When it and all it has started are killed.
    pub within: Duration,
}

/// A program that was waited for.
pub struct ExecutionResult {
    /// Its exit code; 128 and the signal's number when a signal ended it.
    pub exit_code: i32,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
    /// How many bytes of standard output come.
    pub stdout_bytes: u64,
    /// How many bytes of standard error come after them.
    pub stderr_bytes: u64,
    /// How many more bytes of standard output there were.
    pub stdout_dropped: u64,
    /// How many more bytes of standard error there were.
    pub stderr_dropped: u64,
    /// Both outputs, one after the other, exactly as many bytes as told.
    pub output: ByteStream,
}

/// A program that runs beside its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    /// What it is called from now on.
    pub id: ProcessId,
    /// What to run.
    pub program: Program,
    /// With a terminal of this size.
    pub terminal: Option<TerminalSize>,
    /// When it and all it has started are killed.
    pub within: Option<Duration>,
}

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// From left to right, 1 to 1000.
    pub cols: u16,
    /// From top to bottom, 1 to 1000.
    pub rows: u16,
}

/// A program that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spawned {
    /// Its name.
    pub id: ProcessId,
    /// Its number in the sandbox.
    pub pid: i32,
    /// When.
    pub started_at: OffsetDateTime,
}

/// How a program is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessStatus {
    /// Whether it runs.
    pub state: ProcessState,
    /// Processor time per time since the last question, or since its start, in percent of one processor; with all it has started.
    pub cpu_pct: f64,
    /// Resident memory in bytes, with all it has started.
    pub mem_bytes: u64,
}

/// Whether a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It does.
    Running,
    /// It has ended with this code; 128 and the signal's number when a signal ended it.
    Exited(i32),
}

/// What a program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End.
    Term,
    /// End now.
    Kill,
    /// Interrupt.
    Int,
    /// The terminal is gone.
    Hup,
}

/// One of a program's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output, and all that a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Something that a program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// It wrote.
    Data {
        /// Where to.
        stream: OutputStream,
        /// What.
        data: Bytes,
        /// How many bytes before this were dropped, because the reader was too slow or came too late.
        dropped: u64,
    },
    /// It ended.
    Exit {
        /// Its code.
        exit_code: i32,
    },
}
