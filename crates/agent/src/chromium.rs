//! The browser process: starting it, learning where it listens, why it ended.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;

use crate::downloads;
use crate::flags::{self, Plan};
use crate::protocol::{AgentConfig, FailureCode};
use crate::session_log;

/// How long the debugging port may take. Generous: many may start at once on a busy machine.
const PORT: Duration = Duration::from_secs(45);
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
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
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
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        // Already gone is as good as killed.
        drop(self.child.start_kill());
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
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
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

    #[test]
    fn the_websocket_is_taken_from_the_line_that_names_it_only() {
        let line = "DevTools listening on ws://127.0.0.1:9222/devtools/browser/0a-b\n";
        assert_eq!(websocket_path(line).as_deref(), Some("/devtools/browser/0a-b"));
        assert_eq!(websocket_path("[1:1:ERROR] DevTools listening on ws://127.0.0.1:9222/devtools/browser/x"), None);
        assert_eq!(websocket_path("DevTools listening on ws://127.0.0.1:9222/elsewhere"), None);
    }
}
