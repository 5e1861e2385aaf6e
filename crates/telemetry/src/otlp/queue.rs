//! What waits to be sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use casement_domain::SessionId;
use casement_domain::telemetry::{Category, EventCategory, NumberedEvent, StoredBatch};
use metrics::{counter, gauge};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::record;

/// How much waits at most.
const WAITING_EVENTS: usize = 50_000;
const WAITING_BYTES: usize = 32 << 20;
/// How much is sent at once; a single event may be longer.
const BATCH_EVENTS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;
/// How long the first event of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// What an event costs besides its text, in bytes.
const OVERHEAD: usize = 256;

/// An event that is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) session: SessionId,
    pub(crate) numbered: NumberedEvent,
}

impl Outgoing {
    fn size(&self) -> usize {
        self.numbered.event.body.len() + OVERHEAD
    }
}

/// Counts events that never arrive.
pub(crate) fn lost(reason: &'static str, count: usize) {
    counter!("casement_otlp_events_lost_total", "reason" => reason).increment(count as u64);
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Outgoing>,
    bytes: usize,
}

/// A line with room for so many.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    more: Notify,
    /// Those that wait, and those that are on their way.
    left: AtomicUsize,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::default(), more: Notify::new(), left: AtomicUsize::new(0) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many have neither arrived nor been given up.
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Events that were taken out have arrived, or are given up.
    pub(crate) fn settle(&self, count: usize) {
        self.left.fetch_sub(count, Ordering::Relaxed);
    }

    /// What finds room waits; the rest is lost.
    pub(crate) fn push(&self, stored: &StoredBatch) {
        if stored.events.is_empty() && stored.counted.last_seq > stored.before {
            // The store took them and its answer was lost: what they were is not known here any more.
            lost("unconfirmed", usize::try_from(stored.counted.last_seq - stored.before).unwrap_or(usize::MAX));
        }
        let events: Vec<Outgoing> = stored.events.iter().map(|one| outgoing(stored.session, one)).collect();
        let count = events.len();
        let (pushed, now) = {
            let mut waiting = self.waiting();
            let before = waiting.events.len();
            for event in events {
                if waiting.events.len() < WAITING_EVENTS && waiting.bytes + event.size() <= WAITING_BYTES {
                    waiting.bytes += event.size();
                    waiting.events.push_back(event);
                }
            }
            let now = waiting.events.len();
            self.left.fetch_add(now - before, Ordering::Relaxed);
            (now - before, now)
        };
        if pushed < count {
            lost("no_room", count - pushed);
        }
        gauge!("casement_otlp_events_waiting").set(now as f64);
        self.more.notify_one();
    }

    /// The next ones, once there are some and others had a moment to join them. Nothing once all are gone and `stop` is.
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
        let _ = stop.run_until_cancelled(tokio::time::timeout(LINGER, full)).await;
        Some(self.take())
    }

    fn has_a_batch(&self) -> bool {
        let waiting = self.waiting();
        waiting.events.len() >= BATCH_EVENTS || waiting.bytes >= BATCH_BYTES
    }

    fn take(&self) -> Vec<Outgoing> {
        let mut waiting = self.waiting();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(event) = waiting.events.front()
            && batch.len() < BATCH_EVENTS
            && (batch.is_empty() || bytes + event.size() <= BATCH_BYTES)
        {
            bytes += event.size();
            batch.extend(waiting.events.pop_front());
        }
        waiting.bytes -= bytes;
        gauge!("casement_otlp_events_waiting").set(waiting.events.len() as f64);
        batch
    }
}

/// As it waits: pictures stay here.
fn outgoing(session: SessionId, one: &NumberedEvent) -> Outgoing {
    let mut numbered = one.clone();
    if numbered.event.category == EventCategory::Captured(Category::Screenshot) {
        numbered.event.body = record::without_picture(&numbered.event.body);
    }
    Outgoing { session, numbered }
}

#[cfg(test)]
mod tests {
    use casement_domain::telemetry::{Event, SequenceState};
    use casement_domain::testing::{NOON, session_id};

    use super::*;

    fn stored(seqs: std::ops::RangeInclusive<u64>, length: usize) -> StoredBatch {
        let (before, last) = (seqs.start() - 1, *seqs.end());
        let event =
            |seq| NumberedEvent { seq, at: NOON, event: Event::api_call(NOON, &"x".repeat(length), "y", 200, 0) };
        let counted = SequenceState { last_seq: last, last_at: NOON, ..SequenceState::NOTHING };
        StoredBatch { session: session_id(1), before, counted, events: seqs.map(event).collect() }
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
    async fn events_leave_in_their_order_in_batches_of_a_bounded_size() {
        let queue = Queue::new();
        queue.push(&stored(1..=600, 10));
        queue.push(&stored(601..=603, BATCH_BYTES));
        let batches = drain(&queue).await;
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [512, 88, 1, 1, 1]);
        assert_eq!(batches.concat(), (1..=603).collect::<Vec<_>>());
        assert_eq!(queue.left(), 603);
        queue.settle(603);
        assert_eq!(queue.left(), 0);
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_and_so_long_ones() {
        let queue = Queue::new();
        queue.push(&stored(1..=WAITING_EVENTS as u64 + 100, 1));
        assert_eq!(queue.left(), WAITING_EVENTS);
        queue.push(&stored(60_000..=60_000, 1));
        assert_eq!(queue.left(), WAITING_EVENTS);
        let queue = Queue::new();
        queue.push(&stored(1..=100, 1 << 20));
        assert_eq!(queue.left(), 31);
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_event_waits_a_moment_for_others() {
        let queue = std::sync::Arc::new(Queue::new());
        queue.push(&stored(1..=1, 1));
        let stop = CancellationToken::new();
        let (waiting, token) = (queue.clone(), stop.clone());
        let next = tokio::spawn(async move { waiting.next(&token).await.expect("a batch").len() });
        tokio::time::sleep(LINGER / 2).await;
        queue.push(&stored(2..=2, 1));
        assert_eq!(next.await.expect("ran"), 2);
    }
}
