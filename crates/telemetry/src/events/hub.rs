//! Whoever follows a session's events.
//!
//! A session that nobody follows has nothing here. One that is followed has a ring of its latest events, shared by all its followers;
//! what a follower needs of the time before comes from the store. So memory is bounded per session, not per follower, and an idle
//! follower is a waker in a list.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::telemetry::{
    EventCategory, Feed, Followed, FollowedEvents, NumberedEvent, Order, Span, Start, StoredBatch, TelemetryStore,
};
use casement_domain::{SessionId, StoreError};
use futures_util::{StreamExt as _, stream};
use tokio::sync::watch;
use tracing::debug;

/// How much a ring holds at most. The events that were stored last are held whatever their size.
const RING_EVENTS: usize = 10_000;
const RING_BYTES: usize = 16 << 20;
/// How many events a follower takes out of the ring, or out of the store, at once.
const AT_ONCE: usize = 100;
/// How long until the store is asked again that is away.
const AGAIN: Duration = Duration::from_secs(1);

/// The hubs of the sessions that are followed; clones are the same ones.
#[derive(Clone)]
pub struct EventHubs {
    store: Arc<dyn TelemetryStore>,
    open: Arc<Mutex<HashMap<SessionId, Arc<EventHub>>>>,
}

/// What the followers of one session share.
struct EventHub {
    ring: Mutex<Ring>,
    /// Changes with the ring.
    changed: watch::Sender<u64>,
}

/// The latest events.
#[derive(Default)]
struct Ring {
    events: VecDeque<NumberedEvent>,
    bytes: usize,
    /// The last number of what was stored, once anything is known.
    through: Option<u64>,
    /// The events up to this number are not here, because the ring began behind them.
    began: u64,
    /// The events up to this number are not here, because others took their place.
    evicted: u64,
    closed: bool,
}

/// What a follower finds behind a number.
enum RingRead {
    /// The next events.
    Events(Vec<NumberedEvent>),
    /// Not here; the store has them. Whether they were here once.
    Gone { evicted: bool },
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    Closed,
}

