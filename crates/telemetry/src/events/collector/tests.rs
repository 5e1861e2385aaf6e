//! Tests of the collector, with a mock agent and store.

use casement_domain::storage::StorageRoom;
use casement_domain::telemetry::{
    Batch, Delivery, Item, MockTelemetryStore, MockTelemetryTap, NumberedEvent, SequenceState, Span, StoredBatch,
    Unexported, What, number,
};
use casement_domain::testing::{NOON, browser_id, session};
use casement_domain::{NodeId, StoreError, TelemetryDestinationId};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::time::timeout;

use super::*;
use crate::events::start;
use crate::events::writer::tests::system;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The stored rows.
type Rows = (HashMap<SessionId, SequenceState>, Vec<NumberedEvent>);

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Rows>>);

impl Memory {
    fn store(&self) -> MockTelemetryStore {
        let mut store = MockTelemetryStore::new();
        let memory = self.clone();
        store.expect_append().returning(move |batches, _| Ok(batches.iter().map(|one| memory.keep(one)).collect()));
        let memory = self.clone();
        store
            .expect_counted()
            .returning(move |id| Ok(memory.0.lock().0.get(&id).copied().unwrap_or(SequenceState::NOTHING)));
        store
    }

    fn keep(&self, batch: &Batch) -> StoredBatch {
        let (counts, all) = &mut *self.0.lock();
        let counted = counts.entry(batch.session).or_insert(SequenceState::NOTHING);
        let before = counted.last_seq;
        let events = number(counted, batch.items.clone(), NOON, &mut StorageRoom::unbounded());
        all.extend(events.clone());
        StoredBatch { session: batch.session, before, counted: *counted, events, delivery: Delivery::default() }
    }

    fn kinds(&self) -> Vec<String> {
        let kind = |one: &NumberedEvent| {
            let body: serde_json::Value = serde_json::from_str(&one.event.body).expect("JSON");
            body["type"].as_str().expect("a type").to_owned()
        };
        self.0.lock().1.iter().map(kind).collect()
    }

    async fn until(&self, count: usize) {
        let there = async {
            while self.kinds().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TEST_TIMEOUT, there).await.expect("the events are stored");
    }
}

fn event(category: Category, kind: &str) -> Event {
    Event::ours::<0>(category, kind, NOON, None, None)
}

fn received(seq: u64) -> Item {
    Item { agent_seq: Some(seq), what: What::Event(event(Category::Console, "console_log")) }
}

fn with(telemetry: &[Category]) -> Session {
    Session { telemetry: Capture::only(telemetry.iter().copied()), ..session(1) }
}

#[tokio::test]
async fn only_captured_categories_are_stored_and_changes_apply_at_once() {
    let memory = Memory::default();
    let mut tap = MockTelemetryTap::new();
    let configured = Arc::new(Mutex::new(Vec::new()));
    let seen = configured.clone();
    tap.expect_configure().returning(move |_, capture| {
        seen.lock().push(capture);
        Ok(())
    });
    tap.expect_follow().returning(|_, _| Ok(stream::pending().boxed()));
    let stop = CancellationToken::new();
    let (collector, _, writer) =
        start(system(), Arc::new(memory.store()), Arc::new(tap), Arc::new(|_| 0), None, stop.clone());
    let id = session(1).id;
    collector.note(id, event(Category::Control, "before"));
    collector.capture(&with(&[Category::Control])).await.expect("captured");
    assert!(collector.captures(id, Category::Control) && !collector.captures(id, Category::Connection));
    collector.note(id, event(Category::Control, "one"));
    collector.note(id, event(Category::Connection, "not_wanted"));
    collector.capture(&with(&[Category::Connection])).await.expect("captured");
    collector.take_up(&with(&[Category::Control]));
    collector.note(id, event(Category::Control, "not_any_more"));
    collector.note(id, event(Category::Connection, "two"));
    collector.capture(&with(&[])).await.expect("captured");
    collector.note(id, event(Category::Connection, "off"));
    stop.cancel();
    writer.finish(TEST_TIMEOUT).await;
    assert_eq!(memory.kinds(), ["one", "two"]);
    assert_eq!(configured.lock().last(), Some(&None));
}

#[tokio::test]
async fn agent_events_are_stored_confirmed_and_followed_to_the_end() {
    let memory = Memory::default();
    let mut tap = MockTelemetryTap::new();
    tap.expect_configure().returning(|_, _| Ok(()));
    let breaks = OperationError::Broken("it broke off".to_owned());
    let mut streams = vec![
        stream::iter([Ok(received(1)), Ok(received(2)), Err(breaks)]).boxed(),
        stream::iter([Ok(received(2)), Ok(received(3)), Ok(received(5))]).boxed(),
    ];
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    tap.expect_follow().returning(move |browser, after| {
        seen.lock().push((browser, after));
        if streams.is_empty() {
            return Err(EngineError::NotRunning(browser).into());
        }
        Ok(streams.remove(0))
    });
    tap.expect_confirm().returning(|_, _| Ok(()));
    tap.expect_finish().times(1).returning(|_| Ok(5));
    let stop = CancellationToken::new();
    let (collector, _, writer) =
        start(system(), Arc::new(memory.store()), Arc::new(tap), Arc::new(|_| 0), None, stop.clone());
    collector.capture(&with(&[Category::Console])).await.expect("captured");
    memory.until(5).await;
    assert_eq!(memory.kinds(), ["console_log", "console_log", "console_log", "telemetry_dropped", "console_log"]);
    assert_eq!(calls.lock()[..2], [(browser_id(1), 0), (browser_id(1), 2)]);
    collector.ended(session(1).id);
    let gone = async {
        while collector.find(session(1).id).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, gone).await.expect("nothing is left of the session");
    stop.cancel();
    writer.finish(TEST_TIMEOUT).await;
}

