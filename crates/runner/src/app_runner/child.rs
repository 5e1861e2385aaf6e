//! A child process: its start, its output, and the end of it and its descendants.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::lines::OutputBuffer;
use crate::protocol::{Command, Exit};

/// The descriptor of the channel between a loader and the app runner.
const CHANNEL_FD: i32 = 3;
/// The timeout for killed descendants to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A running child process.
#[derive(Debug)]
pub(super) struct ChildProcess {
    pub(super) child: Child,
    /// The app runner's end of the channel.
    pub(super) channel: Option<UnixStream>,
    pub(super) output: Arc<OutputBuffer>,
    reading: JoinHandle<()>,
}

impl ChildProcess {
    /// Starts the process.
    pub(super) fn start(command: &Command, output: Arc<OutputBuffer>) -> io::Result<Self> {
        let [program, arguments @ ..] = &command.argv[..] else { return Err(io::Error::other("no program is named")) };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut starting = tokio::process::Command::new(program);
        starting.args(arguments).env_clear().envs(command.env.iter().map(|(name, value)| (name, value)));
        starting.current_dir(&command.cwd).stdin(Stdio::null());
        // Both outputs use one pipe, so that lines stay in order.
        starting.stdout(Stdio::from(write.try_clone()?)).stderr(Stdio::from(write)).kill_on_drop(true);
        let mapping = FdMapping { parent_fd: OwnedFd::from(theirs), child_fd: CHANNEL_FD };
        starting.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
        let child = starting.spawn()?;
        let reading = tokio::spawn({
            let (output, read) = (Arc::clone(&output), Receiver::from_owned_fd(read)?);
            async move { output.take(read).await }
        });
        Ok(Self { child, channel: Some(UnixStream::from_std(ours)?), output, reading })
    }

    /// Ends the process and its descendants, and reads their remaining output.
    pub(super) async fn end(&mut self) {
        self.child.start_kill().ok();
        self.child.wait().await.ok();
        end_all_others().await;
        if tokio::time::timeout(KILL_TIMEOUT, &mut self.reading).await.is_err() {
            self.reading.abort();
        }
        self.output.close();
    }
}

/// Converts the exit status.
pub(super) fn exit(status: io::Result<ExitStatus>) -> Exit {
    match status {
        Ok(status) => status.code().map_or(Exit::Signal(status.signal().unwrap_or_default()), Exit::Code),
        Err(_) => Exit::Code(-1),
    }
}

/// Kills all processes of the sandbox except its init processes. Repeats this, because processes may fork meanwhile.
async fn end_all_others() {
    let deadline = tokio::time::Instant::now() + KILL_TIMEOUT;
    while kill_others() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns true if there was a process to kill.
fn kill_others() -> bool {
    let spared = [Some(Pid::INIT), Some(getpid()), getppid()];
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let others: Vec<Pid> = pids.filter(|pid| !spared.contains(&Some(*pid)) && is_alive(*pid)).collect();
    for pid in &others {
        kill_process(*pid, Signal::KILL).ok();
    }
    !others.is_empty()
}

/// Returns true if the process runs and is not a zombie.
fn is_alive(pid: Pid) -> bool {
    let about = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = about.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
