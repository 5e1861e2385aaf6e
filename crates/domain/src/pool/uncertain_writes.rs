//! Writes to the store of which the outcome is unknown, because the answer was lost. They are reconciled later.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use time::Duration;

use crate::clock::MonotonicTime;
use crate::ids::{SessionId, TicketId};

/// The time within which a statement with a lost answer may still take effect.
const LATE_WRITE_TIMEOUT: Duration = Duration::minutes(1);

/// A write that may have taken effect without a waiting caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UncertainWrite {
    /// An entry of the wait queue.
    Ticket(TicketId),
    /// A lease whose caller received an error or disconnected.
    Lease(SessionId),
}

/// The uncertain writes, each with the time of its failure.
#[derive(Clone, Debug, Default)]
pub(super) struct UncertainWrites(Arc<Mutex<Vec<(UncertainWrite, MonotonicTime)>>>);

impl UncertainWrites {
    fn all(&self) -> MutexGuard<'_, Vec<(UncertainWrite, MonotonicTime)>> {
        self.0.lock()
    }

    pub(super) fn note(&self, uncertain_write: UncertainWrite, since: MonotonicTime) {
        self.all().push((uncertain_write, since));
    }

    /// Takes all writes; the caller puts back those that are not reconciled.
    pub(super) fn take(&self) -> Vec<(UncertainWrite, MonotonicTime)> {
        std::mem::take(&mut *self.all())
    }

    pub(super) fn put_back(&self, remaining: Vec<(UncertainWrite, MonotonicTime)>) {
        self.all().extend(remaining);
    }
}

/// Returns whether a write that was not found can no longer take effect.
pub(super) fn is_over(since: MonotonicTime, now: MonotonicTime) -> bool {
    now - since >= LATE_WRITE_TIMEOUT
}
