//! Followers of a session's events.
//!
//! A session without followers has no state here. A followed session has a ring of its latest events, shared by all its
//! followers; older events come from the store. So memory is bounded per session, not per follower, and an idle
//! follower costs a waker.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::telemetry::{
    EventCategory, Feed, Followed, FollowedEvents, NumberedEvent, Order, Span, Start, StoredBatch, TelemetryStore,
    TypeFilter,
};
use casement_domain::{SessionId, StoreError};
use futures_util::{StreamExt as _, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tracing::debug;

/// The maximum size of a ring, except that the events of the last store operation are never removed.
const MAX_RING_EVENTS: usize = 10_000;
const MAX_RING_BYTES: usize = 16 << 20;
/// The maximum number of events that a follower reads from the ring or the store at once.
const READ_EVENTS: usize = 100;
/// The pause before a request to an unavailable store is repeated.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// The event hubs of the followed sessions. Clones share their state.
#[derive(Clone)]
pub struct EventHubs {
    store: Arc<dyn TelemetryStore>,
    open: Arc<Mutex<HashMap<SessionId, Arc<EventHub>>>>,
}

/// The state that the followers of one session share.
struct EventHub {
    ring: Mutex<Ring>,
    /// Counts the changes of the ring.
    changed: watch::Sender<u64>,
}

/// A ring of the latest events.
#[derive(Default)]
struct Ring {
    events: VecDeque<NumberedEvent>,
    bytes: usize,
    /// The number of the last stored event, once known.
    through: Option<u64>,
    /// The ring contains no events up to this number, because it began later.
    begins_after: u64,
    /// The number of the last evicted event.
    evicted: u64,
    closed: bool,
}

/// The result of reading after a number.
enum RingRead {
    /// The next events.
    Events(Vec<NumberedEvent>),
    /// The next events are only in the store. `evicted`: they were in the ring before.
    Gone { evicted: bool },
    /// No new events yet.
    Nothing,
    /// The end of the session.
    Closed,
}

impl EventHubs {
    pub(crate) fn new(store: Arc<dyn TelemetryStore>) -> Self {
        Self { store, open: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<EventHub>>> {
        self.open.lock()
    }

    fn register(&self, session: SessionId) -> Follower {
        let mut open = self.open();
        let hub = open.entry(session).or_insert_with(|| {
            metrics::gauge!("casement_telemetry_followed_sessions").increment(1.0);
            Arc::new(EventHub { ring: Mutex::default(), changed: watch::Sender::new(0) })
        });
        Follower { hubs: self.clone(), session, hub: Arc::clone(hub), after: 0, next: VecDeque::new(), live: false }
    }

    /// Returns true if the session has followers.
    pub(super) fn is_followed(&self, session: SessionId) -> bool {
        self.open().contains_key(&session)
    }

    /// Adds stored events of a session.
    pub(super) fn push(&self, stored: StoredBatch) {
        let hub = self.open().get(&stored.session).cloned();
        if let Some(hub) = hub {
            hub.ring().push(stored);
            hub.changed.send_modify(|count| *count += 1);
        }
    }

    /// Closes the hub of an ended session, after all its events were added.
    pub(super) fn close(&self, session: SessionId) {
        let hub = self.open().get(&session).cloned();
        if let Some(hub) = hub {
            hub.ring().closed = true;
            hub.changed.send_modify(|count| *count += 1);
        }
    }
}

impl EventHub {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

impl Ring {
    /// Sets the number up to which the ring does not get events.
    fn set_start(&mut self, last_seq: u64) {
        if self.through.is_none() {
            (self.through, self.begins_after) = (Some(last_seq), last_seq);
        }
    }

    fn push(&mut self, StoredBatch { before, counted, events, .. }: StoredBatch) {
        // Events are missing here, because the response of their commit was lost.
        if self.through.is_some_and(|through| through != before) || (events.is_empty() && counted.last_seq != before) {
            self.events.clear();
            self.bytes = 0;
            self.begins_after = before;
        } else if self.through.is_none() {
            self.begins_after = before;
        }
        self.through = Some(counted.last_seq);
        let new = events.len();
        self.bytes += events.iter().map(|one| one.event.body.len()).sum::<usize>();
        self.events.extend(events);
        while self.events.len() > new && (self.bytes > MAX_RING_BYTES || self.events.len() > MAX_RING_EVENTS) {
            if let Some(oldest) = self.events.pop_front() {
                self.bytes -= oldest.event.body.len();
                self.evicted = oldest.seq;
            }
        }
    }

    fn after(&self, seq: u64) -> RingRead {
        if seq < self.begins_after.max(self.evicted) {
            return RingRead::Gone { evicted: seq >= self.begins_after };
        }
        let from = self.events.partition_point(|one| one.seq <= seq);
        let found: Vec<NumberedEvent> = self.events.range(from..).take(READ_EVENTS).cloned().collect();
        match (found.is_empty(), self.closed) {
            (false, _) => RingRead::Events(found),
            (true, true) => RingRead::Closed,
            (true, false) => RingRead::Nothing,
        }
    }
}

/// The position of a follower.
struct Follower {
    hubs: EventHubs,
    session: SessionId,
    hub: Arc<EventHub>,
    /// The number of the last event that the follower received.
    after: u64,
    /// The events that the follower receives next.
    next: VecDeque<NumberedEvent>,
    /// True once the follower has read from the ring, instead of the store.
    live: bool,
}

impl Follower {
    /// Returns the next item; `None` at the end.
    async fn next_item(&mut self) -> Option<Followed> {
        let mut changed = self.hub.changed.subscribe();
        loop {
            if let Some(event) = self.next.pop_front() {
                self.after = event.seq;
                return Some(Followed::Event(event));
            }
            changed.mark_unchanged();
            let found = self.hub.ring().after(self.after);
            match found {
                RingRead::Events(events) => {
                    self.live = true;
                    self.next.extend(events);
                }
                RingRead::Gone { evicted: true } if self.live => {
                    metrics::counter!("casement_telemetry_slow_followers_total").increment(1);
                    return Some(Followed::TooSlow);
                }
                RingRead::Gone { .. } => self.read().await,
                RingRead::Closed => return None,
                RingRead::Nothing => {
                    self.live = true;
                    // Never fails: the sender exists as long as the hub.
                    let _ = changed.changed().await;
                }
            }
        }
    }

    /// Reads the next events from the store.
    async fn read(&mut self) {
        let span = Span {
            limit: READ_EVENTS as u32,
            order: Order::Ascending,
            behind: Some(self.after),
            since: None,
            until: None,
            categories: EventCategory::ALL.to_vec(),
            types: TypeFilter::default(),
        };
        match self.hubs.store.page(self.session, &span).await {
            Ok((events, more)) => {
                if !more {
                    // Skips the numbers of events that no longer exist.
                    let ring = self.hub.ring();
                    let known = ring.begins_after.max(ring.evicted);
                    self.after = self.after.max(known.min(events.first().map_or(known, |first| first.seq - 1)));
                }
                self.next.extend(events);
            }
            Err(error) => {
                debug!(session = %self.session, %error, "a telemetry follower cannot read the store; retrying");
                tokio::time::sleep(RETRY_BACKOFF).await;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut open = self.hubs.open();
        // One reference here, one in the map.
        if Arc::strong_count(&self.hub) <= 2 && open.remove(&self.session).is_some() {
            metrics::gauge!("casement_telemetry_followed_sessions").decrement(1.0);
        }
    }
}

#[async_trait]
impl Feed for EventHubs {
    async fn follow(&self, session: SessionId, start: Start) -> Result<FollowedEvents, StoreError> {
        // Registers before it reads, so that no event in between is missed.
        let mut follower = self.register(session);
        let last_seq = self.store.counted(session).await?.last_seq;
        follower.hub.ring().set_start(last_seq);
        follower.after = match start {
            Start::Now => last_seq,
            Start::Oldest => 0,
            Start::After(seq) => seq.min(last_seq),
        };
        let events = stream::unfold(Some(follower), |follower| async move {
            let mut follower = follower?;
            match follower.next_item().await? {
                Followed::TooSlow => Some((Followed::TooSlow, None)),
                event => Some((event, Some(follower))),
            }
        });
        Ok(events.boxed())
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::telemetry::{Delivery, Event, MockTelemetryStore, SequenceState};
    use casement_domain::testing::{NOON, session_id};
    use futures_util::FutureExt as _;

    use super::*;

    fn numbered(seq: u64, bytes: usize) -> NumberedEvent {
        let event = Event::api_call(NOON, &"x".repeat(bytes), "y", 200, 0);
        NumberedEvent { seq, at: NOON, event }
    }

    fn stored(seqs: std::ops::RangeInclusive<u64>, bytes: usize) -> StoredBatch {
        let counted = SequenceState { last_seq: *seqs.end(), ..SequenceState::NOTHING };
        let before = seqs.start() - 1;
        StoredBatch {
            session: session_id(1),
            before,
            counted,
            events: seqs.map(|seq| numbered(seq, bytes)).collect(),
            delivery: Delivery::default(),
        }
    }

    /// A mock store with the events up to a number.
    fn store(last: u64) -> MockTelemetryStore {
        let mut store = MockTelemetryStore::new();
        store.expect_counted().returning(move |_| Ok(SequenceState { last_seq: last, ..SequenceState::NOTHING }));
        store.expect_page().returning(move |_, span| {
            let first = span.behind.unwrap_or(0) + 1;
            let until = (first + u64::from(span.limit) - 1).min(last);
            Ok(((first..=until).map(|seq| numbered(seq, 0)).collect(), until < last))
        });
        store
    }

    async fn follow(hubs: &EventHubs, start: Start) -> FollowedEvents {
        hubs.follow(session_id(1), start).await.expect("followed")
    }

    /// Returns the numbers that are available without waiting, and whether the stream has ended.
    fn ready(events: &mut FollowedEvents) -> (Vec<u64>, bool) {
        let mut seqs = Vec::new();
        loop {
            match events.next().now_or_never() {
                None => return (seqs, false),
                Some(None) => return (seqs, true),
                Some(Some(Followed::Event(one))) => seqs.push(one.seq),
                Some(Some(Followed::TooSlow)) => panic!("too slow behind {seqs:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_follower_gets_each_event_once() {
        let hubs = EventHubs::new(Arc::new(store(250)));
        let mut now = follow(&hubs, Start::Now).await;
        let mut oldest = follow(&hubs, Start::Oldest).await;
        let mut resumed = follow(&hubs, Start::After(240)).await;
        let mut ahead = follow(&hubs, Start::After(9_999)).await;
        hubs.push(stored(251..=252, 0));
        hubs.push(stored(253..=253, 0));
        assert_eq!(ready(&mut now).0, [251, 252, 253]);
        assert_eq!(ready(&mut ahead).0, [251, 252, 253]);
        assert_eq!(ready(&mut resumed).0, (241..=253).collect::<Vec<_>>());
        assert_eq!(ready(&mut oldest).0, (1..=253).collect::<Vec<_>>());
        hubs.push(stored(254..=254, 0));
        assert_eq!(ready(&mut oldest), (vec![254], false));
        hubs.close(session_id(1));
        assert_eq!(ready(&mut oldest), (vec![], true));
        assert_eq!(ready(&mut now), (vec![254], true));
    }

    #[tokio::test]
    async fn deleted_events_are_skipped() {
        let mut store = MockTelemetryStore::new();
        store.expect_counted().returning(|_| Ok(SequenceState { last_seq: 9, ..SequenceState::NOTHING }));
        store.expect_page().returning(|_, _| Ok((Vec::new(), false)));
        let hubs = EventHubs::new(Arc::new(store));
        let mut oldest = follow(&hubs, Start::Oldest).await;
        hubs.push(stored(10..=10, 0));
        assert_eq!(ready(&mut oldest), (vec![10], false));
    }

    #[tokio::test]
    async fn unreported_events_are_read_from_the_store() {
        let mut inner = store(3);
        inner.checkpoint();
        inner.expect_counted().returning(|_| Ok(SequenceState { last_seq: 3, ..SequenceState::NOTHING }));
        inner.expect_page().times(1).returning(|_, span| {
            assert_eq!(span.behind, Some(3));
            Ok((vec![numbered(4, 0), numbered(5, 0)], false))
        });
        let hubs = EventHubs::new(Arc::new(inner));
        let mut events = follow(&hubs, Start::Now).await;
        hubs.push(stored(6..=6, 0));
        assert_eq!(ready(&mut events), (vec![4, 5, 6], false));
    }

    #[tokio::test]
    async fn a_slow_follower_is_cut_off_alone() {
        let hubs = EventHubs::new(Arc::new(store(0)));
        let (mut slow, mut quick) = (follow(&hubs, Start::Now).await, follow(&hubs, Start::Now).await);
        assert_eq!((ready(&mut slow), ready(&mut quick)), ((vec![], false), (vec![], false)));
        for batch in 0..20 {
            let seqs = batch * 1_000 + 1..=batch * 1_000 + 1_000;
            hubs.push(stored(seqs.clone(), 2_000));
            assert_eq!(ready(&mut quick).0, seqs.collect::<Vec<_>>());
        }
        assert_eq!(slow.next().await, Some(Followed::TooSlow));
        assert_eq!(slow.next().await, None);
        let hub = hubs.open().get(&session_id(1)).cloned().expect("a hub");
        assert!(hub.ring().bytes <= MAX_RING_BYTES);
    }

    #[tokio::test]
    async fn a_session_without_followers_has_no_state() {
        let hubs = EventHubs::new(Arc::new(store(0)));
        let (first, second) = (follow(&hubs, Start::Now).await, follow(&hubs, Start::Now).await);
        drop(first);
        assert_eq!(hubs.open().len(), 1);
        drop(second);
        assert!(hubs.open().is_empty());
        hubs.push(stored(1..=1, 0));
        assert!(hubs.open().is_empty());
    }
}
