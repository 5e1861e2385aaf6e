//! The process of the browser: its start, its debugging path, its error output and its end.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;

use crate::flags::{self, Plan};
use crate::process::tree::{group_lives, signal};
use crate::session_log;
use crate::{downloads, extension_contexts};
use casement_agent_protocol::{AgentConfig, FailureCode};

/// The timeout of the debugging port. Generous, because many browsers may start at once on a busy machine.
const PORT_TIMEOUT: Duration = Duration::from_secs(45);
/// The timeout for killed processes to end, and the interval of the checks: the end of a group is not reported.
const GROUP_END_TIMEOUT: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The maximum number of buffered lines of the browser's error output, and of characters of each.
const TAIL_LINES: usize = 12;
const MAX_LINE_CHARS: usize = 400;

/// The reason why the browser did not start.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StartError {
    pub(crate) code: FailureCode,
    pub(crate) message: String,
}

impl StartError {
    pub(crate) fn new(code: FailureCode, message: impl std::fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }
}

type Tail = Arc<Mutex<VecDeque<String>>>;

/// The browser process. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Chromium {
    child: Child,
    tail: Tail,
    path: Option<oneshot::Receiver<String>>,
}

impl Chromium {
    /// Starts the process; the browser is not ready yet.
    pub(crate) fn spawn(config: &AgentConfig, plan: &Plan<'_>, display: Option<&str>) -> Result<Self, StartError> {
        let failed = |e: io::Error| StartError::new(FailureCode::BrowserSpawn, format_args!("starting Chromium: {e}"));
        downloads::prepare(&config.profile).map_err(failed)?;
        if let Err(error) = extension_contexts::enable(&config.profile, plan.extensions) {
            tracing::warn!(%error, "the extensions do not run in contexts of clients");
        }
        let mut command = Command::new(&config.chromium);
        command.args(flags::chromium_args(config, plan)).env_remove("DISPLAY").kill_on_drop(true);
        // A group of its own, so that all its processes can be killed at once.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        command.envs(flags::environment(plan.location));
        if let Some(display) = display {
            command.env("DISPLAY", display);
        }
        let mut child = command.spawn().map_err(failed)?;
        let tail = Tail::default();
        let (path_sender, path) = oneshot::channel();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(read_error_output(stderr, Arc::clone(&tail), path_sender));
        }
        Ok(Self { child, tail, path: Some(path) })
    }

    /// Waits until the debugging port is open, and returns the path of the browser's WebSocket.
    pub(crate) async fn debugging_path(&mut self) -> Result<String, StartError> {
        let Some(path) = self.path.take() else {
            return Err(StartError::new(FailureCode::DebuggingPort, "asked twice"));
        };
        match tokio::time::timeout(PORT_TIMEOUT, path).await {
            Ok(Ok(path)) => Ok(path),
            Ok(Err(_)) => Err(self.ended_early().await),
            Err(_) => Err(StartError::new(FailureCode::DebuggingPort, "Chromium did not open its debugging port")),
        }
    }

    async fn ended_early(&mut self) -> StartError {
        let status = tokio::time::timeout(Duration::from_secs(2), self.child.wait()).await;
        let end = status.ok().and_then(Result::ok).map_or_else(|| "is silent".to_owned(), |s| format!("ended: {s}"));
        let output = self.error_output();
        let code =
            if output.contains("No usable sandbox") { FailureCode::NoUsableSandbox } else { FailureCode::BrowserSpawn };
        StartError::new(code, format_args!("Chromium {end}; {output}"))
    }

    /// Returns the last lines of the browser's standard error.
    pub(crate) fn error_output(&self) -> String {
        let tail = self.tail.lock();
        tail.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// Returns the id of the main process while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the command line of the main process as the kernel reports it.
    pub(crate) fn argv(&self) -> Vec<String> {
        let Some(pid) = self.pid() else { return Vec::new() };
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Waits for the end of the main process.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills all processes of the browser, and waits until none runs: a process that outlives the browser could write
    /// into the next profile in the same directory.
    pub(crate) async fn kill_group(&mut self) {
        let group = self.group();
        if let Some(group) = group {
            signal(group, Signal::KILL);
        }
        drop(self.wait().await);
        wait_for_group_end(group).await;
    }

    /// Returns the process group, until the main process was waited for: its id may be reused after that.
    pub(crate) fn group(&self) -> Option<Pid> {
        self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    }
}

/// Waits until no process of a browser's group runs, after the browser itself has ended.
pub(crate) async fn wait_for_group_end(group: Option<Pid>) {
    let deadline = Instant::now() + GROUP_END_TIMEOUT;
    while let Some(group) = group.filter(|group| group_lives(*group)) {
        if Instant::now() >= deadline {
            tracing::warn!(group = group.as_raw_nonzero().get(), "processes of an ended browser still run");
            return;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Reads the error output until its end, because a full pipe would stop the browser. Buffers the last lines, and sends
/// the path of the debugging WebSocket.
async fn read_error_output(stderr: ChildStderr, tail: Tail, path_sender: oneshot::Sender<String>) {
    let mut reader = BufReader::with_capacity(1024, stderr);
    let mut path_sender = Some(path_sender);
    let mut line = Vec::new();
    loop {
        line.clear();
        // Bounded, so that a line without an end is read in pieces.
        match (&mut reader).take(4096).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        session_log::CHROMIUM.add(&line);
        let text = String::from_utf8_lossy(&line);
        if let Some(path) = websocket_path(&text)
            && let Some(sender) = path_sender.take()
        {
            drop(sender.send(path));
            continue;
        }
        let mut tail = tail.lock();
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(text.trim_end().chars().take(MAX_LINE_CHARS).collect());
    }
}

fn websocket_path(line: &str) -> Option<String> {
    let address = line.trim().strip_prefix("DevTools listening on ws://")?;
    let path = &address[address.find('/')?..];
    path.starts_with("/devtools/browser/").then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use casement_agent_protocol::Viewport;

    #[tokio::test]
    async fn no_process_of_a_killed_browser_runs_any_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let [text, program, child] = ["text", "browser", "child"].map(|name| dir.path().join(name));
        let script = format!("#!/bin/sh\nsleep 1000 &\necho $! > {0}.new; mv {0}.new {0}; wait\n", child.display());
        std::fs::write(&text, script).expect("a script");
        // A file that this process itself had open for writing may be busy: another test's child may still have it
        // open.
        let copy = std::process::Command::new("install").args(["-m", "755"]).args([&text, &program]).status();
        assert!(copy.expect("it starts").success(), "no copy");
        let viewport = Viewport { width: 800, height: 600, refresh_rate: 60 };
        let mut config = AgentConfig::new("n", true, viewport);
        (config.chromium, config.profile) = (program, dir.path().join("profile"));
        let location = &casement_agent_protocol::Location::default();
        let plan = Plan { viewport, location, extensions: &[], first_page: None, restore: false };
        let mut browser = Chromium::spawn(&config, &plan, None).expect("it starts");
        while !child.exists() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        let pid = std::fs::read_to_string(&child).expect("a number");
        browser.kill_group().await;
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z"), "{state}");
    }

    #[test]
    fn the_debugging_path_is_read_from_its_own_line_only() {
        let line = "DevTools listening on ws://127.0.0.1:9222/devtools/browser/0a-b\n";
        assert_eq!(websocket_path(line).as_deref(), Some("/devtools/browser/0a-b"));
        assert_eq!(websocket_path("[1:1:ERROR] DevTools listening on ws://127.0.0.1:9222/devtools/browser/x"), None);
        assert_eq!(websocket_path("DevTools listening on ws://127.0.0.1:9222/elsewhere"), None);
    }
}
