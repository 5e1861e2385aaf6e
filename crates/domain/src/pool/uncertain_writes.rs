//! What the store may hold although nobody waits for it, because its answer was lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::Duration;

use crate::clock::MonotonicTime;
use crate::ids::{SessionId, TicketId};

/// A statement whose answer was lost may still be carried out for this long.
const LATE: Duration = Duration::minutes(1);

/// What nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UncertainWrite {
    /// A place in a line.
    Ticket(TicketId),
    /// A lease whose caller was told that it failed, or went away.
    Lease(SessionId),
}

/// What is in doubt, and since when.
#[derive(Clone, Debug, Default)]
pub(super) struct UncertainWrites(Arc<Mutex<Vec<(UncertainWrite, MonotonicTime)>>>);

impl UncertainWrites {
    fn all(&self) -> MutexGuard<'_, Vec<(UncertainWrite, MonotonicTime)>> {
        // Every change is one call, so a panic elsewhere leaves nothing half-made.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, uncertain_write: UncertainWrite, since: MonotonicTime) {
        self.all().push((uncertain_write, since));
    }

    /// All of them; what is not settled is to be put back.
    pub(super) fn take(&self) -> Vec<(UncertainWrite, MonotonicTime)> {
        std::mem::take(&mut *self.all())
    }

    pub(super) fn put_back(&self, unsettled: Vec<(UncertainWrite, MonotonicTime)>) {
        self.all().extend(unsettled);
    }
}

/// Whether what was not found will not come any more.
pub(super) fn is_over(since: MonotonicTime, now: MonotonicTime) -> bool {
    now - since >= LATE
}
