//! The REPL: one process that evaluates code of callers and retains its variables.
//!
//! Its process starts with the first evaluation and lives until it is reset, until an evaluation times out or ends it,
//! or until the session ends. An evaluation whose caller disconnects ends it too, because nothing else could stop it.

use std::time::Duration;

use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::MAX_REQUEST;
use super::process::{MessageKind, Process, RunnerMessage};
use super::runner::Runner;
use super::running::{describe_end, has_crashed, timed_out, wait_for_end};
use crate::random_id::new_id;
use crate::reply::{Answer, Refusal, ok, read_within};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::repl::{Content, EVALUATE, EvaluateCode, Evaluation, MAX_IMAGES, MAX_TEXT, MAX_WAITING};

/// The REPL of the session.
#[derive(Debug)]
pub(crate) struct Repl {
    runner: Arc<Runner>,
    /// The places of the running evaluation and the waiting ones.
    slots: Semaphore,
    /// The process between two evaluations. Locked during one, in order of arrival.
    process: AsyncMutex<Option<Process>>,
    /// The id of the process that was started last.
    id: Mutex<String>,
    /// Locked while a process connects to the browser.
    connected: AsyncMutex<()>,
}

impl Repl {
    pub(crate) fn new(runner: Arc<Runner>) -> Self {
        let (process, connected) = Default::default();
        Self { runner, slots: Semaphore::new(MAX_WAITING + 1), process, id: Mutex::new(new_id()), connected }
    }

    /// Serves `/v1/repl/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            EVALUATE => ok(&self.evaluate(read_within(body, MAX_REQUEST).await?).await?),
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn evaluate(&self, request: EvaluateCode) -> Result<Evaluation, Refusal> {
        self.runner.folder()?;
        let Ok(_slot) = self.slots.try_acquire() else {
            let message = format_args!("{MAX_WAITING} calls of the REPL wait already");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        };
        let arrived_at = Instant::now();
        let run = Duration::from_millis(request.timeout_ms);
        let total = request.within_ms.map_or(Duration::MAX, Duration::from_millis);
        let wait = run.min(total);
        let Ok(mut place) = timeout(wait, self.process.lock()).await else {
            let error = format!("{}: the calls before it had not ended", timed_out(wait));
            return Ok(Output::default().failed(self.id.lock().clone(), error));
        };
        let process = place.take();
        let mut process = self.ready(process, request.reset).await?;
        let left = total.saturating_sub(arrived_at.elapsed());
        let limit = if left < run { total } else { run };
        let id = self.id.lock().clone();
        let mut output = Output::default();
        let mut abandoned = AbandonGuard { runner: &self.runner, is_armed: true };
        let begun_at = Instant::now();
        let outcome = match request.code.is_empty() {
            true => Outcome::Done(Default::default()),
            false => self.run(&mut process, &request.code, begun_at + run.min(left), &mut output).await,
        };
        let mut evaluation = match outcome {
            Outcome::Done(Done { error, stack }) => {
                *place = Some(process);
                output.ended(id, error, stack)
            }
            Outcome::Failed(message) => {
                *place = Some(process);
                return Err(Refusal::new(ErrorCode::BrowserHung, message));
            }
            Outcome::Blocked => {
                *place = Some(process);
                abandoned.is_armed = false;
                return Err(self.runner.blocked());
            }
            Outcome::TimedOut => {
                process.end().await;
                self.runner.free_stuck_page().await;
                output.terminated(id, timed_out(limit))
            }
            Outcome::Ended => {
                let (pid, status) = wait_for_end(&mut process).await;
                let (_, stderr) = process.take_output();
                process.end().await;
                if has_crashed(status, &stderr) {
                    self.runner.report_crash(pid);
                }
                output.terminated(id, describe_end(status, &stderr))
            }
        };
        abandoned.is_armed = false;
        evaluation.duration_ms = u64::try_from(begun_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(evaluation)
    }

    /// Returns the process if it lives and is not reset, or a new one.
    async fn ready(&self, process: Option<Process>, reset: bool) -> Result<Process, Refusal> {
        if let Some(mut process) = process {
            if !reset && process.wait(Duration::ZERO).await.is_none() {
                return Ok(process);
            }
            process.end().await;
        }
        self.runner.usable_browser()?;
        let process = self.runner.start_process(&self.connected).await?;
        *self.id.lock() = new_id();
        Ok(process)
    }

    /// Evaluates code until the deadline.
    async fn run(&self, process: &mut Process, code: &str, deadline: Instant, output: &mut Output) -> Outcome {
        let message = json!({
            "is": "evaluate", "code": code, "endpoint": self.runner.endpoint(), "others": *self.runner.executor_tabs.lock(),
            "downloads": self.runner.downloads(),
        });
        if !matches!(timeout_at(deadline, process.send(&message)).await, Ok(Ok(()))) {
            return Outcome::Ended;
        }
        loop {
            let message = match timeout_at(deadline, process.receive()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None) | Err(_)) => return Outcome::Ended,
                Err(_) => return Outcome::TimedOut,
            };
            // The streams of the process are those of programs that the code has started.
            match message {
                RunnerMessage { is: MessageKind::Output, content: Some(content), .. } => output.add(content),
                RunnerMessage { is: MessageKind::Done, error, stack, truncated, .. } => {
                    output.is_truncated |= truncated;
                    return Outcome::Done(Done { error, stack });
                }
                RunnerMessage { is: MessageKind::Blocked, .. } => return Outcome::Blocked,
                RunnerMessage { is: MessageKind::Failed, error, .. } => {
                    let why = error.unwrap_or_default();
                    return Outcome::Failed(why.lines().next().unwrap_or_default().chars().take(300).collect());
                }
                _ => {}
            }
        }
    }
}

