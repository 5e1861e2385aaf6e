//! The browser process: starting it, learning where it listens, why it ended.

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

use crate::downloads;
use crate::flags::{self, Plan};
use crate::process::tree::{group_lives, signal};
use crate::session_log;
use casement_agent_protocol::{AgentConfig, FailureCode};

/// How long the debugging port may take. Generous: many may start at once on a busy machine.
const PORT: Duration = Duration::from_secs(45);
/// How long processes that were killed may take to go, and how often it is looked whether they have: nothing tells of a group's end.
const GONE: Duration = Duration::from_secs(2);
const RECHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Lines of the browser's complaints kept for telling why it ended, and the bytes kept of each.
const TAIL_LINES: usize = 12;
const LINE_BYTES: usize = 400;

/// Why the browser did not come up.
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

/// The browser process. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Chromium {
    child: Child,
    tail: Tail,
    listening: Option<oneshot::Receiver<String>>,
}

impl Chromium {
    /// Starts the browser; it is not up yet.
    pub(crate) fn spawn(config: &AgentConfig, plan: &Plan<'_>, display: Option<&str>) -> Result<Self, StartError> {
        let failed = |e: io::Error| StartError::new(FailureCode::BrowserSpawn, format_args!("starting Chromium: {e}"));
        downloads::prepare(&config.profile).map_err(failed)?;
        let mut command = Command::new(&config.chromium);
        command.args(flags::chromium_args(config, plan)).env_remove("DISPLAY").kill_on_drop(true);
        // A group of its own, so that all of it can be ended at once.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        if let Some(display) = display {
            command.env("DISPLAY", display);
        }
        let mut child = command.spawn().map_err(failed)?;
        let tail = Tail::default();
        let (found, listening) = oneshot::channel();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(read_complaints(stderr, Arc::clone(&tail), found));
        }
        Ok(Self { child, tail, listening: Some(listening) })
    }

    /// Waits until the debugging port is open. Answers the path of the browser's WebSocket.
    pub(crate) async fn listening(&mut self) -> Result<String, StartError> {
        let Some(listening) = self.listening.take() else {
            return Err(StartError::new(FailureCode::DebuggingPort, "asked twice"));
        };
        match tokio::time::timeout(PORT, listening).await {
            Ok(Ok(path)) => Ok(path),
            Ok(Err(_)) => Err(self.ended_early().await),
            Err(_) => Err(StartError::new(FailureCode::DebuggingPort, "Chromium did not open its debugging port")),
        }
    }

    async fn ended_early(&mut self) -> StartError {
        let status = tokio::time::timeout(Duration::from_secs(2), self.child.wait()).await;
        let how = status.ok().and_then(Result::ok).map_or_else(|| "is silent".to_owned(), |s| format!("ended: {s}"));
        let complaints = self.complaints();
        let code = if complaints.contains("No usable sandbox") {
            FailureCode::NoUsableSandbox
        } else {
            FailureCode::BrowserSpawn
        };
        StartError::new(code, format_args!("Chromium {how}; {complaints}"))
    }

    /// The last lines it wrote to its standard error.
    pub(crate) fn complaints(&self) -> String {
        let tail = self.tail.lock();
        tail.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// Its main process, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Its command line as the kernel shows it.
    pub(crate) fn argv(&self) -> Vec<String> {
        let Some(pid) = self.pid() else { return Vec::new() };
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Waits for its end.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills it with all that it has started, and returns when nothing of it runs any more: a process that outlives the browser for a
    /// moment would write into whatever profile lies in the same place by then.
    pub(crate) async fn kill_whole(&mut self) {
        let group = self.group();
        if let Some(group) = group {
            signal(group, Signal::KILL);
        }
        drop(self.wait().await);
        gone(group).await;
    }

    /// The group of all that it has started, as long as it was not waited for: its number is its own until then.
    pub(crate) fn group(&self) -> Option<Pid> {
        self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    }
}

/// Waits until nothing of a browser's group runs any more, once the browser itself has ended.
pub(crate) async fn gone(group: Option<Pid>) {
    let deadline = Instant::now() + GONE;
    while let Some(group) = group.filter(|group| group_lives(*group)) {
        if Instant::now() >= deadline {
            tracing::warn!(?group, "processes of a browser that has ended still run");
            return;
        }
        tokio::time::sleep(RECHECK_INTERVAL).await;
    }
}

/// Reads what the browser writes as long as it lives (a full pipe would stop it), keeps the last lines, and tells the path of the
/// debugging WebSocket once it is named.
async fn read_complaints(stderr: ChildStderr, tail: Tail, found: oneshot::Sender<String>) {
    let mut reader = BufReader::with_capacity(1024, stderr);
    let mut found = Some(found);
    let mut line = Vec::new();
    loop {
        line.clear();
        // Bounded: a line without an end is read in pieces.
        match (&mut reader).take(4096).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        session_log::CHROMIUM.add(&line);
        let text = String::from_utf8_lossy(&line);
        if let Some(path) = websocket_path(&text)
            && let Some(found) = found.take()
        {
            drop(found.send(path));
            continue;
        }
        let mut tail = tail.lock();
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(text.trim_end().chars().take(LINE_BYTES).collect());
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
    async fn of_a_browser_that_is_killed_whole_nothing_runs_any_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let [text, program, child] = ["text", "browser", "child"].map(|name| dir.path().join(name));
        let script = format!("#!/bin/sh\nsleep 1000 &\necho $! > {0}.new; mv {0}.new {0}; wait\n", child.display());
        std::fs::write(&text, script).expect("a script");
        // A file that this process itself had open for writing may be busy: another test's child may still hold it.
        let copy = std::process::Command::new("install").args(["-m", "755"]).args([&text, &program]).status();
        assert!(copy.expect("it starts").success(), "no copy");
        let viewport = Viewport { width: 800, height: 600, refresh_rate: 60 };
        let mut config = AgentConfig::new("n", true, viewport);
        (config.chromium, config.profile) = (program, dir.path().join("profile"));
        let plan = Plan { viewport, extensions: &[], first_page: None, restore: false };
        let mut browser = Chromium::spawn(&config, &plan, None).expect("it starts");
        while !child.exists() {
            tokio::time::sleep(RECHECK_INTERVAL).await;
        }
        let pid = std::fs::read_to_string(&child).expect("a number");
        browser.kill_whole().await;
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z"), "{state}");
    }

    #[test]
    fn the_websocket_is_taken_from_the_line_that_names_it_only() {
        let line = "DevTools listening on ws://127.0.0.1:9222/devtools/browser/0a-b\n";
        assert_eq!(websocket_path(line).as_deref(), Some("/devtools/browser/0a-b"));
        assert_eq!(websocket_path("[1:1:ERROR] DevTools listening on ws://127.0.0.1:9222/devtools/browser/x"), None);
        assert_eq!(websocket_path("DevTools listening on ws://127.0.0.1:9222/elsewhere"), None);
    }
}
