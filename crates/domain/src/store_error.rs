//! What can go wrong when something is stored or read, said without naming a database.

/// A store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or is too busy; the same call may work later.
    #[error("{operation}: the store is not available")]
    Unavailable {
        /// Which operation, as `resource.verb`.
        operation: &'static str,
        /// Whether it may have been done all the same: it was on its way when its answer was lost. Else nothing was changed.
        maybe_done: bool,
        /// What the adapter was told.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store answered what it must not: ours to mend.
    #[error("{operation}: the store gave an answer that cannot be")]
    Broken {
        /// Which operation, as `resource.verb`.
        operation: &'static str,
        /// What the adapter was told.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// It was not begun, or only read: nothing was changed.
    pub fn unavailable(operation: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable { operation, maybe_done: false, source: source.into() }
    }

    /// Sets whether the operation may have been done: `true` after another part of the same call was done, `false` where
    /// the caller undoes what may have been done.
    #[must_use]
    pub fn with_maybe_done(self, maybe_done: bool) -> Self {
        match self {
            Self::Unavailable { operation, source, .. } => Self::Unavailable { operation, maybe_done, source },
            broken @ Self::Broken { .. } => broken,
        }
    }
}

/// What became of a compare-and-set.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The row had the expected state and now has the next one.
    Yes,
    /// Somebody else moved the row first, or it is gone. Read again and decide again.
    LostRace,
}