/// Frees the page if the caller disconnects, which ends the process, or if the process could not connect.
struct AbandonGuard<'a> {
    runner: &'a Arc<Runner>,
    is_armed: bool,
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            let runner = Arc::clone(self.runner);
            tokio::spawn(async move { runner.free_stuck_page().await });
        }
    }
}

enum Outcome {
    Done(Done),
    /// The process could not connect to the browser; no code was run.
    Failed(String),
    /// A dialog is open that the code does not know; no code was run.
    Blocked,
    /// The process ended before the code did.
    Ended,
    TimedOut,
}

/// The end of an evaluation; without an error, it succeeded.
#[derive(Default)]
struct Done {
    error: Option<String>,
    stack: Option<String>,
}

/// The output of an evaluation, within its bounds.
#[derive(Default)]
struct Output {
    content: Vec<Content>,
    text_bytes: usize,
    image_bytes: usize,
    is_truncated: bool,
}

impl Output {
    /// The maximum number of items.
    const MAX_ITEMS: usize = 10_000;

    /// Adds an item, unless there are too many. The process observes the same bounds; code of a caller can break them.
    fn add(&mut self, content: Content) {
        match &content {
            Content::Text { text, .. } => self.text_bytes += text.len(),
            Content::Image { data_b64, .. } => self.image_bytes += data_b64.len(),
        }
        if self.text_bytes > MAX_TEXT || self.image_bytes > MAX_IMAGES || self.content.len() >= Self::MAX_ITEMS {
            self.is_truncated = true;
        } else {
            self.content.push(content);
        }
    }

    fn ended(self, repl_id: String, error: Option<String>, stack: Option<String>) -> Evaluation {
        Evaluation {
            repl_id,
            success: error.is_none(),
            content: self.content,
            content_truncated: self.is_truncated,
            duration_ms: 0,
            error,
            stack,
            terminated: false,
        }
    }

    fn failed(self, repl_id: String, error: String) -> Evaluation {
        self.ended(repl_id, Some(error), None)
    }

    fn terminated(self, repl_id: String, error: String) -> Evaluation {
        Evaluation { terminated: true, ..self.failed(repl_id, error) }
    }
}
