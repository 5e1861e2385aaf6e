//! The record of a call that is stored with what the call does, in one commit.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Poll;

use parking_lot::Mutex;

use super::{AuditEntry, AuditTrail, RecordTimestamp};
use crate::store_error::StoreError;

/// What became of an [`PreparedRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PreparedRecordOutcome {
    /// Nobody knows yet, or the store did not answer: it may be stored.
    Open,
    /// It is stored, with what the call did.
    Stored,
    /// It is not stored, and will not be.
    Declined,
    /// It is stored, and to be stored again at the end of its call: what it was stored with came to nothing.
    Superseded,
}

/// The record of a call as it will be if the call does at once what it was made for. Whoever does that may store it in the same commit,
/// and says here whether it did; until then it may be stored at any moment, also after its caller has gone. Whoever changes something
/// without it has to [decline](Self::decline) it before.
pub struct PreparedRecord {
    entry: AuditEntry,
    outcome: AtomicU8,
    begun: AtomicBool,
    /// As long as it may be stored, exports wait for its moment.
    stamp: Mutex<Option<RecordTimestamp>>,
    trail: Arc<dyn AuditTrail>,
}

impl PreparedRecord {
    /// Not stored yet. Its moment is that of the entry, or a little later.
    #[must_use]
    pub fn new(entry: AuditEntry, trail: Arc<dyn AuditTrail>) -> Self {
        let stamp = trail.stamp(entry.at);
        Self {
            entry: AuditEntry { at: stamp.at(), ..entry },
            outcome: AtomicU8::new(PreparedRecordOutcome::Open as u8),
            begun: AtomicBool::new(false),
            stamp: Mutex::new(Some(stamp)),
            trail,
        }
    }

    /// What is stored.
    #[must_use]
    pub fn entry(&self) -> &AuditEntry {
        &self.entry
    }

    /// What became of it so far.
    #[must_use]
    pub fn outcome(&self) -> PreparedRecordOutcome {
        let outcome = self.outcome.load(Ordering::Acquire);
        [PreparedRecordOutcome::Stored, PreparedRecordOutcome::Declined, PreparedRecordOutcome::Superseded]
            .into_iter()
            .find(|one| *one as u8 == outcome)
            .unwrap_or(PreparedRecordOutcome::Open)
    }

    /// Says what became of it.
    pub fn resolve(&self, outcome: PreparedRecordOutcome) {
        self.outcome.store(outcome as u8, Ordering::Release);
        drop(self.stamp.lock().take());
    }

    /// It will not be stored with what the call does, unless it is already. Instead it is stored that the call begins.
    ///
    /// # Errors
    /// [`StoreError`]; the call must not go on.
    pub async fn decline(&self) -> Result<(), StoreError> {
        match self.outcome() {
            PreparedRecordOutcome::Stored | PreparedRecordOutcome::Superseded => return Ok(()),
            PreparedRecordOutcome::Open => self.resolve(PreparedRecordOutcome::Declined),
            PreparedRecordOutcome::Declined => {}
        }
        if self.begun.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.trail.begin(self.entry.clone()).await
    }

    /// The same while `reading` is done, which changes nothing.
    ///
    /// # Errors
    /// As [`decline`](Self::decline).
    pub async fn decline_beside<T>(&self, reading: impl Future<Output = T>) -> Result<T, StoreError> {
        let (mut declining, mut reading) = (pin!(self.decline()), pin!(reading));
        let (mut declined, mut read) = (None, None);
        poll_fn(|context| {
            if declined.is_none()
                && let Poll::Ready(done) = declining.as_mut().poll(context)
            {
                declined = Some(done);
            }
            if read.is_none()
                && let Poll::Ready(done) = reading.as_mut().poll(context)
            {
                read = Some(done);
            }
            match (declined.take(), read.take()) {
                (Some(declined), Some(read)) => Poll::Ready(declined.map(|()| read)),
                waiting => {
                    (declined, read) = waiting;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl fmt::Debug for PreparedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyRecord").field("entry", &self.entry).field("fate", &self.outcome()).finish_non_exhaustive()
    }
}
