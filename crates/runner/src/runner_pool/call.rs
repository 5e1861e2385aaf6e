//! One call, from its process to its result.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::deployment::{Line, Lines};
use casement_domain::ids::InvocationId;
use casement_domain::invocation::{Call, RunFailure};
use tokio_util::sync::CancellationToken;

use super::Inner;
use crate::build::{clamped_time, truncated_line};
use crate::call_records::CallRecord;
use crate::failure;
use crate::host::AppSandbox;
use crate::link::{self, LineSink};
use crate::protocol::{Answer, CallParams, Outcome, OutputLine, Request, next};

/// The timeout for a process to take a call. The program may have blocked the process while it was loaded.
const TAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of processes that may have ended before they took the call, after which the call fails.
const MAX_REFUSALS: u32 = 5;

/// A call of a previous server process.
pub(super) struct AdoptedCall {
    pub(super) note: CallRecord,
    /// The sandbox of the call, if it still runs.
    pub(super) app_sandbox: Option<AppSandbox>,
}

/// Sends the call to a process, waits for its end and returns its output.
pub(super) async fn run(
    inner: &Arc<Inner>,
    call: Call,
    lines: Arc<dyn Lines>,
    cancellation: CancellationToken,
) -> Result<Option<String>, RunFailure> {
    let pool = inner.pool(&call.runnable);
    for _ in 0..MAX_REFUSALS {
        let app_sandbox = tokio::select! {
            app_sandbox = pool.take(call.limits) => app_sandbox.map_err(failure::host)?,
            () = cancellation.cancelled() => return Err(canceled()),
        };
        let note = CallRecord {
            sandbox: app_sandbox.id.clone(),
            output_bytes: call.limits.output_bytes,
            base: Some(call.runnable.environment.base_url.clone()),
            outcome: None,
        };
        inner.call_records.write(call.invocation, &note).map_err(failure::host)?;
        let start = tokio::select! {
            biased;
            () = cancellation.cancelled() => Err(canceled()),
            start = tokio::time::timeout(TAKE_TIMEOUT, give_call(inner, &app_sandbox, &call)) => match start {
                Ok(start) => start.map_err(failure::host),
                Err(_) => Err(failure::host("its process did not take it")),
            },
        };
        match start {
            Ok(CallStart::Taken) => {
                return follow_to_end(inner, call.invocation, note, app_sandbox, lines, cancellation).await;
            }
            Ok(CallStart::Refused) => app_sandbox.end().await,
            Err(failed) => {
                app_sandbox.end().await;
                return Err(failed);
            }
        }
    }
    Err(failure::died("its process ended while it waited for the call, and so did those after it"))
}

/// The result of sending a call to a process.
enum CallStart {
    Taken,
    /// The process ended before it took the call.
    Refused,
}

/// Waits for the end of an adopted call and returns its output.
pub(super) async fn resume(
    inner: &Arc<Inner>,
    id: InvocationId,
    adopted: AdoptedCall,
    lines: Arc<dyn Lines>,
    cancellation: CancellationToken,
) -> Result<Option<String>, RunFailure> {
    match adopted {
        AdoptedCall { note: CallRecord { outcome: Some(outcome), output_bytes, .. }, .. } => {
            failure::outcome(outcome, output_bytes)
        }
        AdoptedCall { app_sandbox: None, .. } => Err(failure::lost("its process ended while the server was away")),
        AdoptedCall { note, app_sandbox: Some(app_sandbox) } => {
            follow_to_end(inner, id, note, app_sandbox, lines, cancellation).await
        }
    }
}

async fn give_call(inner: &Inner, app_sandbox: &AppSandbox, call: &Call) -> std::io::Result<CallStart> {
    let left = call.deadline - inner.clock.now();
    let words = CallParams {
        invocation: call.invocation.to_string(),
        app: call.app.clone(),
        action: call.action.clone(),
        payload: call.payload.clone(),
        output_bytes: call.limits.output_bytes,
        seconds: u64::try_from(left.whole_seconds()).unwrap_or_default(),
    };
    // The process did not take a request that was not sent completely.
    let Ok(mut stream) = app_sandbox.ask(&Request::Call(words)).await else { return Ok(CallStart::Refused) };
    match next(&mut stream).await? {
        Some(Answer::Done) => Ok(CallStart::Taken),
        Some(Answer::Refused { .. }) => Ok(CallStart::Refused),
        _ => Err(std::io::Error::other("its process ended unexpectedly")),
    }
}

/// Follows the call to its end, records the result and ends the sandbox.
async fn follow_to_end(
    inner: &Inner,
    id: InvocationId,
    mut note: CallRecord,
    app_sandbox: AppSandbox,
    lines: Arc<dyn Lines>,
    cancellation: CancellationToken,
) -> Result<Option<String>, RunFailure> {
    let outcome = tokio::select! {
        biased;
        () = cancellation.cancelled() => {
            app_sandbox.end().await;
            return Err(canceled());
        }
        outcome = follow(inner, &app_sandbox, &*lines) => outcome,
    };
    let out_of_memory = app_sandbox.sandbox().is_ok_and(casement_sandbox::Sandbox::oom_killed);
    let died = matches!(outcome, None | Some(Outcome::Died { .. }));
    let outcome = match outcome {
        _ if died && out_of_memory => {
            Outcome::Raised { reason: "out of memory: its processes used more than they may have".to_owned() }
        }
        Some(outcome) => outcome,
        None => Outcome::Lost,
    };
    note.outcome = Some(outcome.clone());
    let written = inner.call_records.write(id, &note);
    if let Err(error) = written {
        tracing::error!(call = %id, %error, "cannot record the result of a call");
    }
    // The result is recorded, so the sandbox can end in the background.
    drop(app_sandbox);
    let end = failure::outcome(outcome, note.output_bytes);
    if died && out_of_memory { end.map_err(|failed| failure::died(failed.reason)) } else { end }
}

/// Forwards the lines of a call and returns its outcome; `None` if the connection to the sandbox broke.
async fn follow(inner: &Inner, app_sandbox: &AppSandbox, lines: &dyn Lines) -> Option<Outcome> {
    let from = lines.taken().await;
    let mut stream = app_sandbox.ask(&Request::Follow { from }).await.ok()?;
    match link::next_answer(&mut stream, &mut LineForwarder { inner, lines, next: from }).await {
        Ok(Answer::Ended(outcome)) => Some(outcome),
        _ => None,
    }
}

/// Forwards lines with new numbers, because the numbers of a sandbox are untrusted.
struct LineForwarder<'a> {
    inner: &'a Inner,
    lines: &'a dyn Lines,
    next: u64,
}

#[async_trait]
impl LineSink for LineForwarder<'_> {
    async fn push(&mut self, lines_in: Vec<OutputLine>) {
        let now = self.inner.clock.now();
        let line = |(number, lines_in): (u64, OutputLine)| Line {
            number,
            at: clamped_time(lines_in.at, now),
            text: truncated_line(lines_in.text),
        };
        let received: Vec<Line> = (self.next..).zip(lines_in).map(line).collect();
        self.next += received.len() as u64;
        self.lines.push(received).await;
    }
}

fn canceled() -> RunFailure {
    failure::died("the call was ended")
}
