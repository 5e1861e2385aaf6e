//! Processes: `/v1/process/…`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `POST`, [`Exec`] → a stream: [`Executed`] as one line of JSON, then the bytes of standard output, then those of
/// standard error. Begins when the program has ended. A disconnect before that ends the program.
pub const EXEC: &str = "/v1/process/exec";
/// `POST`, [`Spawn`] → [`Spawned`].
pub const SPAWN: &str = "/v1/process/spawn";
/// `POST`, [`ProcessName`] → [`ProcessStatus`].
pub const STATUS: &str = "/v1/process/status";
/// `POST`, [`Stdin`] → [`Written`].
pub const STDIN: &str = "/v1/process/stdin";
/// `POST`, [`Kill`] → nothing.
pub const KILL: &str = "/v1/process/kill";
/// `POST`, [`Resize`] → nothing.
pub const RESIZE: &str = "/v1/process/resize";
/// `POST`, [`ProcessName`] → a stream of lines, an [`Output`] each. Begins with the buffered output and ends with the
/// program.
pub const OUTPUT: &str = "/v1/process/output";

/// The maximum number of bytes retained of each output of an [`Exec`].
pub const MAX_EXEC_OUTPUT: usize = 10 << 20;
/// The maximum number of bytes buffered of the output of a [`Spawn`], both streams together.
pub const MAX_BUFFERED_OUTPUT: usize = 1 << 20;
/// The maximum number of spawned programs that run at the same time.
pub const MAX_PROCESSES: usize = 64;
/// The longest line of [`OUTPUT`], in bytes.
pub const MAX_OUTPUT_LINE: usize = 128 << 10;

/// A program with its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its name or, without [`args`](Self::args), a command line for `/bin/sh -c`.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    /// Its working directory; the home of the sandbox's user when absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Its environment, in addition to that of the sandbox.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Body of [`EXEC`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The program.
    pub program: Program,
    /// The timeout in milliseconds, after which it and its descendants are killed.
    pub timeout_ms: u64,
}

/// First line of the answer of [`EXEC`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// Its exit code; 128 plus the signal's number if a signal ended it.
    pub exit_code: i32,
    /// The duration of its run, in milliseconds.
    pub duration_ms: u64,
    /// The bytes of standard output that follow.
    pub stdout_bytes: u64,
    /// The bytes of standard error that follow after them.
    pub stderr_bytes: u64,
    /// The dropped bytes of standard output.
    #[serde(default)]
    pub stdout_dropped: u64,
    /// The dropped bytes of standard error.
    #[serde(default)]
    pub stderr_dropped: u64,
}

/// Body of [`SPAWN`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// The id of the process: 1 to 40 characters of `0-9a-z`.
    pub process_id: String,
    /// The program.
    pub program: Program,
    /// The size of its terminal, if it gets one.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// The timeout in milliseconds, after which it and its descendants are killed; none when absent.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// The columns.
    pub cols: u16,
    /// The rows.
    pub rows: u16,
}

/// Answer of [`SPAWN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// Its pid in the sandbox.
    pub pid: i32,
    /// The time of its start, in milliseconds since 1970.
    pub started_at_ms: u64,
}

/// Identifies a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessName {
    /// The id.
    pub process_id: String,
}

/// Answer of [`STATUS`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its exit code, once it has ended.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Processor time per wall time, in percent of one processor, since the last status or the start. Includes its
    /// descendants.
    pub cpu_pct: f64,
    /// Resident memory in bytes, including its descendants.
    pub mem_bytes: u64,
}

/// Body of [`STDIN`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stdin {
    /// The id of the process.
    pub process_id: String,
    /// The data, in base64.
    pub data_b64: String,
    /// Whether the input ends with this data, once all of it fitted.
    #[serde(default)]
    pub is_last: bool,
}

/// Answer of [`STDIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The number of bytes that fit into the program's buffer.
    pub written_bytes: u64,
}

/// Body of [`KILL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The id of the process.
    pub process_id: String,
    /// The signal.
    pub signal: Signal,
}

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// Terminate.
    Term,
    /// Kill.
    Kill,
    /// Interrupt.
    Int,
    /// Hang up.
    Hup,
}

/// Body of [`RESIZE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// The id of the process.
    pub process_id: String,
    /// The new size.
    pub size: TerminalSize,
}

/// An output stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output, and everything that a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line of [`OUTPUT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Output.
    Data {
        /// Its stream.
        stream: OutputStream,
        /// The data, in base64.
        data_b64: String,
        /// The bytes dropped before this, because the reader was too slow or came too late.
        #[serde(default)]
        dropped: u64,
    },
    /// The end of the program.
    Exit {
        /// Its exit code.
        exit_code: i32,
    },
}
