//! The errors that the use cases of several resources share.

use std::convert::Infallible;

use crate::access::ProjectArchived;
use crate::field::InvalidInput;
use crate::organization::LimitExceeded;
use crate::sealing::SealError;
use crate::session::{NotSupported, Refusal};
use crate::store_error::StoreError;

/// The error of a use case: an error that use cases of several resources share, or an `E`, which is specific to it.
#[derive(Debug, thiserror::Error)]
pub enum UseCaseError<E = Infallible> {
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
    ProjectDeleted,
    /// The request exceeds a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// Another resource has the name.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// The resource does not exist.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// Other resources use the resource.
    #[error(transparent)]
    InUse(#[from] InUse),
    /// A secret cannot be sealed or opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something else that the request needs does not respond. The request had no effect.
    #[error("{0}")]
    Unavailable(String),
    /// An error that is specific to the use case.
    #[error(transparent)]
    Specific(E),
}

/// The error of a resource that does not exist, or is not visible to the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {which} not found{}", .hint.map(|hint| format!(": {hint}")).unwrap_or_default())]
pub struct NotFound {
    /// The kind of the resource.
    pub kind: &'static str,
    /// The requested identifier or name.
    pub which: String,
    /// How the resource is found.
    pub hint: Option<&'static str>,
}

impl NotFound {
    /// Creates the error for a kind and the requested identifier or name.
    pub fn new(kind: &'static str, which: impl Into<String>) -> Self {
        Self { kind, which: which.into(), hint: None }
    }
}

/// The error of a name that another resource of the same kind already has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} named {name} exists already")]
pub struct NameTaken {
    /// The kind of the resource, with its article.
    pub kind: &'static str,
    /// The name.
    pub name: String,
}

impl NameTaken {
    /// Creates the error for a kind, with its article, and a name.
    pub fn new(kind: &'static str, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

/// The error of deleting a resource that other resources use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {which} is {usage}")]
pub struct InUse {
    /// The kind of the resource.
    pub kind: &'static str,
    /// The requested identifier or name.
    pub which: String,
    /// The end of the message: the users of the resource, and how to release it.
    pub usage: &'static str,
}

/// A marker of errors that are specific to some use cases, so that `?` converts them into their [`UseCaseError`].
pub trait SpecificError: std::error::Error {}

impl<E: SpecificError> From<E> for UseCaseError<E> {
    fn from(error: E) -> Self {
        Self::Specific(error)
    }
}

impl<E: SpecificError> From<UseCaseError> for UseCaseError<E> {
    fn from(error: UseCaseError) -> Self {
        error.map_specific(|never| match never {})
    }
}

impl<E> From<Refusal> for UseCaseError<E> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(invalid) => invalid.into(),
            Refusal::NotSupported(unsupported) => unsupported.into(),
        }
    }
}

impl<E> UseCaseError<E> {
    /// Converts the error of one use case into that of another; shared errors remain as they are.
    pub fn map_specific<F>(self, convert: impl FnOnce(E) -> UseCaseError<F>) -> UseCaseError<F> {
        match self {
            Self::Invalid(error) => error.into(),
            Self::NotSupported(error) => error.into(),
            Self::Archived(error) => error.into(),
            Self::ProjectDeleted => UseCaseError::ProjectDeleted,
            Self::Limit(error) => error.into(),
            Self::NameTaken(error) => error.into(),
            Self::NotFound(error) => error.into(),
            Self::InUse(error) => error.into(),
            Self::Seal(error) => error.into(),
            Self::Store(error) => error.into(),
            Self::Unavailable(why) => UseCaseError::Unavailable(why),
            Self::Specific(error) => convert(error),
        }
    }
}
