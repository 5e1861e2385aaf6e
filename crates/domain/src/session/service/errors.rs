//! Why a use case of sessions did not do what it was asked.

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

/// A session was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateSessionError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// This installation cannot do it.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
    /// The project takes nothing new.
    #[error(transparent)]
    Archived(#[from] ProjectArchived),
    /// The project is gone.
    #[error("the project was deleted")]
    ProjectGone,
    /// Another session bears the name.
    #[error("a session named {0} exists already")]
    NameTaken(LabelName),
    /// It would go over a limit.
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

/// A session was not found, or not reached.
#[derive(Debug, thiserror::Error)]
pub enum UseSessionError {
    /// The project has no such active session.
    #[error("browser session {0} not found")]
    NotFound(String),
    /// A login runs in it.
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

/// A session was not changed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateSessionError {
    /// It was not found or not reached.
    #[error(transparent)]
    Use(#[from] UseSessionError),
    /// This installation cannot do it.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
    /// Another session bears the name.
    #[error("a session named {0} exists already")]
    NameTaken(LabelName),
    /// It has a profile already, or just now another call loads one.
    #[error("browser session {0} has a profile already")]
    HasProfile(SessionId),
    /// Its profile cannot be loaded.
    #[error(transparent)]
    Profile(#[from] OperationError),
    /// Somebody watches, and the change was not forced.
    #[error("browser session {0} has a live view open; set viewport.force to change it all the same")]
    Watched(SessionId),
    /// A recording runs, and the change was not forced.
    #[error("browser session {0} is being recorded; set viewport.force to change it all the same")]
    Recorded(SessionId),
}

/// A session was not ended.
#[derive(Debug, thiserror::Error)]
pub enum EndSessionError {
    /// There is no such session, or it has ended.
    #[error("browser session {0} not found")]
    NotFound(String),
    /// It cannot end in that way.
    #[error(transparent)]
    Refused(#[from] SessionRefused),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
