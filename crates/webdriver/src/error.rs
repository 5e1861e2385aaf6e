//! The errors of a WebDriver server.

use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::engine::EngineName;
use casement_domain::ids::BrowserId;

/// The reason why a WebDriver server did not do something. The texts are safe to show: those of the server are cut to
/// 500 characters of one line, and hold no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    /// The engine has as many sessions as it may have. Nothing was asked of the server.
    #[error("all {max} sessions of the engine are in use")]
    Full {
        /// The maximum number of sessions.
        max: u32,
    },
    /// The server has no room for a session now, or no node for its capabilities.
    #[error("the WebDriver server gives no session: {reason}")]
    Busy {
        /// The server's own reason, or what its status says.
        reason: String,
    },
    /// The server refused a command.
    #[error("the WebDriver server answers {code:?}: {message}")]
    Refused {
        /// The error code of WebDriver, for example `session not created`.
        code: String,
        /// The server's own message.
        message: String,
    },
    /// The server does not have the session any more.
    #[error("the WebDriver server does not have the session: {message}")]
    NoSession {
        /// The server's own message.
        message: String,
    },
    /// The server does not reach the node of the session.
    #[error("the WebDriver server does not reach the session's node: {message}")]
    NodeAway {
        /// The server's own message.
        message: String,
    },
    /// The server cannot be reached. The command had no effect.
    #[error("the WebDriver server cannot be reached: {reason}")]
    Unreachable {
        /// The reason.
        reason: String,
    },
    /// The server does not respond, or something before it responds instead. A command may have taken effect.
    #[error("the WebDriver server does not respond: {reason}")]
    Away {
        /// The reason.
        reason: String,
    },
    /// The server took too long. The command may take effect later.
    #[error("the WebDriver server took longer than {seconds} s")]
    Timeout {
        /// The timeout.
        seconds: u64,
    },
    /// The server does not accept the credentials, or wants some.
    #[error("the WebDriver server answers {status}: it does not accept the credentials")]
    Unauthorized {
        /// The HTTP status.
        status: u16,
    },
    /// The server wants the request to be sent elsewhere, which is not done.
    #[error("the WebDriver server answers {status}, a redirect, which is not followed: configure the final URL")]
    Redirect {
        /// The HTTP status.
        status: u16,
    },
    /// The answer is not one of a WebDriver server, or is too large.
    #[error("the answer is not one of a WebDriver server: {what}")]
    Nonsense {
        /// What is wrong with it.
        what: String,
    },
    /// The server does not have the function.
    #[error("the WebDriver server does not have {what}")]
    Unsupported {
        /// The function.
        what: &'static str,
    },
}

impl GridError {
    /// Returns whether the command may have taken effect, or may still do so.
    pub(crate) const fn is_uncertain(&self) -> bool {
        matches!(self, Self::Away { .. } | Self::Timeout { .. } | Self::Nonsense { .. })
    }

    pub(crate) fn nonsense(what: impl Into<String>) -> Self {
        Self::Nonsense { what: what.into() }
    }

    pub(crate) fn away(reason: impl Into<String>) -> Self {
        Self::Away { reason: reason.into() }
    }
}

/// Returns the error of the domain for an error of the engine's server about a browser.
#[must_use]
pub fn into_engine_error(engine: &EngineName, browser: BrowserId, error: &GridError) -> EngineError {
    let message = format!("engine {engine}: {error}");
    match error {
        GridError::NoSession { .. } => EngineError::NotRunning(browser),
        GridError::Full { .. } | GridError::Busy { .. } => EngineError::Full(message),
        GridError::Unreachable { .. } | GridError::Away { .. } => EngineError::Unavailable(message),
        GridError::Timeout { seconds } => EngineError::Timeout { seconds: u32::try_from(*seconds).unwrap_or(u32::MAX) },
        GridError::NodeAway { .. } => EngineError::Lost { fault: remote_fault(), message },
        GridError::Refused { .. }
        | GridError::Unauthorized { .. }
        | GridError::Redirect { .. }
        | GridError::Nonsense { .. }
        | GridError::Unsupported { .. } => EngineError::Failed { fault: remote_fault(), message },
    }
}

/// The part that fails when a server of browsers fails.
const fn remote_fault() -> EngineFault {
    EngineFault::RemoteError
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_server_becomes_one_of_the_domain_with_the_engines_name() {
        let engine = EngineName::parse("grid").expect("a name");
        let browser = BrowserId::from_ulid(ulid::Ulid::from_parts(1, 2));
        let of = |error: GridError| into_engine_error(&engine, browser, &error);
        let EngineError::Full(message) = of(GridError::Full { max: 3 }) else { panic!("full") };
        assert_eq!(message, "engine grid: all 3 sessions of the engine are in use");
        let gone = GridError::NoSession { message: String::new() };
        assert!(matches!(of(gone), EngineError::NotRunning(id) if id == browser));
        assert!(matches!(of(GridError::away("x")), EngineError::Unavailable(_)));
        assert!(matches!(of(GridError::Timeout { seconds: 7 }), EngineError::Timeout { seconds: 7 }));
        assert!(matches!(of(GridError::nonsense("x")), EngineError::Failed { .. }));
    }
}
