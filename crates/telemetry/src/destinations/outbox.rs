//! What waits for the export to one destination.

use std::collections::{HashSet, VecDeque};

use casement_domain::SessionId;
use casement_domain::telemetry::StoredBatch;
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::otlp::{Outgoing, outgoing};

/// The limits of the events in memory: those of sessions whose events are not stored.
pub(super) const MAX_EVENTS: usize = 10_000;
pub(super) const MAX_BYTES: usize = 8 << 20;
pub(super) const MAX_AGE: time::Duration = time::Duration::HOUR;
/// The limits of a batch; a single event may be larger.
pub(super) const MAX_BATCH_EVENTS: usize = 512;
pub(super) const MAX_BATCH_BYTES: usize = 1 << 20;

/// Sessions with stored events to export, and events that are not stored.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    sessions: VecDeque<SessionId>,
    known: HashSet<SessionId>,
    events: VecDeque<Outgoing>,
    bytes: usize,
}

impl Outbox {
    /// Notes that a session has stored events to export.
    pub(super) fn add_session(&self, session: SessionId) {
        let mut waiting = self.waiting.lock();
        if waiting.known.insert(session) {
            waiting.sessions.push_back(session);
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// Queues events that are not stored. Returns the number of those that do not fit.
    pub(super) fn push(&self, stored: &StoredBatch) -> usize {
        let mut waiting = self.waiting.lock();
        let mut refused = 0;
        for event in stored.events.iter().map(|one| outgoing(stored.session, one)) {
            if waiting.events.len() < MAX_EVENTS && waiting.bytes + event.size() <= MAX_BYTES {
                waiting.bytes += event.size();
                waiting.events.push_back(event);
            } else {
                refused += 1;
            }
        }
        drop(waiting);
        self.more.notify_one();
        refused
    }

    /// Waits until anything is to be exported.
    pub(super) async fn wait(&self) {
        while self.is_empty() {
            self.more.notified().await;
        }
    }

    /// Returns true if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.sessions.is_empty() && waiting.events.is_empty()
    }

    /// Returns the number of waiting sessions.
    pub(super) fn session_count(&self) -> usize {
        self.waiting.lock().sessions.len()
    }

    /// Takes the next session.
    pub(super) fn next_session(&self) -> Option<SessionId> {
        let mut waiting = self.waiting.lock();
        let session = waiting.sessions.pop_front()?;
        waiting.known.remove(&session);
        Some(session)
    }

    /// Takes the next batch of events that are not stored; none if there are none.
    pub(super) fn next_batch(&self) -> Vec<Outgoing> {
        let mut waiting = self.waiting.lock();
        let batch = front_batch(&mut waiting.events);
        waiting.bytes -= batch.iter().map(Outgoing::size).sum::<usize>();
        batch
    }

    /// Puts a batch back that was not accepted. Drops the events that are too old to be sent, of the batch and of those
    /// behind it, and returns their number.
    pub(super) fn put_back(&self, batch: Vec<Outgoing>, now: OffsetDateTime) -> usize {
        let mut waiting = self.waiting.lock();
        for event in batch.into_iter().rev() {
            waiting.bytes += event.size();
            waiting.events.push_front(event);
        }
        let mut lost = 0;
        while let Some(event) = waiting.events.front()
            && now - event.numbered.at > MAX_AGE
        {
            waiting.bytes -= event.size();
            waiting.events.pop_front();
            lost += 1;
        }
        lost
    }

    /// Drops everything. Returns the number of dropped events.
    pub(super) fn clear(&self) -> usize {
        std::mem::take(&mut *self.waiting.lock()).events.len()
    }
}

/// Takes a batch from the front.
pub(super) fn front_batch(events: &mut VecDeque<Outgoing>) -> Vec<Outgoing> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(event) = events.front()
        && batch.len() < MAX_BATCH_EVENTS
        && (batch.is_empty() || bytes + event.size() <= MAX_BATCH_BYTES)
    {
        bytes += event.size();
        batch.extend(events.pop_front());
    }
    batch
}
