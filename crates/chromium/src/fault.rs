//! Converts failures to the domain's errors.

use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::{ErrorCode, FailureCode};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use casement_sandbox::{HostError, ListError, StartError};

/// The longest text of a program that is passed on, in characters.
const MAX_TEXT: usize = 300;

/// The message for a session that ends because its memory was full.
pub(crate) const OUT_OF_MEMORY: &str = "the session's memory was full (oom), so that it ends";

/// The engine cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum EngineSetupError {
    /// A program is not installed.
    #[error("{what} is not installed: install the package {package}")]
    Missing {
        /// Its name.
        what: &'static str,
        /// The Debian package to install.
        package: &'static str,
    },
    /// The running program's own path is unknown.
    #[error("the path of the running program is unknown: {0}")]
    OwnProgram(#[source] std::io::Error),
    /// The data directory has no absolute path.
    #[error("the data directory: {0}")]
    DataDir(#[source] std::io::Error),
    /// This host cannot run sandboxes.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The sandboxes of a previous server process cannot be listed.
    #[error("the sandboxes of a previous server process cannot be listed: {0}")]
    ListSandboxes(#[source] ListError),
}

pub(crate) fn failed(fault: EngineFault, message: impl Into<String>) -> EngineError {
    EngineError::Failed { fault, message: shorten(message.into()) }
}

/// Returns the error of a browser that was lost during an operation.
pub(crate) fn lost(message: &str) -> EngineError {
    EngineError::Lost { fault: EngineFault::BrowserCrashed, message: message.to_owned() }
}

/// Truncates a text to [`MAX_TEXT`] characters.
pub(crate) fn shorten(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns the error of a sandbox that did not start.
pub(crate) fn not_started(id: BrowserId, error: &StartError) -> EngineError {
    tracing::error!(browser = %id, %error, "cannot start a sandbox");
    match error {
        StartError::NoUidLeft(_) | StartError::NoRoom(_) | StartError::Refused { .. } => {
            EngineError::NoRoom(shorten(error.to_string()))
        }
        StartError::TimedOut(seconds) => EngineError::Timeout { seconds: u32::try_from(*seconds).unwrap_or(u32::MAX) },
        // The other errors name paths of the host, which callers must not see.
        _ => EngineError::NoRoom("the sandbox could not be made; the server's log says why".to_owned()),
    }
}

/// Returns the error of a browser that did not start.
pub(crate) fn start_failure(code: FailureCode, message: String) -> EngineError {
    match code {
        FailureCode::NoUsableSandbox => EngineError::NoRoom(shorten(message)),
        FailureCode::Display => failed(EngineFault::DisplayError, message),
        FailureCode::BrowserSpawn => failed(EngineFault::BrowserCrashed, message),
        FailureCode::DebuggingPort | FailureCode::PageUnresponsive => failed(EngineFault::BrowserHung, message),
        FailureCode::Config | FailureCode::Extension | FailureCode::Other => failed(EngineFault::AgentError, message),
    }
}

/// The condition of a sandbox after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It runs.
    Alive,
    /// It has ended.
    Gone,
    /// Its memory was full; it has ended or is about to.
    OutOfMemory,
}

/// Converts the failure of a call to the agent.
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
                ErrorCode::RemoteAway => EngineFault::RemoteError,
                ErrorCode::OutOfRange => EngineFault::DisplayError,
                _ => EngineFault::AgentError,
            };
            failed(fault, body.message.clone())
        }
        // Nothing of the request was received.
        ClientError::Connect(_) | ClientError::NotConnected(_) | ClientError::NotASocket
            if condition != Condition::Alive =>
        {
            EngineError::NotRunning(id)
        }
        _ if condition == Condition::OutOfMemory => lost(OUT_OF_MEMORY),
        _ if condition == Condition::Gone => lost("the session has ended"),
        ClientError::Timeout(within) => {
            EngineError::Timeout { seconds: u32::try_from(within.as_secs()).unwrap_or(u32::MAX) }
        }
        // These errors come after the request was sent.
        ClientError::Broken(_) | ClientError::TooLong | ClientError::Malformed(_) => {
            EngineError::Lost { fault: EngineFault::AgentError, message }
        }
        ClientError::Connect(_) | ClientError::NotConnected(_) | ClientError::NotASocket => {
            EngineError::Failed { fault: EngineFault::AgentError, message }
        }
    }
}

/// Returns the error of a restart that may have ended the browser.
pub(crate) fn lost_restart(why: &str) -> EngineError {
    let message = shorten(format!("Chromium was not restarted: {why}"));
    EngineError::Lost { fault: EngineFault::BrowserCrashed, message }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::CountingIds;

    use super::*;

    #[test]
    fn a_sent_call_may_have_taken_effect_and_names_the_end() {
        let id = BrowserId::mint(&CountingIds::default());
        for (condition, word) in [(Condition::OutOfMemory, "(oom)"), (Condition::Gone, "has ended")] {
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
    fn an_unsent_call_has_no_effect() {
        let id = BrowserId::mint(&CountingIds::default());
        let unreached = || ClientError::Connect(std::io::ErrorKind::ConnectionRefused.into());
        for condition in [Condition::OutOfMemory, Condition::Gone] {
            assert!(matches!(call(id, condition, &unreached()), EngineError::NotRunning(_)));
        }
    }
}
