//! The errors of the use cases of sessions.

use super::super::input::Refusal;
use super::super::{LoginRuns, NotSupported, SessionRefused};
use crate::access::ProjectArchived;
use crate::browser::EngineError;
use crate::field::InvalidInput;
use crate::ids::SessionId;
use crate::name::LabelName;
use crate::organization::LimitExceeded;
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// The error of creating a session.
#[derive(Debug, thiserror::Error)]
pub enum CreateSessionError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// This installation does not support the request.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
    /// The project is archived and accepts nothing new.
    #[error(transparent)]
    Archived(#[from] ProjectArchived),
    /// The project was deleted.
    #[error("the project was deleted")]
    ProjectGone,
    /// Another session of the project has the name.
    #[error("a session named {0} exists already")]
    NameTaken(LabelName),
    /// The request exceeds a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The browser could not be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Refusal> for CreateSessionError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(invalid) => invalid.into(),
            Refusal::NotSupported(unsupported) => unsupported.into(),
        }
    }
}

/// The error of using a session.
#[derive(Debug, thiserror::Error)]
pub enum UseSessionError {
    /// The project has no such active session.
    #[error("browser session {0} not found")]
    NotFound(String),
    /// A login runs in the session.
    #[error(transparent)]
    LoginRuns(#[from] LoginRuns),
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// Its browser failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The error of changing a session.
#[derive(Debug, thiserror::Error)]
pub enum UpdateSessionError {
    /// The session was not found or not reached.
    #[error(transparent)]
    Use(#[from] UseSessionError),
    /// This installation does not support the request.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
    /// Another session of the project has the name.
    #[error("a session named {0} exists already")]
    NameTaken(LabelName),
    /// The session has a profile already, or another call is loading one.
    #[error("browser session {0} has a profile already")]
    HasProfile(SessionId),
    /// Its profile cannot be loaded.
    #[error(transparent)]
    Profile(#[from] OperationError),
    /// A live view is open, and the change was not forced.
    #[error("browser session {0} has a live view open; set viewport.force to change it all the same")]
    Watched(SessionId),
    /// A recording runs, and the change was not forced.
    #[error("browser session {0} is being recorded; set viewport.force to change it all the same")]
    Recorded(SessionId),
}

/// The error of ending a session.
#[derive(Debug, thiserror::Error)]
pub enum EndSessionError {
    /// There is no such session, or it has ended.
    #[error("browser session {0} not found")]
    NotFound(String),
    /// The state of the session does not allow this event.
    #[error(transparent)]
    Refused(#[from] SessionRefused),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
