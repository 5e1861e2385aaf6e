//! One call, from the process that takes it to its end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::deployment::{Line, Lines};
use casement_domain::ids::InvocationId;
use casement_domain::invocation::{Call, RunFailure};
use tokio_util::sync::CancellationToken;

use super::Inner;
use crate::build::{fitting, moment};
use crate::call_records::CallRecord;
use crate::failure;
use crate::host::AppSandbox;
use crate::link::{self, LineSink};
use crate::protocol::{Answer, CallParams, Outcome, OutputLine, Request, next};

/// How long a process may let a call wait before it takes it. What was loaded may have left something behind that stops it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many processes may have ended just before they were given a call.
const MOST_REFUSALS: u32 = 5;

/// A call of an earlier life of the server.
pub(super) struct AdoptedCall {
    pub(super) note: CallRecord,
    /// Where it runs, if that is still there.
    pub(super) room: Option<AppSandbox>,
}

/// Has a process take the call, and waits for its end.
pub(super) async fn run(
    inner: &Arc<Inner>,
    call: Call,
    lines: Arc<dyn Lines>,
    unwanted: CancellationToken,
) -> Result<Option<String>, RunFailure> {
    let pool = inner.pool(&call.runnable);
    for _ in 0..MOST_REFUSALS {
        let room = tokio::select! {
            room = pool.take(call.limits) => room.map_err(failure::host)?,
            () = unwanted.cancelled() => return Err(canceled()),
        };
        let note = CallRecord {
            sandbox: room.id.clone(),
            output_bytes: call.limits.output_bytes,
            base: Some(call.runnable.environment.base_url.clone()),
            outcome: None,
        };
        inner.call_records.write(call.invocation, &note).map_err(failure::host)?;
        let begun = tokio::select! {
            biased;
            () = unwanted.cancelled() => Err(canceled()),
            begun = tokio::time::timeout(PATIENCE, begin(inner, &room, &call)) => match begun {
                Ok(begun) => begun.map_err(failure::host),
                Err(_) => Err(failure::host("its process did not take it")),
            },
        };
        match begun {
            Ok(Begun::Taken) => return mind(inner, call.invocation, note, room, lines, unwanted).await,
            Ok(Begun::Refused) => room.end().await,
            Err(failed) => {
                room.end().await;
                return Err(failed);
            }
        }
    }
    Err(failure::died("its process ended while it waited for the call, and so did those after it"))
}

/// What a process made of a call.
enum Begun {
    Taken,
    /// It has ended, and nothing of the call was begun.
    Refused,
}

/// Waits for the end of a call of an earlier life.
pub(super) async fn resume(
    inner: &Arc<Inner>,
    id: InvocationId,
    adopted: AdoptedCall,
    lines: Arc<dyn Lines>,
    unwanted: CancellationToken,
) -> Result<Option<String>, RunFailure> {
    match adopted {
        AdoptedCall { note: CallRecord { outcome: Some(outcome), output_bytes, .. }, .. } => {
            failure::outcome(outcome, output_bytes)
        }
        AdoptedCall { room: None, .. } => Err(failure::lost("its process ended while the server was away")),
        AdoptedCall { note, room: Some(room) } => mind(inner, id, note, room, lines, unwanted).await,
    }
}

async fn begin(inner: &Inner, room: &AppSandbox, call: &Call) -> std::io::Result<Begun> {
    let left = call.deadline - inner.clock.now();
    let words = CallParams {
        invocation: call.invocation.to_string(),
        app: call.app.clone(),
        action: call.action.clone(),
        payload: call.payload.clone(),
        output_bytes: call.limits.output_bytes,
        seconds: u64::try_from(left.whole_seconds()).unwrap_or_default(),
    };
    // What was not asked whole was not heard.
    let Ok(mut stream) = room.ask(&Request::Call(words)).await else { return Ok(Begun::Refused) };
    match next(&mut stream).await? {
        Some(Answer::Done) => Ok(Begun::Taken),
        Some(Answer::Refused { .. }) => Ok(Begun::Refused),
        _ => Err(std::io::Error::other("its process broke off")),
    }
}

/// Follows it to its end, writes that down and ends the sandbox.
async fn mind(
    inner: &Inner,
    id: InvocationId,
    mut note: CallRecord,
    room: AppSandbox,
    lines: Arc<dyn Lines>,
    unwanted: CancellationToken,
) -> Result<Option<String>, RunFailure> {
    let outcome = tokio::select! {
        biased;
        () = unwanted.cancelled() => {
            room.end().await;
            return Err(canceled());
        }
        outcome = follow(inner, &room, &*lines) => outcome,
    };
    let out_of_memory = room.sandbox().is_ok_and(casement_sandbox::Sandbox::oom_killed);
    let died = matches!(outcome, None | Some(Outcome::Died { .. }));
    let outcome = match outcome {
        _ if died && out_of_memory => {
            Outcome::Raised { reason: "out of memory: its processes used more than they may have".to_owned() }
        }
        Some(outcome) => outcome,
        None => Outcome::Lost,
    };
    note.outcome = Some(outcome.clone());
    let noted = inner.call_records.write(id, &note);
    if let Err(error) = noted {
        tracing::error!(call = %id, %error, "the end of a call cannot be written down");
    }
    // What ran in it has ended by now, and its end is written down: the rest is nobody's time but ours.
    drop(room);
    let end = failure::outcome(outcome, note.output_bytes);
    if died && out_of_memory { end.map_err(|failed| failure::died(failed.reason)) } else { end }
}

/// Its lines and how it ended; nothing when the sandbox broke off.
async fn follow(inner: &Inner, room: &AppSandbox, lines: &dyn Lines) -> Option<Outcome> {
    let from = lines.taken().await;
    let mut stream = room.ask(&Request::Follow { from }).await.ok()?;
    match link::words(&mut stream, &mut Hand { inner, lines, next: from }).await {
        Ok(Answer::Ended(outcome)) => Some(outcome),
        _ => None,
    }
}

/// Hands lines on. Their numbers are ours: an inside may tell any.
struct Hand<'a> {
    inner: &'a Inner,
    lines: &'a dyn Lines,
    next: u64,
}

#[async_trait]
impl LineSink for Hand<'_> {
    async fn hear(&mut self, said: Vec<OutputLine>) {
        let now = self.inner.clock.now();
        let line =
            |(number, said): (u64, OutputLine)| Line { number, at: moment(said.at, now), text: fitting(said.text) };
        let heard: Vec<Line> = (self.next..).zip(said).map(line).collect();
        self.next += heard.len() as u64;
        self.lines.push(heard).await;
    }
}

fn canceled() -> RunFailure {
    failure::died("the call was ended")
}
