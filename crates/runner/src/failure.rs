//! How what comes out of a sandbox is told to people.

use std::fmt::Display;

use casement_domain::deployment::{BuildFailure, BuildStep};
use casement_domain::invocation::{RunFailure, RunFault};

use crate::protocol::{Exit, Outcome};

/// A step of a build failed.
pub(crate) fn build(step: BuildStep, reason: impl Display) -> BuildFailure {
    BuildFailure { step, reason: shown(reason) }
}

/// There was nothing to give a call to.
pub(crate) fn host(reason: impl Display) -> RunFailure {
    RunFailure { fault: RunFault::Host, reason: shown(reason) }
}

/// The process of a call is gone.
pub(crate) fn died(reason: impl Display) -> RunFailure {
    RunFailure { fault: RunFault::Died, reason: shown(reason) }
}

/// The process of a call is gone, and nobody knows how it ended.
pub(crate) fn lost(reason: impl Display) -> RunFailure {
    RunFailure { fault: RunFault::Lost, reason: shown(reason) }
}

/// How a call ended.
pub(crate) fn outcome(outcome: Outcome, longest: u64) -> Result<Option<String>, RunFailure> {
    match outcome {
        Outcome::Returned { output } if output.as_ref().is_some_and(|output| output.len() as u64 > longest) => {
            let reason = format!("the action returned more than {longest} bytes of JSON");
            Err(RunFailure { fault: RunFault::Result, reason })
        }
        // The inside is not believed: what it says is JSON goes on to others as JSON.
        Outcome::Returned { output: Some(output) }
            if serde_json::from_str::<serde::de::IgnoredAny>(&output).is_err() =>
        {
            Err(RunFailure { fault: RunFault::Result, reason: "the action returned what is not JSON".to_owned() })
        }
        Outcome::Returned { output } => Ok(output),
        Outcome::Raised { reason } => Err(RunFailure { fault: RunFault::Raised, reason: shown(reason) }),
        Outcome::Unfit { reason } => Err(RunFailure { fault: RunFault::Result, reason: shown(reason) }),
        Outcome::Lost => Err(lost("its sandbox ended before the action returned")),
        Outcome::Died { exit } => Err(died(format_args!("the process {} before the action returned", ended(&exit)))),
    }
}

/// How a process ended, as a part of a sentence.
pub(crate) fn ended(exit: &Exit) -> String {
    match exit {
        Exit::Code(0) => "ended".to_owned(),
        Exit::Code(code) => format!("ended with exit code {code}"),
        Exit::Signal(signal) => format!("was ended by signal {signal}"),
        Exit::Late => "was not done in time".to_owned(),
        Exit::OutOfMemory => "was out of memory".to_owned(),
    }
}

/// As much of it as is shown, without what moves a terminal's cursor.
fn shown(reason: impl Display) -> String {
    let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    reason.to_string().chars().map(plain).take(1000).collect()
}
