//! Tracks the timestamps that audit records may still get, so that an export knows when a time range is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use casement_domain::audit::RecordTimestamp;
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};

/// The timestamps that records may still get.
pub(super) struct Timestamps {
    state: watch::Sender<TimestampState>,
    /// Notified when a timestamp is released, because its record may have been stored.
    written: Arc<Notify>,
}

#[derive(Default)]
struct TimestampState {
    /// New records get no timestamp before this one.
    floor: Option<OffsetDateTime>,
    /// The timestamps of prepared records, which may be stored by the call's own transaction at any time.
    stamps: BTreeMap<u64, OffsetDateTime>,
    next: u64,
}

/// Holds a timestamp; releases it when dropped.
struct TimestampHold {
    timestamps: Arc<Timestamps>,
    number: u64,
}

impl Drop for TimestampHold {
    fn drop(&mut self) {
        self.timestamps.state.send_modify(|held| {
            held.stamps.remove(&self.number);
        });
        self.timestamps.written.notify_one();
    }
}

impl Timestamps {
    pub(super) fn new(written: Arc<Notify>) -> Self {
        Self { state: watch::Sender::new(TimestampState::default()), written }
    }

    /// Returns the earliest timestamp of new records.
    pub(super) fn floor(&self) -> Option<OffsetDateTime> {
        self.state.borrow().floor
    }

    pub(super) fn stamp(self: &Arc<Self>, now: OffsetDateTime) -> RecordTimestamp {
        let (mut at, mut number) = (now, 0);
        self.state.send_modify(|held| {
            at = held.floor.map_or(now, |floor| floor.max(now));
            number = held.next;
            held.next += 1;
            held.stamps.insert(number, at);
        });
        RecordTimestamp::held(at, TimestampHold { timestamps: Arc::clone(self), number })
    }

    pub(super) fn raise(&self, floor: OffsetDateTime) {
        self.state.send_modify(|held| held.floor = held.floor.max(Some(floor)));
    }

    /// Returns once no held timestamp is before `end`.
    pub(super) async fn released(&self, end: OffsetDateTime) {
        let mut held = self.state.subscribe();
        // Never fails, because the sender exists as long as `self`.
        held.wait_for(|held| held.stamps.values().all(|at| *at >= end)).await.ok();
    }
}
