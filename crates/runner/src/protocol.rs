//! The protocol between the server and the app runner of a sandbox.
//!
//! The protocol uses one unix socket with any number of connections. A connection carries one request and its answers
//! as frames: a length of four bytes (little-endian) and that many bytes of JSON. A stream of bytes is a sequence of
//! frames too, ended by an empty frame. The server distrusts the app runner, which runs code of callers.

use std::io;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The path of the configuration in the sandbox.
pub(crate) const CONFIG_PATH: &str = "/run/casement/in/runner.json";
/// The path of the egress socket in the sandbox.
pub(crate) const EGRESS_PATH: &str = "/run/casement/egress/egress.sock";
/// The paths of the loaders in the sandbox.
pub(crate) const LOADER_PYTHON: &str = "/run/casement/in/loader.py";
pub(crate) const LOADER_NODE: &str = "/run/casement/in/loader.mjs";
/// The path of Node in the sandbox.
pub(crate) const NODE: &str = "/run/casement/node";
/// The path of a deployment in the sandbox, the same for builds and calls, because installed packages contain their own
/// path.
pub(crate) const DEPLOYMENT: &str = "/home/casement/deployment";
/// The paths of the program and of its Python packages in the sandbox.
pub(crate) const APP: &str = "/home/casement/deployment/app";
pub(crate) const VENV: &str = "/home/casement/deployment/venv";

/// The longest frame in bytes: a payload or an output of 1 MiB, escaped as JSON, in its message.
pub(crate) const MAX_FRAME_BYTES: usize = 16 << 20;
/// The longest frame of a stream, in bytes.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// The configuration of a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The port of the egress proxy on loopback.
    pub(crate) proxy_port: u16,
    /// The API's address in the sandbox, if the sandbox may reach the API.
    pub(crate) base: Option<Base>,
    /// The memory limit of all processes and files together, in bytes, if the kernel enforces no limit.
    pub(crate) memory_bytes: Option<u64>,
}

/// The address of Casement's API, for programs that ignore proxies.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Base {
    /// The address in the sandbox.
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// `host:port`, for `CONNECT`.
    pub(crate) authority: String,
}

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Hold the sandbox. It ends with this connection, unless a call has begun.
    Hold,
    /// Unpack the ZIP archive that follows as a stream, to the program's path.
    Unpack { top: Option<String> },
    /// Send the program and its dependencies as a stream: a compressed archive.
    Pack,
    /// Send a file as a stream.
    Read {
        path: String,
        /// The maximum number of bytes.
        #[serde(rename = "most")]
        max: u64,
    },
    /// Run a program to its end.
    Command(Command),
    /// Start the process for the call, and answer when it is loaded.
    Load(Command),
    /// Give the loaded process its call.
    Call(CallParams),
    /// Send the lines from this number on, and then the outcome of the call.
    Follow { from: u64 },
}

/// A program to run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Command {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: String,
    /// The timeout in seconds.
    pub(crate) seconds: u64,
}

/// Shows only the program, because the other fields may contain secrets.
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
    /// The payload as JSON text.
    pub(crate) payload: Option<String>,
    /// The longest output, in bytes of JSON text.
    pub(crate) output_bytes: u64,
    /// The seconds until the call's deadline. The sandbox ends itself soon after it if the call still runs.
    pub(crate) seconds: u64,
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The request was carried out. Comes after the stream, if the answer has one.
    Done,
    /// The request was not carried out. The reason is for people.
    Refused { reason: String },
    /// Output of a program.
    Lines { lines: Vec<OutputLine> },
    /// The end of a program.
    Exit(Exit),
    /// The process is loaded and waits for its call, with the registered apps.
    Loaded { apps: Vec<App> },
    /// The call has ended.
    Ended(Outcome),
}

/// A line of output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OutputLine {
    pub(crate) number: u64,
    /// The time at which the line was read, in milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) text: String,
}

/// The exit of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    /// The program timed out.
    Late,
    /// The sandbox exceeded its memory limit.
    OutOfMemory,
}

/// An app that an entrypoint registers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) actions: Vec<String>,
}

/// The outcome of a call, or of a failed load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The action returned. The output is JSON text; `None` if there is no output.
    Returned { output: Option<String> },
    /// The action raised an error, or does not exist.
    Raised { reason: String },
    /// The output is not JSON, or is too long.
    Unfit { reason: String },
    /// The process ended before the action returned.
    Died { exit: Exit },
    /// The sandbox ended without a result.
    Lost,
}

/// Sends one frame.
pub(crate) async fn send<W: AsyncWrite + Unpin>(to: &mut W, words: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(words)?;
    send_bytes(to, &body).await
}

/// Sends one frame of bytes; an empty frame ends a stream.
pub(crate) async fn send_bytes<W: AsyncWrite + Unpin>(to: &mut W, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut whole = Vec::with_capacity(body.len() + 4);
    whole.extend_from_slice(&length.to_le_bytes());
    whole.extend_from_slice(body);
    to.write_all(&whole).await
}

/// Reads the next frame; `None` at the end of the connection.
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

/// Reads the next message; `None` at the end of the connection.
pub(crate) async fn next<T: DeserializeOwned, R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<T>> {
    let Some(body) = next_bytes(from).await? else { return Ok(None) };
    serde_json::from_slice(&body).map(Some).map_err(io::Error::from)
}
