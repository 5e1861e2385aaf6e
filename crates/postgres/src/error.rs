//! Errors of database calls, and their conversion to [`StoreError`].

use std::time::Duration;

use casement_domain::StoreError;
use diesel::ConnectionError;
use diesel::result::{DatabaseErrorKind, DeserializeFieldError, Error as DieselError};
use tokio_postgres::error::SqlState;

use crate::idle_connection::Lost;
use crate::refusals::Refusals;

/// The error of a call, before its operation is added.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// No connection, or it was lost.
    #[error(transparent)]
    Unreachable(Unreachable),
    /// The driver or the server refused.
    #[error(transparent)]
    Database(DieselError),
    /// The server refused with a code whose meaning Diesel does not know.
    #[error("SQLSTATE {}", code.code())]
    Refused {
        /// The code.
        code: SqlState,
        /// The error with the server's message.
        source: DieselError,
    },
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
#[error("invalid value in column {column}: {why}")]
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

    /// Whether the server refused because the connection can only read.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Database(DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _)))
    }

    /// Adds the code of the server's error, if Diesel has dropped it.
    pub(crate) fn with_code(self, refusals: &Refusals) -> Self {
        match self {
            Self::Database(DieselError::DatabaseError(DatabaseErrorKind::Unknown, info)) => {
                let code = refusals.code_of(info.message());
                let source = DieselError::DatabaseError(DatabaseErrorKind::Unknown, info);
                match code {
                    Some(code) => Self::Refused { code, source },
                    None => Self::Database(source),
                }
            }
            other => other,
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
            Self::Database(DieselError::DatabaseError(ClosedConnection | UnableToSendCommand, _)) => true,
            Self::Database(DieselError::BrokenTransactionManager | DieselError::RollbackErrorOnCommit { .. }) => true,
            Self::Unreachable(Unreachable::NoConnection(_) | Unreachable::NoneFree(_))
            | Self::Database(_)
            | Self::Refused { .. }
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
            Self::Refused { code, .. } => is_passing(code),
            Self::Database(DieselError::DatabaseError(kind, _)) => {
                matches!(kind, ClosedConnection | ReadOnlyTransaction | SerializationFailure | UnableToSendCommand)
            }
            Self::Database(DieselError::BrokenTransactionManager) => true,
            Self::Database(DieselError::RollbackErrorOnCommit { .. }) => true,
            Self::Database(_) => false,
        }
    }
}

/// Whether a code is about a temporary condition. Never decided by the message, which the server may translate.
fn is_passing(code: &SqlState) -> bool {
    /// Connections; rollbacks, such as deadlocks; resources, such as a full disk or connection table; operators, such as
    /// shutdown, start-up and cancelled statements; the system, such as errors of disks.
    const CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];
    /// Timeouts of locks and of idle transactions; transactions that can only read.
    const CODES: [SqlState; 3] = [
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    CODES.contains(code) || CLASSES.iter().any(|class| code.code().starts_with(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_says_whether_the_same_call_may_work_later() {
        for passing in [
            "57014", "57P01", "57P03", "53300", "53100", "53200", "40P01", "40001", "55P03", "25P03", "25006", "08006",
            "58030",
        ] {
            assert!(is_passing(&SqlState::from_code(passing)), "{passing}");
        }
        for code in ["42P01", "42601", "22P02", "23505", "0A000", "XX000", "25P02", "42501", "3D000"] {
            assert!(!is_passing(&SqlState::from_code(code)), "{code}");
        }
    }
}
