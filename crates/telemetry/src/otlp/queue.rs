//! The queue of events to export.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use casement_domain::SessionId;
use casement_domain::telemetry::{Category, EventCategory, NumberedEvent, StoredBatch};
use metrics::{counter, gauge};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::record;

/// The limits of the queue.
const MAX_QUEUED_EVENTS: usize = 50_000;
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// The limits of a batch; a single event may be larger.
const MAX_BATCH_EVENTS: usize = 512;
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The time for which a batch collects events.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);
/// The memory of an event besides its text, in bytes.
const OVERHEAD: usize = 256;

/// An event to export.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) session: SessionId,
    pub(crate) numbered: NumberedEvent,
}

impl Outgoing {
    /// Returns the memory that the event takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.numbered.event.body.len() + OVERHEAD
    }
}

/// Counts lost events.
pub(crate) fn count_lost(reason: &'static str, count: usize) {
    counter!("casement_otlp_events_lost_total", "reason" => reason).increment(count as u64);
}

#[derive(Default)]
struct Queued {
    events: VecDeque<Outgoing>,
    bytes: usize,
}

/// A bounded queue.
pub(crate) struct Queue {
    waiting: Mutex<Queued>,
    more: Notify,
    /// The number of events that are queued or being sent.
    left: AtomicUsize,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::default(), more: Notify::new(), left: AtomicUsize::new(0) }
    }

    fn waiting(&self) -> MutexGuard<'_, Queued> {
        self.waiting.lock()
    }

    /// Returns the number of events that are queued or being sent.
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Marks taken events as delivered or given up.
    pub(crate) fn finish(&self, count: usize) {
        self.left.fetch_sub(count, Ordering::Relaxed);
    }

    /// Queues stored events; counts those that do not fit as lost.
    pub(crate) fn push(&self, stored: &StoredBatch) {
        if stored.events.is_empty() && stored.counted.last_seq > stored.before {
            // The store accepted the events but its response was lost, so their content is unknown here.
            count_lost("unconfirmed", usize::try_from(stored.counted.last_seq - stored.before).unwrap_or(usize::MAX));
        }
        let events: Vec<Outgoing> = stored.events.iter().map(|one| outgoing(stored.session, one)).collect();
        let count = events.len();
        let (pushed, now) = {
            let mut waiting = self.waiting();
            let before = waiting.events.len();
            for event in events {
                if waiting.events.len() < MAX_QUEUED_EVENTS && waiting.bytes + event.size() <= MAX_QUEUED_BYTES {
                    waiting.bytes += event.size();
                    waiting.events.push_back(event);
                }
            }
            let now = waiting.events.len();
            self.left.fetch_add(now - before, Ordering::Relaxed);
            (now - before, now)
        };
        if pushed < count {
            count_lost("no_room", count - pushed);
        }
        gauge!("casement_otlp_events_waiting").set(now as f64);
        self.more.notify_one();
    }

    /// Waits for an event, and collects a batch for [`COLLECT_INTERVAL`] at most. Returns `None` once the queue is
    /// empty and `stop` is cancelled.
    pub(crate) async fn next(&self, stop: &CancellationToken) -> Option<Vec<Outgoing>> {
        while self.waiting().events.is_empty() {
            if stop.is_cancelled() {
                return None;
            }
            let _ = stop.run_until_cancelled(self.more.notified()).await;
        }
        let full = async {
            while !self.has_a_batch() {
                self.more.notified().await;
            }
        };
        let _ = stop.run_until_cancelled(tokio::time::timeout(COLLECT_INTERVAL, full)).await;
        Some(self.take())
    }

    fn has_a_batch(&self) -> bool {
        let waiting = self.waiting();
        waiting.events.len() >= MAX_BATCH_EVENTS || waiting.bytes >= MAX_BATCH_BYTES
    }

    fn take(&self) -> Vec<Outgoing> {
        let mut waiting = self.waiting();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(event) = waiting.events.front()
            && batch.len() < MAX_BATCH_EVENTS
            && (batch.is_empty() || bytes + event.size() <= MAX_BATCH_BYTES)
        {
            bytes += event.size();
            batch.extend(waiting.events.pop_front());
        }
        waiting.bytes -= bytes;
        gauge!("casement_otlp_events_waiting").set(waiting.events.len() as f64);
        batch
    }
}

/// Converts an event, without its screenshot.
pub(crate) fn outgoing(session: SessionId, one: &NumberedEvent) -> Outgoing {
    let mut numbered = one.clone();
    if numbered.event.category == EventCategory::Captured(Category::Screenshot) {
        numbered.event.body = record::without_screenshot(&numbered.event.body);
    }
    Outgoing { session, numbered }
}

#[cfg(test)]
mod tests {
    use casement_domain::telemetry::{Delivery, Event, SequenceState};
    use casement_domain::testing::{NOON, session_id};

    use super::*;

    fn stored(seqs: std::ops::RangeInclusive<u64>, length: usize) -> StoredBatch {
        let (before, last) = (seqs.start() - 1, *seqs.end());
        let event =
            |seq| NumberedEvent { seq, at: NOON, event: Event::api_call(NOON, &"x".repeat(length), "y", 200, 0) };
        let counted = SequenceState { last_seq: last, last_at: NOON, ..SequenceState::NOTHING };
        StoredBatch {
            session: session_id(1),
            before,
            counted,
            events: seqs.map(event).collect(),
            delivery: Delivery::default(),
        }
    }

    async fn drain(queue: &Queue) -> Vec<Vec<u64>> {
        let stop = CancellationToken::new();
        stop.cancel();
        let mut batches = Vec::new();
        while let Some(batch) = queue.next(&stop).await {
            batches.push(batch.iter().map(|one| one.numbered.seq).collect());
        }
        batches
    }

    #[tokio::test]
    async fn batches_keep_the_order_and_are_bounded() {
        let queue = Queue::new();
        queue.push(&stored(1..=600, 10));
        queue.push(&stored(601..=603, MAX_BATCH_BYTES));
        let batches = drain(&queue).await;
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [512, 88, 1, 1, 1]);
        assert_eq!(batches.concat(), (1..=603).collect::<Vec<_>>());
        assert_eq!(queue.left(), 603);
        queue.finish(603);
        assert_eq!(queue.left(), 0);
    }

    #[tokio::test]
    async fn the_queue_is_bounded_in_events_and_bytes() {
        let queue = Queue::new();
        queue.push(&stored(1..=MAX_QUEUED_EVENTS as u64 + 100, 1));
        assert_eq!(queue.left(), MAX_QUEUED_EVENTS);
        queue.push(&stored(60_000..=60_000, 1));
        assert_eq!(queue.left(), MAX_QUEUED_EVENTS);
        let queue = Queue::new();
        queue.push(&stored(1..=100, 1 << 20));
        assert_eq!(queue.left(), 31);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_collects_events_for_a_moment() {
        let queue = std::sync::Arc::new(Queue::new());
        queue.push(&stored(1..=1, 1));
        let stop = CancellationToken::new();
        let (waiting, token) = (queue.clone(), stop.clone());
        let next = tokio::spawn(async move { waiting.next(&token).await.expect("a batch").len() });
        tokio::time::sleep(COLLECT_INTERVAL / 2).await;
        queue.push(&stored(2..=2, 1));
        assert_eq!(next.await.expect("ran"), 2);
    }
}
