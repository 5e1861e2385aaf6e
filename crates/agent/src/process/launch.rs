//! Starts a program: its session, its environment, its directory, its limits, and the agent's ends of its pipes.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Resource, getrlimit};
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};

use super::tree::MARK;
use crate::path_text::from_text;
use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::process::{OutputStream, Program, TerminalSize};

/// Creates a session and a process group, and executes the program in the same process, so that the process id is the
/// program's.
const SETSID: &str = "/usr/bin/setsid";
/// Sets limits and executes the next program in the same process.
const PRLIMIT: &str = "/usr/bin/prlimit";
const SHELL: &str = "/bin/sh";
/// The number of processes and threads that a caller's programs leave to the agent and the browser.
const RESERVE: u64 = 256;
/// The number of bytes read at once.
const CHUNK: usize = 16 << 10;

/// A started program.
pub(crate) struct Launched {
    pub(crate) child: Child,
    pub(crate) pid: Pid,
    /// The agent's end of the standard input, if there is one.
    pub(crate) stdin: Option<Sender>,
    /// The agent's ends of the outputs; a terminal has only one.
    pub(crate) outputs: Vec<(OutputStream, Receiver)>,
    /// The agent's end of the terminal, if there is one.
    pub(crate) terminal: Option<OwnedFd>,
}

/// The source of a program's standard input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    Nothing,
    Pipe,
    Terminal(TerminalSize),
}

/// The standard input, output and error of a program, and the agent's ends of them.
struct Ends {
    stdio: [Stdio; 3],
    stdin: Option<Sender>,
    outputs: Vec<(OutputStream, Receiver)>,
    terminal: Option<OwnedFd>,
}

/// Starts `program` under the name `name`, in the environment of the sandbox with the additions of the program.
pub(crate) fn launch(
    name: &str,
    program: &Program,
    input: Input,
    environment: &[(OsString, OsString)],
) -> Result<Launched, Refusal> {
    let internal = |error: io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => {
            Refusal::new(ErrorCode::LimitReached, "the session has no room for more open files")
        }
        _ => Refusal::new(ErrorCode::Failed, format_args!("the program could not be started: {error}")),
    };
    let ends = ends(input).map_err(internal)?;
    let mut command = words(program, matches!(input, Input::Terminal(_)));
    command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    if matches!(input, Input::Terminal(_)) {
        command.env("TERM", "xterm-256color");
    }
    command.envs(&program.env).env(MARK, name);
    let cwd = program.cwd.as_deref().map(from_text);
    if let Some(cwd) = cwd.as_deref().or_else(|| home(environment)) {
        enterable(cwd)?;
        command.current_dir(cwd);
    }
    let [stdin, stdout, stderr] = ends.stdio;
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let child = command.spawn().map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN | Errno::NOMEM) => {
            Refusal::new(ErrorCode::LimitReached, "the session runs as many processes as it may")
        }
        Some(Errno::TOOBIG) => {
            Refusal::new(ErrorCode::OutOfRange, "arguments and environment are too long together").of_field("args")
        }
        _ => internal(error),
    })?;
    // The command holds the program's ends of the pipes, which would never be closed.
    drop(command);
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.ok_or_else(|| Refusal::new(ErrorCode::Internal, "a program without a number"))?;
    Ok(Launched { child, pid, stdin: ends.stdin, outputs: ends.outputs, terminal: ends.terminal })
}

fn home(environment: &[(OsString, OsString)]) -> Option<&Path> {
    let (_, home) = environment.iter().find(|(name, _)| name == "HOME")?;
    Some(Path::new(home))
}

fn enterable(cwd: &Path) -> Result<(), Refusal> {
    let is_directory = std::fs::metadata(cwd).is_ok_and(|about| about.is_dir());
    if is_directory && rustix::fs::access(cwd, Access::EXEC_OK).is_ok() {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::NotADirectory, "is no directory that can be entered").of_field("cwd"))
}

fn words(program: &Program, terminal: bool) -> Command {
    let mut words: Vec<OsString> = Vec::new();
    // A program that starts others without a limit must leave enough for the browser, and for the agent to end the
    // program.
    if let Some(max) = getrlimit(Resource::Nproc).current {
        let max = max.saturating_sub(RESERVE.min(max / 4));
        words.extend([PRLIMIT.into(), format!("--nproc={max}:{max}").into(), "--".into()]);
    }
    words.push(SETSID.into());
    if terminal {
        words.push("--ctty".into());
    }
    words.push("--".into());
    match &program.args {
        Some(args) => {
            words.push(program.command.clone().into());
            words.extend(args.iter().map(OsString::from));
        }
        None => words.extend([SHELL.into(), "-c".into(), program.command.clone().into()]),
    }
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

fn ends(input: Input) -> io::Result<Ends> {
    if let Input::Terminal(size) = input {
        let (terminal, theirs) = terminal(size)?;
        rustix::io::ioctl_fionbio(&terminal, true)?;
        let stdio = [theirs.try_clone()?.into(), theirs.try_clone()?.into(), theirs.into()];
        // Not a pipe, but read and written like one.
        let outputs = vec![(OutputStream::Stdout, Receiver::from_owned_fd_unchecked(terminal.try_clone()?)?)];
        let stdin = Some(Sender::from_owned_fd_unchecked(terminal.try_clone()?)?);
        return Ok(Ends { stdio, stdin, outputs, terminal: Some(terminal) });
    }
    let ours = Receiver::from_owned_fd;
    let (stdout, out) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, err) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let outputs = vec![(OutputStream::Stdout, ours(stdout)?), (OutputStream::Stderr, ours(stderr)?)];
    let (stdin, theirs) = match input {
        Input::Pipe => {
            let (theirs, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            (Some(Sender::from_owned_fd(stdin)?), theirs.into())
        }
        Input::Nothing | Input::Terminal(_) => (None, Stdio::null()),
    };
    Ok(Ends { stdio: [theirs, out.into(), err.into()], stdin, outputs, terminal: None })
}

/// Opens a new terminal, and returns the agent's end and the program's end.
fn terminal(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
    resize(&ours, size)?;
    Ok((ours, theirs))
}

/// Sets the size of a terminal. The kernel notifies the program in the foreground.
pub(crate) fn resize(terminal: impl AsFd, size: TerminalSize) -> io::Result<()> {
    Ok(tcsetwinsize(terminal, Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 })?)
}

/// Passes the data from `end` to `take` until no more can arrive.
pub(crate) async fn drain(end: &Receiver, mut take: impl FnMut(&[u8])) {
    loop {
        if end.readable().await.is_err() {
            return;
        }
        // Not held while waiting, so that an idle program needs no buffer.
        let mut chunk = [0; CHUNK];
        match end.try_read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => take(chunk.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // A terminal that every program has closed.
            Err(_) => return,
        }
    }
}

/// Waits until `end` accepts data, and writes as much as it accepts.
pub(crate) async fn write_some(end: &Sender, data: &[u8]) -> io::Result<usize> {
    loop {
        end.writable().await?;
        match end.try_write(data) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return written,
        }
    }
}
