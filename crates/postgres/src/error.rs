//! Errors of database calls, and their conversion to [`StoreError`].

use std::time::Duration;

use casement_domain::StoreError;
use diesel::ConnectionError;
use diesel::result::{DatabaseErrorKind, DeserializeFieldError, Error as DieselError};

use crate::idle_connection::Lost;

/// The error of a call, before its operation is added.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// No connection, or it was lost.
    #[error(transparent)]
    Unreachable(Unreachable),
    /// The driver or the server refused.
    #[error(transparent)]
    Database(DieselError),
    /// A row has a value that the domain refuses.
    #[error(transparent)]
    Row(#[from] BadRow),
    /// The node was silent, and the records are from before the time that exports have reached.
    #[error("this node was silent, and exports have passed the times of its records")]
    Fenced,
    /// The work was rolled back because browsers are leased. The repository converts this to a result.
    #[error("undone, {leased} browsers are leased")]
    Undone {
        /// The number of leased browsers.
        leased: u32,
    },
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    #[error("no connection: {0}")]
    NoConnection(String),
    #[error("no connection was free within {} ms", .0.as_millis())]
    NoneFree(Duration),
    #[error("no answer within {} ms", .0.as_millis())]
    TooSlow(Duration),
    #[error(transparent)]
    Lost(Lost),
}

impl From<ConnectionError> for Unreachable {
    fn from(error: ConnectionError) -> Self {
        Self::NoConnection(error.to_string())
    }
}

/// A row that does not convert.
#[derive(Debug, thiserror::Error)]
#[error("{column} holds what it must not: {why}")]
pub(crate) struct BadRow {
    pub(crate) column: String,
    pub(crate) why: String,
}

impl BadRow {
    pub(crate) fn new(column: &str, why: impl ToString) -> Self {
        Self { column: column.to_owned(), why: why.to_string() }
    }
}

impl From<DieselError> for CallError {
    fn from(error: DieselError) -> Self {
        let DieselError::DeserializationError(why) = error else { return Self::Database(error) };
        match why.downcast::<DeserializeFieldError>() {
            Ok(field) => Self::Row(BadRow::new(field.field_name.as_deref().unwrap_or("a column"), field.error)),
            Err(why) => Self::Database(DieselError::DeserializationError(why)),
        }
    }
}

/// A `meaning` for `transaction_or`: converts the violation of one of these unique keys to a value.
pub(crate) fn if_violated<T>(keys: &[&'static str], meaning: T) -> impl FnOnce(CallError) -> Result<T, CallError> {
    move |error| match error.violated() {
        Some(key) if keys.contains(&key) => Ok(meaning),
        _ => Err(error),
    }
}

impl CallError {
    /// The label of the outcome in metrics.
    pub(crate) fn label(&self) -> &'static str {
        if self.is_unavailable() { "unavailable" } else { "broken" }
    }

    /// The name of the unique constraint or index that was violated.
    pub(crate) fn violated(&self) -> Option<&str> {
        match self {
            Self::Database(DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, info)) => {
                info.constraint_name()
            }
            _ => None,
        }
    }

    /// Converts the error for the domain. `on_its_way`: whether a statement that changes something was sent.
    pub(crate) fn into_store_error(self, operation: &'static str, on_its_way: bool) -> StoreError {
        let (unavailable, maybe_done) = (self.is_unavailable(), on_its_way && self.is_answer_lost());
        let source = Box::new(self);
        if unavailable {
            StoreError::Unavailable { operation, maybe_done, source }
        } else {
            StoreError::Broken { operation, source }
        }
    }

    /// Whether neither a result nor a refusal arrived.
    fn is_answer_lost(&self) -> bool {
        use DatabaseErrorKind::{ClosedConnection, UnableToSendCommand};
        match self {
            Self::Unreachable(Unreachable::TooSlow(_) | Unreachable::Lost(_)) => true,
            Self::Database(DieselError::DatabaseError(kind, info)) => match kind {
                ClosedConnection | UnableToSendCommand => true,
                DatabaseErrorKind::Unknown => LOST.iter().any(|sign| info.message().contains(sign)),
                _ => false,
            },
            Self::Database(DieselError::BrokenTransactionManager | DieselError::RollbackErrorOnCommit { .. }) => true,
            Self::Unreachable(Unreachable::NoConnection(_) | Unreachable::NoneFree(_))
            | Self::Database(_)
            | Self::Row(_)
            | Self::Fenced
            | Self::Undone { .. } => false,
        }
    }

    /// Whether the same call may work later.
    fn is_unavailable(&self) -> bool {
        use DatabaseErrorKind::{ClosedConnection, ReadOnlyTransaction, SerializationFailure, UnableToSendCommand};
        match self {
            Self::Unreachable(_) | Self::Fenced => true,
            Self::Row(_) | Self::Undone { .. } => false,
            Self::Database(DieselError::DatabaseError(kind, info)) => match kind {
                ClosedConnection | ReadOnlyTransaction | SerializationFailure | UnableToSendCommand => true,
                // Diesel drops the code of these errors, so only the message is left. A server may translate its
                // messages; those of the driver and of the private cluster are English.
                DatabaseErrorKind::Unknown => is_passing(info.message()),
                _ => false,
            },
            Self::Database(DieselError::BrokenTransactionManager) => true,
            Self::Database(DieselError::RollbackErrorOnCommit { .. }) => true,
            Self::Database(_) => false,
        }
    }
}

/// The driver's messages about lost connections.
const LOST: [&str; 4] =
    ["connection closed", "error communicating with the server", "server closed the connection", "Broken pipe"];

/// Whether the message is about a temporary condition: shutdown, start-up, lost connections, cancelled or deadlocked
/// statements, a full disk or connection table.
fn is_passing(message: &str) -> bool {
    const SIGNS: [&str; 10] = [
        "terminating connection",
        "the database system is",
        "canceling statement",
        "deadlock detected",
        "too many clients",
        "too many connections",
        "remaining connection slots",
        "No space left on device",
        "out of memory",
        "is not currently accepting connections",
    ];
    SIGNS.iter().chain(&LOST).any(|sign| message.contains(sign))
}
