//! The generation of the connections to a database, which ends when one of them is found to be unable to write: after a
//! failover, all that were opened before may lead to a server that only reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The present generation. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generation(Arc<AtomicU64>);

impl Generation {
    /// Returns the number of the present generation.
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends the generation with this number, if it has not ended yet: of many calls that fail, one ends it.
    pub(crate) fn end(&self, number: u64) {
        if self.0.compare_exchange(number, number + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::warn!("a connection to the database can only read; all connections are reopened");
        }
    }
}
