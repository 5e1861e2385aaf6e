//! The errors of the use cases of sessions.

use super::super::{LoginRuns, NotSupported, SessionRefused};
use crate::browser::EngineError;
use crate::engine::EngineRefused;
use crate::error::{NameTaken, NotFound, SpecificError, UseCaseError};
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::SessionId;
use crate::name::LabelName;
use crate::network::{AllowlistError, StaleNetwork};
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// The error of creating a session.
pub type CreateSessionError = UseCaseError<StartFailed>;

/// The error of a browser that could not be started.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StartFailed(pub EngineError);

impl SpecificError for StartFailed {}

impl From<EngineError> for CreateSessionError {
    fn from(error: EngineError) -> Self {
        Self::Specific(StartFailed(error))
    }
}

/// The error of using a session.
#[derive(Debug, thiserror::Error)]
pub enum UseSessionError {
    /// The project has no such active session.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// A login runs in the session.
    #[error(transparent)]
    LoginRuns(#[from] LoginRuns),
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The engine of the session cannot do it.
    #[error(transparent)]
    EngineRefused(#[from] EngineRefused),
    /// The browser failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The error of changing a session.
#[derive(Debug, thiserror::Error)]
pub enum UpdateSessionError {
    /// The session was not found or could not be used.
    #[error(transparent)]
    Use(#[from] UseSessionError),
    /// This installation does not support the request.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
    /// Another session of the project has the name.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// The session has a profile already, or another call is loading one.
    #[error("browser session {0} has a profile already")]
    HasProfile(SessionId),
    /// The profile cannot be loaded.
    #[error(transparent)]
    Profile(#[from] OperationError),
    /// A live view is open, and the change was not forced.
    #[error("browser session {0} has a live view open; set viewport.force to change it anyway")]
    Watched(SessionId),
    /// A recording runs, and the change was not forced.
    #[error("browser session {0} is being recorded; set viewport.force to change it anyway")]
    Recorded(SessionId),
    /// The allowed hosts have another revision than expected.
    #[error(transparent)]
    StaleNetwork(#[from] StaleNetwork),
}

impl From<AllowlistError> for UpdateSessionError {
    fn from(error: AllowlistError) -> Self {
        const FIELD: &str = "network.allowed_hosts";
        let invalid = match error {
            AllowlistError::Stale(stale) => return stale.into(),
            AllowlistError::Invalid(bad) => bad,
            AllowlistError::NoAllowlist => InvalidValue::new(FieldCode::NotAllowed, error.to_string()),
        };
        Self::Use(InvalidInput::of(FIELD, invalid).into())
    }
}

/// The error of ending a session.
#[derive(Debug, thiserror::Error)]
pub enum EndSessionError {
    /// The session does not exist or has ended.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// The state of the session does not allow this event.
    #[error(transparent)]
    Refused(#[from] SessionRefused),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) fn not_found(which: impl Into<String>) -> NotFound {
    NotFound::new("browser session", which)
}

pub(super) fn name_taken(name: &LabelName) -> NameTaken {
    NameTaken::new("a session", name.as_str())
}
