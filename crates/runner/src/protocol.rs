//! What the server and the first program of a sandbox say to each other.
//!
//! Over one unix socket, as often as wanted: a connection carries one request and its answers, as frames: a length of four bytes
//! (little-endian) and so many bytes of JSON. Where bytes follow, they come as frames too, up to an empty one. Both sides take what
//! they hear for hostile: the inside runs what a caller has sent.

use std::io;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Where the inside finds its configuration.
pub(crate) const CONFIG_PATH: &str = "/run/casement/in/runner.json";
/// Where the inside finds the way out.
pub(crate) const EGRESS_PATH: &str = "/run/casement/egress/egress.sock";
/// Where the inside finds its loaders.
pub(crate) const LOADER_PYTHON: &str = "/run/casement/in/loader.py";
pub(crate) const LOADER_NODE: &str = "/run/casement/in/loader.mjs";
/// Where Node lies inside.
pub(crate) const NODE: &str = "/run/casement/node";
/// Where a program lies inside, while it is built and when it runs: what is installed names its own place.
pub(crate) const PLACE: &str = "/home/casement/deployment";
/// The program itself, and what was installed for it where that is not beside it.
pub(crate) const APP: &str = "/home/casement/deployment/app";
pub(crate) const VENV: &str = "/home/casement/deployment/venv";

/// The longest frame: a payload or a result of 1 MiB, however JSON writes it, and what stands around it.
pub(crate) const MAX_FRAME_BYTES: usize = 16 << 20;
/// How many bytes go into one frame of a stream.
pub(crate) const PART: usize = 256 << 10;

/// What a sandbox is told at its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The port of the way out on the loopback.
    pub(crate) proxy_port: u16,
    /// Where the API is reached from inside, and what to ask the way out for.
    pub(crate) base: Option<Base>,
    /// What all processes and files may hold of the memory together, in bytes, where nothing else holds them down.
    pub(crate) memory_bytes: Option<u64>,
}

/// The way to Casement itself, for programs that know of no proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Base {
    /// An address of the sandbox's own.
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// `host:port`, as it is asked for with `CONNECT`.
    pub(crate) authority: String,
}

/// What can be asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Stay. The sandbox ends when this connection does, unless a call has begun.
    Hold,
    /// The bytes of a ZIP archive follow; unpack them to the program's place.
    Unpack { top: Option<String> },
    /// Answer the place of the program as a compressed archive.
    Pack,
    /// Answer the bytes of a file.
    Read { path: String, most: u64 },
    /// Run a program to its end.
    Command(Command),
    /// Start the process that will take the call, and answer when it is loaded.
    Load(Command),
    /// Give the loaded process its call.
    Call(CallParams),
    /// Answer the lines from this number on, and how the call ended.
    Follow { from: u64 },
}

/// A program to run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Command {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: String,
    /// For how long it may run, in seconds.
    pub(crate) seconds: u64,
}

/// Names the program, and nothing that may be a secret.
impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command").field("program", &self.argv.first()).finish_non_exhaustive()
    }
}

/// The call of an action.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallParams {
    pub(crate) invocation: String,
    pub(crate) app: String,
    pub(crate) action: String,
    /// JSON text.
    pub(crate) payload: Option<String>,
    /// The longest result, in bytes of JSON text.
    pub(crate) output_bytes: u64,
    /// After how many seconds the sandbox ends by itself if nobody has ended it.
    pub(crate) seconds: u64,
}

/// What is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It was done; bytes may follow.
    Done,
    /// It cannot be done, for people.
    Refused { reason: String },
    /// What a program has written.
    Lines { lines: Vec<OutputLine> },
    /// A program has ended.
    Exit(Exit),
    /// The process waits for its call, and has registered this.
    Loaded { apps: Vec<App> },
    /// The call has ended.
    Ended(Outcome),
}

/// A line that was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OutputLine {
    pub(crate) number: u64,
    /// Milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) text: String,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    /// It took longer than it may.
    Late,
    /// With all that it started it used more memory than it may.
    OutOfMemory,
}

/// What an entrypoint registers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) actions: Vec<String>,
}

/// How a call, or loading, ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The action returned; JSON text of what it returned, if anything.
    Returned { output: Option<String> },
    /// The action raised, or there is none such.
    Raised { reason: String },
    /// What it returned is not JSON, or too long.
    Unfit { reason: String },
    /// The process ended before that.
    Died { exit: Exit },
    /// The sandbox ended before anything was heard of it.
    Lost,
}

/// Sends one frame.
pub(crate) async fn send<W: AsyncWrite + Unpin>(to: &mut W, words: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(words)?;
    send_bytes(to, &body).await
}

/// Sends one frame of bytes; an empty one ends a stream of them.
pub(crate) async fn send_bytes<W: AsyncWrite + Unpin>(to: &mut W, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut whole = Vec::with_capacity(body.len() + 4);
    whole.extend_from_slice(&length.to_le_bytes());
    whole.extend_from_slice(body);
    to.write_all(&whole).await
}

/// The next frame, or `None` at the end of the connection.
pub(crate) async fn next_bytes<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    Ok(Some(body))
}

/// The next words, or `None` at the end of the connection.
pub(crate) async fn next<T: DeserializeOwned, R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<T>> {
    let Some(body) = next_bytes(from).await? else { return Ok(None) };
    serde_json::from_slice(&body).map(Some).map_err(io::Error::from)
}
