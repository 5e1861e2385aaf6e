//! Processes: the words of `/v1/process/…`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `POST`, [`Exec`] → a stream: [`Executed`] as one line of JSON, then the bytes of its standard output, then those of its standard
/// error. Begins when the program has ended. Whoever breaks off before ends the program.
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
/// `POST`, [`ProcessName`] → a stream of lines, an [`Output`] each. Begins with what is kept and ends with the program.
pub const OUTPUT: &str = "/v1/process/output";

/// What is kept of each output of a program that was waited for, in bytes.
pub const MAX_EXEC_OUTPUT: usize = 10 << 20;
/// What is kept of the output of a program that was not, both kinds together, in bytes.
pub const MAX_BUFFERED_OUTPUT: usize = 1 << 20;
/// Programs that run beside each other without being waited for.
pub const MAX_PROCESSES: usize = 64;
/// Longest line of [`OUTPUT`], in bytes.
pub const MAX_OUTPUT_LINE: usize = 128 << 10;

/// A program and what it gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its name, or without [`args`](Self::args) a line for `/bin/sh -c`.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    /// Its working directory; the home of the sandbox's user when absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Its environment, beside that of the sandbox.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Body of [`EXEC`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// What to run.
    pub program: Program,
    /// When it and all it has started are killed, in milliseconds.
    pub timeout_ms: u64,
}

/// First line of the answer of [`EXEC`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// Its exit code; 128 and the signal's number when a signal ended it.
    pub exit_code: i32,
    /// How long it ran.
    pub duration_ms: u64,
    /// How many bytes of standard output come.
    pub stdout_bytes: u64,
    /// How many bytes of standard error come after them.
    pub stderr_bytes: u64,
    /// How many more bytes of standard output there were.
    #[serde(default)]
    pub stdout_dropped: u64,
    /// How many more bytes of standard error there were.
    #[serde(default)]
    pub stderr_dropped: u64,
}

/// Body of [`SPAWN`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// What it is called from now on: 1 to 40 characters of `0-9a-z`.
    pub process_id: String,
    /// What to run.
    pub program: Program,
    /// With a terminal of this size.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// When it and all it has started are killed, in milliseconds; never when absent.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// From left to right.
    pub cols: u16,
    /// From top to bottom.
    pub rows: u16,
}

/// Answer of [`SPAWN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// Its number in the sandbox.
    pub pid: i32,
    /// When, in milliseconds since 1970.
    pub started_at_ms: u64,
}

/// Names a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessName {
    /// Which.
    pub process_id: String,
}

/// Answer of [`STATUS`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its exit code, once it has ended.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Processor time per time, in percent of one processor: since the last question, or since the start. With all it has started.
    pub cpu_pct: f64,
    /// Resident memory in bytes, with all it has started.
    pub mem_bytes: u64,
}

/// Body of [`STDIN`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stdin {
    /// To which.
    pub process_id: String,
    /// What it reads, in base64.
    pub data_b64: String,
}

/// Answer of [`STDIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// As much as the program's buffer took.
    pub written_bytes: u64,
}

/// Body of [`KILL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// Which.
    pub process_id: String,
    /// How.
    pub signal: Signal,
}

/// What a program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
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

/// Body of [`RESIZE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Whose terminal.
    pub process_id: String,
    /// To what.
    pub size: TerminalSize,
}

/// One of a program's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output, and all that a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line of [`OUTPUT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// What it wrote.
    Data {
        /// Where to.
        stream: OutputStream,
        /// What, in base64.
        data_b64: String,
        /// How many bytes before this were dropped, because the reader was too slow or came too late.
        #[serde(default)]
        dropped: u64,
    },
    /// It has ended.
    Exit {
        /// Its exit code.
        exit_code: i32,
    },
}
