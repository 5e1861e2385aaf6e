//! Tests of the writer, with a store in memory.

use std::collections::HashSet;

use casement_domain::storage::StorageRoom;
use casement_domain::telemetry::{
    Delivery, Feed as _, MockTelemetryStore, NumberedEvent, SequenceState, Start, number,
};
use casement_domain::testing::{CountingIds, FixedClock, NOON, session_id};
use parking_lot::Mutex;

use super::*;

/// The clock and the ids of the tests.
pub(in crate::events) fn system() -> (Arc<dyn Clock>, Arc<dyn IdSource>) {
    (Arc::new(FixedClock::default()), Arc::new(CountingIds::default()))
}

fn own(session: u32, lost: u64) -> WriterMessage {
    let event = Event::api_call(NOON, "x", "y", 200, 0);
    WriterMessage::ServerEvent { session: session_id(session), lost, event }
}

fn away() -> StoreError {
    StoreError::unavailable("telemetry.append", "away")
}

type Memory = Arc<Mutex<HashMap<SessionId, (SequenceState, Vec<NumberedEvent>)>>>;

fn keep(memory: &Memory, batches: &[Batch]) -> Vec<StoredBatch> {
    let mut memory = memory.lock();
    let stored = batches.iter().map(|batch| {
        let (counted, all) = memory.entry(batch.session).or_insert((SequenceState::NOTHING, Vec::new()));
        let before = counted.last_seq;
        let events = number(counted, batch.items.clone(), NOON, &mut StorageRoom::unbounded());
        all.extend(events.clone());
        StoredBatch { session: batch.session, before, counted: *counted, events, delivery: Delivery::default() }
    });
    stored.collect()
}

async fn written(store: MockTelemetryStore, messages: Vec<WriterMessage>) {
    let store: Arc<dyn TelemetryStore> = Arc::new(store);
    let (queue, writer) = EventWriter::start(system(), store.clone(), EventHubs::new(store), None);
    for message in messages {
        assert!(queue.offer(message), "room");
    }
    writer.finish(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn sessions_share_a_commit_and_agents_get_confirmations() {
    let memory = Memory::default();
    let commits = Arc::new(Mutex::new(0));
    let mut store = MockTelemetryStore::new();
    let (stored, counted) = (memory.clone(), commits.clone());
    store.expect_append().returning(move |batches, _| {
        *counted.lock() += 1;
        Ok(keep(&stored, batches))
    });
    let (stored, received) = oneshot::channel();
    let items = (1..=3).map(|seq| {
        let event = Event::api_call(NOON, "x", "y", 200, 0);
        Item { agent_seq: Some(seq), what: What::Event(event) }
    });
    let mut messages: Vec<WriterMessage> = (0..100).map(|n| own(n % 10, u64::from(n == 50))).collect();
    messages.push(WriterMessage::AgentEvents { session: session_id(3), items: items.collect(), bytes: 300, stored });
    written(store, messages).await;
    assert_eq!(received.await, Ok(3));
    assert!(*commits.lock() < 5);
    let memory = memory.lock();
    assert_eq!(memory[&session_id(3)].1.iter().map(|one| one.seq).collect::<Vec<_>>(), (1..=13).collect::<Vec<_>>());
    // One event was lost: its number is used up, and another event reports it.
    assert_eq!(memory[&session_id(0)].0.last_seq, 12);
    assert_eq!(memory[&session_id(0)].1.len(), 11);
}

#[tokio::test]
async fn few_events_are_collected_until_many_or_a_session_ends() {
    let groups = Arc::new(Mutex::new(Vec::new()));
    let (memory, seen) = (Memory::default(), groups.clone());
    let mut store = MockTelemetryStore::new();
    store.expect_append().returning(move |batches, _| {
        seen.lock().push(batches.iter().map(|batch| batch.items.len()).sum::<usize>());
        Ok(keep(&memory, batches))
    });
    let written = async |so_many: usize| {
        while groups.lock().len() < so_many {
            tokio::task::yield_now().await;
        }
    };
    let store: Arc<dyn TelemetryStore> = Arc::new(store);
    let an_hour = Duration::from_secs(3600);
    let (queue, writer) = EventWriter::start_collecting(system(), store.clone(), EventHubs::new(store), None, an_hour);
    for n in 0..5 {
        assert!(queue.offer(own(n, 0)));
        tokio::task::yield_now().await;
    }
    assert!(groups.lock().is_empty());
    assert!(queue.send(WriterMessage::Ended { session: session_id(1), lost: 0, agent_last: None, stored: None }).await);
    tokio::time::timeout(Duration::from_secs(60), written(1)).await.expect("a session ended");
    for n in 0..=MIN_IMMEDIATE as u32 {
        assert!(queue.offer(own(n, 0)));
        tokio::task::yield_now().await;
    }
    tokio::time::timeout(Duration::from_secs(60), written(2)).await.expect("there are many");
    assert!(queue.offer(own(1, 0)));
    tokio::task::yield_now().await;
    writer.finish(Duration::from_secs(60)).await;
    assert_eq!(*groups.lock(), [5, MIN_IMMEDIATE + 1, 1]);
}

#[tokio::test]
async fn events_of_a_followed_session_are_collected_for_less_time() {
    let mut store = MockTelemetryStore::new();
    store.expect_counted().returning(|_| Ok(SequenceState::NOTHING));
    let store: Arc<dyn TelemetryStore> = Arc::new(store);
    let hubs = EventHubs::new(store.clone());
    let (clock, ids) = system();
    let mut writer = Writer {
        clock,
        ids,
        store,
        hubs: hubs.clone(),
        exporter: None,
        inbound: mpsc::channel(1).1,
        urgent: Arc::default(),
        collect_interval: COLLECT_INTERVAL,
        waiting: [own(1, 0)].into(),
        limited: LimitedSessions::default(),
    };
    let _followed = hubs.follow(session_id(2), Start::Now).await.expect("followed");
    assert_eq!(writer.collect_interval(), COLLECT_INTERVAL * UNFOLLOWED_FACTOR);
    writer.waiting.push_back(own(2, 0));
    assert_eq!(writer.collect_interval(), COLLECT_INTERVAL);
}

#[tokio::test]
async fn a_rejected_batch_does_not_block_other_sessions() {
    let memory = Memory::default();
    let mut store = MockTelemetryStore::new();
    let stored = memory.clone();
    store.expect_append().returning(move |batches, _| {
        if batches.iter().any(|batch| batch.session == session_id(2)) {
            return Err(StoreError::Broken { operation: "telemetry.append", source: "never".into() });
        }
        Ok(keep(&stored, batches))
    });
    written(store, (1..=3).map(|n| own(n, 0)).collect()).await;
    let mut sessions: Vec<SessionId> = memory.lock().keys().copied().collect();
    sessions.sort_unstable();
    assert_eq!(sessions, [session_id(1), session_id(3)]);
}

#[tokio::test]
async fn an_unavailable_store_gets_the_same_batches_again() {
    let memory = Memory::default();
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let mut store = MockTelemetryStore::new();
    let ids = seen.clone();
    store.expect_append().times(1).returning(move |batches, _| {
        ids.lock().extend(batches.iter().map(|batch| batch.id));
        Err(away())
    });
    let (stored, ids) = (memory.clone(), seen.clone());
    store.expect_append().returning(move |batches, _| {
        assert!(batches.iter().all(|batch| ids.lock().contains(&batch.id)));
        Ok(keep(&stored, batches))
    });
    written(store, vec![own(1, 0), own(1, 0)]).await;
    assert_eq!(memory.lock()[&session_id(1)].0.last_seq, 2);
}
