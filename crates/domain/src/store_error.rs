//! What can go wrong when something is stored or read, said without naming a database.

/// A store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or is too busy; the same call may work later. Nothing was changed.
    #[error("{operation}: the store is not available")]
    Unavailable {
        /// Which operation, as `resource.verb`.
        operation: &'static str,
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

/// What became of a compare-and-set.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The row had the expected state and now has the next one.
    Yes,
    /// Somebody else moved the row first, or it is gone. Read again and decide again.
    LostRace,
}
