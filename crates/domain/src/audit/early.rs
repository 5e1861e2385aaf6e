//! The record of a call that is stored with what the call does, in one commit.

use std::sync::atomic::{AtomicU8, Ordering};

use super::AuditEntry;

/// What became of an [`EarlyRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EarlyFate {
    /// Nobody knows yet, or the store did not answer: it may be stored.
    Open,
    /// It is stored, with what the call did.
    Stored,
    /// It is not stored, and will not be.
    Declined,
}

/// The record of a call as it will be if the call does at once what it was made for. Whoever does that may store it in the same commit,
/// and says here whether it did; until then it may be stored at any moment, also after its caller has gone.
#[derive(Debug)]
pub struct EarlyRecord {
    entry: AuditEntry,
    fate: AtomicU8,
}

impl EarlyRecord {
    /// Not stored yet.
    #[must_use]
    pub fn new(entry: AuditEntry) -> Self {
        Self { entry, fate: AtomicU8::new(EarlyFate::Open as u8) }
    }

    /// What is stored.
    #[must_use]
    pub fn entry(&self) -> &AuditEntry {
        &self.entry
    }

    /// What became of it so far.
    #[must_use]
    pub fn fate(&self) -> EarlyFate {
        let fate = self.fate.load(Ordering::Acquire);
        [EarlyFate::Stored, EarlyFate::Declined].into_iter().find(|one| *one as u8 == fate).unwrap_or(EarlyFate::Open)
    }

    /// Says what became of it.
    pub fn settle(&self, fate: EarlyFate) {
        self.fate.store(fate as u8, Ordering::Release);
    }
}
