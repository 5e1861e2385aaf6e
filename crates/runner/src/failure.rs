//! Failure reasons for people, from the untrusted output of a sandbox.

use std::fmt::Display;

use casement_domain::deployment::{BuildFailure, BuildStep};
use casement_domain::invocation::{RunFailure, RunFault};

use crate::protocol::{Exit, Outcome};

/// Returns the failure of a build step.
pub(crate) fn build(step: BuildStep, reason: impl Display) -> BuildFailure {
    BuildFailure { step, reason: printable(reason) }
}

/// Returns the failure of a call for which this node had no process.
pub(crate) fn host(reason: impl Display) -> RunFailure {
    RunFailure { fault: RunFault::Host, reason: printable(reason) }
}

/// Returns the failure of a call whose process ended.
pub(crate) fn died(reason: impl Display) -> RunFailure {
    RunFailure { fault: RunFault::Died, reason: printable(reason) }
}

/// Returns the failure of a call whose process has ended without a known result.
pub(crate) fn lost(reason: impl Display) -> RunFailure {
    RunFailure { fault: RunFault::Lost, reason: printable(reason) }
}

/// Converts the outcome of a call.
pub(crate) fn outcome(outcome: Outcome, max_bytes: u64) -> Result<Option<String>, RunFailure> {
    match outcome {
        Outcome::Returned { output } if output.as_ref().is_some_and(|output| output.len() as u64 > max_bytes) => {
            let reason = format!("the action returned more than {max_bytes} bytes of JSON");
            Err(RunFailure { fault: RunFault::Result, reason })
        }
        // The output is untrusted, so the server checks that it is JSON.
        Outcome::Returned { output: Some(output) }
            if serde_json::from_str::<serde::de::IgnoredAny>(&output).is_err() =>
        {
            Err(RunFailure {
                fault: RunFault::Result,
                reason: "the action returned a value that is not JSON".to_owned(),
            })
        }
        Outcome::Returned { output } => Ok(output),
        Outcome::Raised { reason } => Err(RunFailure { fault: RunFault::Raised, reason: printable(reason) }),
        Outcome::Unfit { reason } => Err(RunFailure { fault: RunFault::Result, reason: printable(reason) }),
        Outcome::Lost => Err(lost("its sandbox ended before the action returned")),
        Outcome::Died { exit } => Err(died(format_args!("the process {} before the action returned", ended(&exit)))),
    }
}

/// Describes the exit of a process, as the predicate of a sentence.
pub(crate) fn ended(exit: &Exit) -> String {
    match exit {
        Exit::Code(0) => "ended".to_owned(),
        Exit::Code(code) => format!("ended with exit code {code}"),
        Exit::Signal(signal) => format!("was ended by signal {signal}"),
        Exit::Late => "was not done in time".to_owned(),
        Exit::OutOfMemory => "was out of memory".to_owned(),
    }
}

/// Truncates a reason and removes control characters, which could move a terminal's cursor.
fn printable(reason: impl Display) -> String {
    let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    reason.to_string().chars().map(plain).take(1000).collect()
}
