//! The errors and results of stores, independent of the database.

/// The error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or is too busy; the same call may work later.
    #[error("{operation}: the store is not available")]
    Unavailable {
        /// The operation, as `resource.verb`.
        operation: &'static str,
        /// Whether the change may have been made: its request was sent, but the answer was lost. Else nothing changed.
        maybe_done: bool,
        /// The error of the adapter.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store refused the operation or returned invalid data: a defect of Casement or of the stored data.
    #[error("{operation}: the store gave an invalid response")]
    Broken {
        /// The operation, as `resource.verb`.
        operation: &'static str,
        /// The error of the adapter.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Creates the error of an operation that changed nothing, because it did not begin or only read.
    pub fn unavailable(operation: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable { operation, maybe_done: false, source: source.into() }
    }

    /// Sets `maybe_done` of an unavailable store: `true` if another part of the same call was done, `false` if the
    /// caller undoes what may have been done.
    #[must_use]
    pub fn with_maybe_done(self, maybe_done: bool) -> Self {
        match self {
            Self::Unavailable { operation, source, .. } => Self::Unavailable { operation, maybe_done, source },
            broken @ Self::Broken { .. } => broken,
        }
    }
}

/// The result of a compare-and-set.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The row had the expected state and now has the next one.
    Yes,
    /// Another writer changed or deleted the row first. The caller must read the row again and decide again.
    LostRace,
}