impl EventHubs {
    pub(crate) fn new(store: Arc<dyn TelemetryStore>) -> Self {
        Self { store, open: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<EventHub>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, session: SessionId) -> Follower {
        let mut open = self.open();
        let hub = open.entry(session).or_insert_with(|| {
            metrics::gauge!("casement_telemetry_followed_sessions").increment(1.0);
            Arc::new(EventHub { ring: Mutex::default(), changed: watch::Sender::new(0) })
        });
        Follower { hubs: self.clone(), session, hub: Arc::clone(hub), after: 0, next: VecDeque::new(), live: false }
    }

    /// Whether anybody follows the session.
    pub(super) fn is_followed(&self, session: SessionId) -> bool {
        self.open().contains_key(&session)
    }

    /// New events of a session have been stored.
    pub(super) fn push(&self, stored: StoredBatch) {
        let hub = self.open().get(&stored.session).cloned();
        if let Some(hub) = hub {
            hub.ring().push(stored);
            hub.changed.send_modify(|count| *count += 1);
        }
    }

    /// A session has ended, and all its events were pushed.
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
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// What is stored up to this number, the ring learns of no more.
    fn begin(&mut self, last_seq: u64) {
        if self.through.is_none() {
            (self.through, self.began) = (Some(last_seq), last_seq);
        }
    }

    fn push(&mut self, StoredBatch { before, counted, events, .. }: StoredBatch) {
        // Something was stored without our learning of it: a commit whose answer was lost.
        if self.through.is_some_and(|through| through != before) || (events.is_empty() && counted.last_seq != before) {
            self.events.clear();
            self.bytes = 0;
            self.began = before;
        } else if self.through.is_none() {
            self.began = before;
        }
        self.through = Some(counted.last_seq);
        let new = events.len();
        self.bytes += events.iter().map(|one| one.event.body.len()).sum::<usize>();
        self.events.extend(events);
        while self.events.len() > new && (self.bytes > RING_BYTES || self.events.len() > RING_EVENTS) {
            if let Some(oldest) = self.events.pop_front() {
                self.bytes -= oldest.event.body.len();
                self.evicted = oldest.seq;
            }
        }
    }

    fn after(&self, seq: u64) -> RingRead {
        if seq < self.began.max(self.evicted) {
            return RingRead::Gone { evicted: seq >= self.began };
        }
        let from = self.events.partition_point(|one| one.seq <= seq);
        let found: Vec<NumberedEvent> = self.events.range(from..).take(AT_ONCE).cloned().collect();
        match (found.is_empty(), self.closed) {
            (false, _) => RingRead::Events(found),
            (true, true) => RingRead::Closed,
            (true, false) => RingRead::Nothing,
        }
    }
}

/// One who follows.
struct Follower {
    hubs: EventHubs,
    session: SessionId,
    hub: Arc<EventHub>,
    /// The number of the last event that it got.
    after: u64,
    /// What it gets next.
    next: VecDeque<NumberedEvent>,
    /// Whether it has been up to date since it came.
    live: bool,
}

impl Follower {
    /// The next event; nothing at the end.
    async fn step(&mut self) -> Option<Followed> {
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
                    // The sender lives as long as the hub.
                    let _ = changed.changed().await;
                }
            }
        }
    }

    /// Reads on in the store.
    async fn read(&mut self) {
        let span = Span {
            limit: AT_ONCE as u32,
            order: Order::Ascending,
            behind: Some(self.after),
            since: None,
            until: None,
            categories: EventCategory::ALL.to_vec(),
        };
        match self.hubs.store.page(self.session, &span).await {
            Ok((events, more)) => {
                if !more {
                    // What is not there any more is not waited for.
                    let ring = self.hub.ring();
                    let known = ring.began.max(ring.evicted);
                    self.after = self.after.max(known.min(events.first().map_or(known, |first| first.seq - 1)));
                }
                self.next.extend(events);
            }
            Err(error) => {
                debug!(session = %self.session, %error, "a follower of telemetry waits for the store");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut open = self.hubs.open();
        // Ours, and the map's.
        if Arc::strong_count(&self.hub) <= 2 && open.remove(&self.session).is_some() {
            metrics::gauge!("casement_telemetry_followed_sessions").decrement(1.0);
        }
    }
}

#[async_trait]
impl Feed for EventHubs {
    async fn follow(&self, session: SessionId, start: Start) -> Result<FollowedEvents, StoreError> {
        // First here, then asked: what is stored from now on is pushed to us.
        let mut follower = self.enter(session);
        let last_seq = self.store.counted(session).await?.last_seq;
        follower.hub.ring().begin(last_seq);
        follower.after = match start {
            Start::Now => last_seq,
            Start::Oldest => 0,
            Start::After(seq) => seq.min(last_seq),
        };
        let events = stream::unfold(Some(follower), |follower| async move {
            let mut follower = follower?;
            match follower.step().await? {
                Followed::TooSlow => Some((Followed::TooSlow, None)),
                event => Some((event, Some(follower))),
            }
        });
        Ok(events.boxed())
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::telemetry::{Event, MockTelemetryStore, SequenceState};
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
        StoredBatch { session: session_id(1), before, counted, events: seqs.map(|seq| numbered(seq, bytes)).collect() }
    }

    /// A store that has the events up to a number.
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

    /// The numbers that are there without waiting, and whether it is over.
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
    async fn whoever_follows_gets_each_event_once_from_where_it_began() {
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
    async fn numbers_that_nobody_has_any_more_are_not_waited_for() {
        let mut store = MockTelemetryStore::new();
        store.expect_counted().returning(|_| Ok(SequenceState { last_seq: 9, ..SequenceState::NOTHING }));
        store.expect_page().returning(|_, _| Ok((Vec::new(), false)));
        let hubs = EventHubs::new(Arc::new(store));
        let mut oldest = follow(&hubs, Start::Oldest).await;
        hubs.push(stored(10..=10, 0));
        assert_eq!(ready(&mut oldest), (vec![10], false));
    }

    #[tokio::test]
    async fn what_was_stored_without_our_learning_of_it_is_read_from_the_store() {
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
    async fn whoever_reads_too_slowly_is_cut_and_the_others_are_not() {
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
        assert!(hub.ring().bytes <= RING_BYTES);
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_session_that_nobody_follows() {
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
