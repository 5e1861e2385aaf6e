//! A running script, and how its process ends.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use super::process::{MessageKind, Process, RunnerMessage};
use casement_agent_protocol::script::Tab;

/// The timeout for the end of a process that broke its connection.
const END_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) enum Outcome {
    Message(RunnerMessage),
    /// The process ended before the script did.
    Ended,
    TimedOut,
    /// The executor was stopped.
    Stopped,
}

/// A script and its process. No other process of its executor connects to the browser until this one has ended in any
/// way.
pub(super) struct RunningScript {
    parts: Option<(Process, OwnedMutexGuard<()>)>,
    /// The tab of its `page`, once it has one.
    pub(super) tab: Option<Tab>,
}

impl RunningScript {
    pub(super) fn new(process: Process, connected: OwnedMutexGuard<()>) -> Self {
        Self { parts: Some((process, connected)), tab: None }
    }

    /// Sends the script and waits for its end.
    pub(super) async fn run(&mut self, message: &Value, within: Duration) -> Outcome {
        let Some((process, _)) = &mut self.parts else { return Outcome::Ended };
        let deadline = Instant::now() + within;
        if !matches!(timeout_at(deadline, process.send(message)).await, Ok(Ok(()))) {
            return Outcome::Ended;
        }
        loop {
            match timeout_at(deadline, process.receive()).await {
                Ok(Ok(Some(
                    message @ RunnerMessage {
                        is: MessageKind::Done | MessageKind::Failed | MessageKind::Blocked, ..
                    },
                ))) => {
                    return Outcome::Message(message);
                }
                Ok(Ok(Some(message))) => self.tab = message.tab.or(self.tab.take()),
                Ok(Ok(None) | Err(_)) => return Outcome::Ended,
                Err(_) => return Outcome::TimedOut,
            }
        }
    }

    /// Takes the standard output and error.
    pub(super) fn take_output(&mut self) -> (String, String) {
        self.parts.as_mut().map(|(process, _)| process.take_output()).unwrap_or_default()
    }

    /// Waits for the end of a process that broke its connection. Returns its process id and exit status.
    pub(super) async fn wait_for_end(&mut self) -> (Option<u32>, Option<ExitStatus>) {
        match &mut self.parts {
            Some((process, _)) => wait_for_end(process).await,
            None => (None, None),
        }
    }

    pub(super) async fn end(&mut self) {
        if let Some((process, _connected)) = self.parts.take() {
            process.end().await;
        }
    }
}

impl Drop for RunningScript {
    fn drop(&mut self) {
        if let Some((process, connected)) = self.parts.take() {
            tokio::spawn(async move {
                process.end().await;
                drop(connected);
            });
        }
    }
}

/// Waits for the end of a process that broke its connection. Returns its process id and exit status.
pub(super) async fn wait_for_end(process: &mut Process) -> (Option<u32>, Option<ExitStatus>) {
    let pid = process.pid();
    (pid, process.wait(END_TIMEOUT).await)
}

pub(super) fn timed_out(limit: Duration) -> String {
    format!("timed out after {} s", limit.as_secs_f64())
}

/// Returns true if the process was ended by a signal or because of its memory use.
pub(super) fn has_crashed(status: Option<ExitStatus>, stderr: &str) -> bool {
    let signalled = |status: ExitStatus| status.signal().is_some() || matches!(status.code(), Some(129..=192));
    stderr.contains("JavaScript heap out of memory") || status.is_some_and(signalled)
}

pub(super) fn describe_end(status: Option<ExitStatus>, stderr: &str) -> String {
    if stderr.contains("JavaScript heap out of memory") {
        return "the script used more memory than it may have".to_owned();
    }
    match status.map(|status| (status.code(), status.signal())) {
        // bubblewrap and shells report a signal in this way.
        Some((Some(code @ 129..=192), _)) => format!("the script's process ended by signal {}", code - 128),
        Some((Some(code), _)) => format!("the script ended its process with exit code {code}"),
        Some((None, Some(signal))) => format!("the script's process ended by signal {signal}"),
        _ => "the script's process ended unexpectedly".to_owned(),
    }
}
