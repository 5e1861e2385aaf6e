//! What can go wrong, in the domain's words.

use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::{ErrorCode, FailureCode};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use casement_sandbox::{HostError, ListError, StartError};

/// How much of what a program says is shown.
const SHOWN: usize = 300;

/// What is said of a session that ends for its memory.
pub(crate) const OUT_OF_MEMORY: &str = "the session's memory was full (oom), so that it ends";

/// Why there can be no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineSetupError {
    /// A program is not installed.
    #[error("{what} is not installed: install the package {package}")]
    Missing {
        /// Its name.
        what: &'static str,
        /// What to install, as Debian calls it.
        package: &'static str,
    },
    /// The running program's own path is unknown.
    #[error("the path of the running program is unknown: {0}")]
    OwnProgram(#[source] std::io::Error),
    /// The data directory has no absolute name.
    #[error("the data directory: {0}")]
    DataDir(#[source] std::io::Error),
    /// No sandbox can be made here.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Nobody can tell which browsers an earlier life left.
    #[error("the sandboxes of an earlier life cannot be looked through: {0}")]
    EarlierLife(#[source] ListError),
}

pub(crate) fn failed(fault: EngineFault, message: impl Into<String>) -> EngineError {
    EngineError::Failed { fault, message: shorten(message.into()) }
}

/// A browser that was lost in the middle of what was asked of it.
pub(crate) fn lost(message: &str) -> EngineError {
    EngineError::Lost { fault: EngineFault::BrowserCrashed, message: message.to_owned() }
}

/// As much of a text as is shown.
pub(crate) fn shorten(text: String) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A sandbox that did not start.
pub(crate) fn not_started(id: BrowserId, error: &StartError) -> EngineError {
    tracing::error!(browser = %id, %error, "a sandbox did not start");
    match error {
        StartError::NoUidLeft(_) | StartError::Refused { .. } => EngineError::NoRoom(shorten(error.to_string())),
        StartError::TimedOut(seconds) => EngineError::Timeout { seconds: u32::try_from(*seconds).unwrap_or(u32::MAX) },
        // The rest names paths of the host, which are nobody else's business.
        _ => EngineError::NoRoom("the sandbox could not be made; the server's log says why".to_owned()),
    }
}

/// A browser that did not come up.
pub(crate) fn start_failure(code: FailureCode, message: String) -> EngineError {
    match code {
        FailureCode::NoUsableSandbox => EngineError::NoRoom(shorten(message)),
        FailureCode::Display => failed(EngineFault::DisplayError, message),
        FailureCode::BrowserSpawn => failed(EngineFault::BrowserCrashed, message),
        FailureCode::DebuggingPort | FailureCode::PageUnresponsive => failed(EngineFault::BrowserHung, message),
        FailureCode::Config | FailureCode::Extension | FailureCode::Other => failed(EngineFault::AgentError, message),
    }
}

/// How a sandbox is when a call into it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It is there.
    Alive,
    /// It has ended.
    Gone,
    /// Its memory was full, so that it has ended or is about to.
    OutOfMemory,
}

/// A call to the agent that failed.
pub(crate) fn call(id: BrowserId, condition: Condition, error: &ClientError) -> EngineError {
    let message = shorten(error.to_string());
    match error {
        ClientError::Refused(body) => {
            if body.code == ErrorCode::InvalidState {
                return EngineError::Waits(shorten(body.message.clone()));
            }
            let fault = match body.code {
                ErrorCode::BrowserHung => EngineFault::BrowserHung,
                ErrorCode::NotReady => EngineFault::BrowserCrashed,
                ErrorCode::OutOfRange => EngineFault::DisplayError,
                _ => EngineFault::AgentError,
            };
            failed(fault, body.message.clone())
        }
        // Nothing of it reached anybody.
        ClientError::Connect(_) | ClientError::NotConnected(_) | ClientError::NotASocket
            if condition != Condition::Alive =>
        {
            EngineError::NotRunning(id)
        }
        _ if condition == Condition::OutOfMemory => lost(OUT_OF_MEMORY),
        _ if condition == Condition::Gone => lost("the session ended meanwhile"),
        ClientError::Timeout(within) => {
            EngineError::Timeout { seconds: u32::try_from(within.as_secs()).unwrap_or(u32::MAX) }
        }
        // These come after the request went out.
        ClientError::Broken(_) | ClientError::TooLong | ClientError::Malformed(_) => {
            EngineError::Lost { fault: EngineFault::AgentError, message }
        }
        ClientError::Connect(_) | ClientError::NotConnected(_) | ClientError::NotASocket => {
            EngineError::Failed { fault: EngineFault::AgentError, message }
        }
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::CountingIds;

    use super::*;

    #[test]
    fn a_call_that_went_out_may_have_taken_effect_and_says_how_the_session_ended() {
        let id = BrowserId::mint(&CountingIds::default());
        for (condition, word) in [(Condition::OutOfMemory, "(oom)"), (Condition::Gone, "ended meanwhile")] {
            let EngineError::Lost { fault: EngineFault::BrowserCrashed, message } =
                call(id, condition, &ClientError::TooLong)
            else {
                panic!("not lost")
            };
            assert!(message.contains(word), "{message}");
        }
        assert!(matches!(
            call(id, Condition::Alive, &ClientError::TooLong),
            EngineError::Lost { fault: EngineFault::AgentError, .. }
        ));
    }

    #[test]
    fn a_call_that_reached_nobody_says_that_nothing_was_done() {
        let id = BrowserId::mint(&CountingIds::default());
        let unreached = || ClientError::Connect(std::io::ErrorKind::ConnectionRefused.into());
        for condition in [Condition::OutOfMemory, Condition::Gone] {
            assert!(matches!(call(id, condition, &unreached()), EngineError::NotRunning(_)));
        }
    }
}