/// A mock agent that sends these events, each after a pause, and reports the last number at its end.
fn agent(received: Vec<u64>, last: Result<u64, OperationError>) -> MockTelemetryTap {
    let mut tap = MockTelemetryTap::new();
    tap.expect_configure().returning(|_, _| Ok(()));
    tap.expect_confirm().returning(|_, _| Ok(()));
    let mut streams = vec![received];
    tap.expect_follow().returning(move |browser, _| {
        let numbers = streams.pop().ok_or(EngineError::NotRunning(browser))?;
        Ok(stream::iter(numbers)
            .then(async |seq| {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(self::received(seq))
            })
            .boxed())
    });
    let mut last = Some(last);
    tap.expect_finish().times(1).returning(move |_| last.take().expect("it is called once"));
    tap
}

async fn collected(tap: MockTelemetryTap) -> Memory {
    let (memory, stop) = (Memory::default(), CancellationToken::new());
    let (collector, _, writer) =
        start(system(), Arc::new(memory.store()), Arc::new(tap), Arc::new(|_| 0), None, stop.clone());
    let session = with(&[Category::Console]);
    collector.capture(&session).await.expect("captured");
    collector.ended(session.id);
    assert!(collector.is_owed(&session));
    timeout(TEST_TIMEOUT, collector.collect(&session, browser_id(1))).await.expect("collected");
    stop.cancel();
    writer.finish(TEST_TIMEOUT).await;
    memory
}

#[tokio::test]
async fn buffered_agent_events_are_stored_at_the_end_of_a_session() {
    let memory = collected(agent((1..=500).collect(), Ok(500))).await;
    assert_eq!(memory.kinds(), vec!["console_log"; 500]);
}

#[tokio::test]
async fn events_of_an_agent_that_is_gone_are_stored() {
    let gone = OperationError::Engine(EngineError::NotRunning(browser_id(1)));
    let memory = collected(agent((1..=50).collect(), Err(gone))).await;
    assert!(memory.kinds().iter().all(|kind| kind == "console_log"), "{:?}", memory.kinds());
}

#[tokio::test]
async fn events_that_an_agent_did_not_send_are_counted_as_lost() {
    let memory = collected(agent(vec![1, 2], Ok(5))).await;
    assert_eq!(memory.kinds(), ["console_log", "console_log", "telemetry_dropped"]);
    let rows = memory.0.lock();
    let body: serde_json::Value = serde_json::from_str(&rows.1[2].event.body).expect("JSON");
    assert_eq!(body["data"], serde_json::json!({ "count": 3, "first_seq": 3, "last_seq": 5 }));
}

#[tokio::test]
async fn an_ended_session_of_a_previous_process_is_collected() {
    let (memory, stop) = (Memory::default(), CancellationToken::new());
    let tap = agent((1..=20).collect(), Ok(20));
    let (collector, _, writer) =
        start(system(), Arc::new(memory.store()), Arc::new(tap), Arc::new(|_| 0), None, stop.clone());
    let session = with(&[Category::Console]);
    timeout(TEST_TIMEOUT, collector.collect(&session, browser_id(1))).await.expect("collected");
    stop.cancel();
    writer.finish(TEST_TIMEOUT).await;
    assert_eq!(memory.kinds().len(), 20);
}

/// A store with slow commits, which records the number of events of each.
struct Slow(Memory, Arc<Mutex<Vec<usize>>>);

#[async_trait]
impl TelemetryStore for Slow {
    async fn append(&self, batches: &[Batch], _: OffsetDateTime) -> Result<Vec<StoredBatch>, StoreError> {
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.1.lock().push(batches.iter().map(|batch| batch.items.len()).sum());
        Ok(batches.iter().map(|one| self.0.keep(one)).collect())
    }

    async fn page(&self, _: SessionId, _: &Span) -> Result<(Vec<NumberedEvent>, bool), StoreError> {
        Ok((Vec::new(), false))
    }

    async fn counted(&self, _: SessionId) -> Result<SequenceState, StoreError> {
        Ok(SequenceState::NOTHING)
    }

    async fn unexported(&self, _: SessionId) -> Result<Option<Unexported>, StoreError> {
        Ok(None)
    }

    async fn set_exported(&self, _: SessionId, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn with_unexported(&self, _: NodeId) -> Result<Vec<(SessionId, TelemetryDestinationId)>, StoreError> {
        Ok(Vec::new())
    }

    async fn tidy(&self, _: OffsetDateTime, _: OffsetDateTime) -> Result<(), StoreError> {
        Ok(())
    }
}

#[tokio::test]
async fn an_agent_is_read_while_its_events_are_being_stored() {
    let (memory, groups, stop) = (Memory::default(), Arc::<Mutex<Vec<usize>>>::default(), CancellationToken::new());
    let store = Arc::new(Slow(memory.clone(), groups.clone()));
    let tap = agent((1..=200).collect(), Ok(200));
    let (collector, _, writer) = start(system(), store, Arc::new(tap), Arc::new(|_| 0), None, stop.clone());
    let session = with(&[Category::Console]);
    collector.capture(&session).await.expect("captured");
    memory.until(200).await;
    timeout(TEST_TIMEOUT, collector.collect(&session, browser_id(1))).await.expect("collected");
    stop.cancel();
    writer.finish(TEST_TIMEOUT).await;
    // One commit for each event would be 200.
    assert!(groups.lock().len() < 20, "{groups:?}");
}
