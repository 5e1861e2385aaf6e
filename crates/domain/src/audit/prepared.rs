//! A record that is stored in the same commit as the change that its call makes.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Poll;

use parking_lot::Mutex;

use super::{AuditEntry, AuditTrail, RecordTimestamp};
use crate::store_error::StoreError;

/// The outcome of a [`PreparedRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PreparedRecordOutcome {
    /// Unknown: the record may be stored.
    Open,
    /// The record is stored, with the change of the call.
    Stored,
    /// The record is not stored and will not be.
    Declined,
    /// The record is stored, but the change in the same commit had no effect, so the record is stored again at the end
    /// of the call.
    Superseded,
}

/// The record of a call, prepared for its success. The code that makes the change may store the record in the same
/// commit, and then sets the outcome; until then the record may be stored at any time, even after the caller has
/// disconnected. Code that makes a change without storing the record must [decline](Self::decline) it first.
pub struct PreparedRecord {
    entry: AuditEntry,
    outcome: AtomicU8,
    begun: AtomicBool,
    /// Blocks exports from the time of the record on, as long as it may be stored.
    stamp: Mutex<Option<RecordTimestamp>>,
    trail: Arc<dyn AuditTrail>,
}

impl PreparedRecord {
    /// Creates a record that is not stored yet. Its time is that of the entry, or a little later.
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

    /// Returns the entry that is stored.
    #[must_use]
    pub fn entry(&self) -> &AuditEntry {
        &self.entry
    }

    /// Returns the outcome.
    #[must_use]
    pub fn outcome(&self) -> PreparedRecordOutcome {
        let outcome = self.outcome.load(Ordering::Acquire);
        [PreparedRecordOutcome::Stored, PreparedRecordOutcome::Declined, PreparedRecordOutcome::Superseded]
            .into_iter()
            .find(|one| *one as u8 == outcome)
            .unwrap_or(PreparedRecordOutcome::Open)
    }

    /// Sets the outcome.
    pub fn resolve(&self, outcome: PreparedRecordOutcome) {
        self.outcome.store(outcome as u8, Ordering::Release);
        drop(self.stamp.lock().take());
    }

    /// Declines the record unless it is stored already, and stores the audit intent of the call instead.
    ///
    /// # Errors
    /// [`StoreError`]; the call must not proceed.
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

    /// Declines the record concurrently with `reading`, which changes nothing.
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
        f.debug_struct("PreparedRecord")
            .field("entry", &self.entry)
            .field("outcome", &self.outcome())
            .finish_non_exhaustive()
    }
}
