//! Stores events, many sessions' in one commit. While one group is being written, the next one gathers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use casement_domain::storage::StorageLimit;
use casement_domain::telemetry::{Batch, Event, Item, StoredBatch, TelemetryExporter, TelemetryStore, What};
use casement_domain::{Clock, IdSource, SessionId, StoreError};
use metrics::counter;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::hub::EventHubs;

/// How much one commit holds at most; a single message may be longer.
const GROUP_EVENTS: usize = 2_000;
const GROUP_BYTES: usize = 4 << 20;
/// How long a few messages wait for others: a commit for each would take the processor from the calls that they tell of.
const LINGER: Duration = Duration::from_millis(25);
/// So many times as long where nobody follows the sessions that they are of: whoever reads pages comes later.
const UNFOLLOWED: u32 = 4;
/// So many events, or messages, wait for no others.
const ENOUGH: usize = 200;
/// How many messages wait at most. What comes beyond that counts as lost, and is said.
const WAITING: usize = 20_000;
/// How long a group that could not be written waits before it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What comes to be stored.
pub(super) enum WriterMessage {
    /// An event of this server's own, and how many before it found no room.
    Own { session: SessionId, lost: u64, event: Event },
    /// What an agent told. The agent's number of the last one that is stored goes back; nothing, if that never will be.
    Told { session: SessionId, items: Vec<Item>, bytes: usize, stored: oneshot::Sender<u64> },
    /// Nothing more comes of the session, after this many that found no room. What of its agent's is not stored up to the agent's last
    /// number is lost. Told when that is stored.
    Ended { session: SessionId, lost: u64, agent_last: Option<u64>, stored: Option<oneshot::Sender<()>> },
}

impl WriterMessage {
    fn session(&self) -> SessionId {
        match self {
            Self::Own { session, .. } | Self::Told { session, .. } | Self::Ended { session, .. } => *session,
        }
    }

    /// Whether it, and what came before it, waits for no others: there is much of it, or somebody waits for the last of a session.
    fn presses(&self) -> bool {
        matches!(self, Self::Ended { .. }) || self.size().0 >= ENOUGH
    }

    /// Events and bytes.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::Own { event, .. } => (1, event.body.len()),
            Self::Told { items, bytes, .. } => (items.len(), *bytes),
            Self::Ended { .. } => (1, 0),
        }
    }
}

/// Where messages wait for the writer; clones are the same one.
///
/// The writer is not woken by each: that would cost a call more than to make its event.
#[derive(Clone)]
pub(super) struct Queue {
    sender: mpsc::Sender<WriterMessage>,
    /// Those that wait are to be written at once.
    hurry: Arc<Notify>,
}

impl Queue {
    /// `false` if there is no room.
    pub(super) fn offer(&self, message: WriterMessage) -> bool {
        let presses = message.presses();
        let taken = self.sender.try_send(message).is_ok();
        self.press(presses);
        taken
    }

    /// Waits for room. `false` if nothing is written any more.
    pub(super) async fn send(&self, message: WriterMessage) -> bool {
        let presses = message.presses();
        let taken = self.sender.send(message).await.is_ok();
        self.press(presses);
        taken
    }

    fn press(&self, presses: bool) {
        if presses || self.sender.max_capacity() - self.sender.capacity() >= ENOUGH {
            self.hurry.notify_one();
        }
    }
}

/// The task that stores events.
pub struct EventWriter {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl EventWriter {
    pub(super) fn start(
        system: (Arc<dyn Clock>, Arc<dyn IdSource>),
        store: Arc<dyn TelemetryStore>,
        hubs: EventHubs,
        exporter: Option<Arc<dyn TelemetryExporter>>,
    ) -> (Queue, Self) {
        Self::lingering(system, store, hubs, exporter, LINGER)
    }

    fn lingering(
        (clock, ids): (Arc<dyn Clock>, Arc<dyn IdSource>),
        store: Arc<dyn TelemetryStore>,
        hubs: EventHubs,
        exporter: Option<Arc<dyn TelemetryExporter>>,
        linger: Duration,
    ) -> (Queue, Self) {
        let (sender, inbound) = mpsc::channel(WAITING);
        let (hurry, stop) = (Arc::<Notify>::default(), CancellationToken::new());
        let queue = Queue { sender, hurry: Arc::clone(&hurry) };
        let (waiting, limited) = Default::default();
        let writer = Writer { clock, ids, store, hubs, exporter, inbound, hurry, linger, waiting, limited };
        (queue, Self { task: tokio::spawn(writer.run(stop.clone())), stop })
    }

    /// Waits until everything is stored that has come until now; no longer than that takes with a database that answers.
    pub async fn finish(self, patience: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(patience, self.task).await.is_err() {
            warn!("not all telemetry could be stored in time");
        }
    }
}

struct Writer {
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    store: Arc<dyn TelemetryStore>,
    hubs: EventHubs,
    exporter: Option<Arc<dyn TelemetryExporter>>,
    inbound: mpsc::Receiver<WriterMessage>,
    hurry: Arc<Notify>,
    linger: Duration,
    waiting: VecDeque<WriterMessage>,
    limited: Limited,
}

/// Messages that are stored together.
#[derive(Default)]
struct Group {
    batches: Vec<Batch>,
    told: Vec<(SessionId, oneshot::Sender<u64>)>,
    ended: Vec<(SessionId, Option<oneshot::Sender<()>>)>,
}

impl Writer {
    async fn run(mut self, stop: CancellationToken) {
        while self.gather(&stop).await {
            let group = self.group();
            self.store(group).await;
        }
    }

    /// Waits for messages; `false` when there will be none.
    async fn gather(&mut self, stop: &CancellationToken) -> bool {
        if self.waiting.is_empty() {
            let first = tokio::select! {
                biased;
                first = self.inbound.recv() => first,
                () = stop.cancelled() => self.inbound.try_recv().ok(),
            };
            let Some(first) = first else { return false };
            self.waiting.push_back(first);
        }
        self.take_what_came();
        if !self.are_enough() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.linger()) => {}
                () = self.hurry.notified() => {}
            }
            self.take_what_came();
        }
        true
    }

    fn take_what_came(&mut self) {
        while self.waiting.len() < GROUP_EVENTS
            && let Ok(more) = self.inbound.try_recv()
        {
            self.waiting.push_back(more);
        }
    }

    /// How long those that wait do so for others.
    fn linger(&self) -> Duration {
        let followed = self.waiting.iter().any(|one| self.hubs.is_followed(one.session()));
        if followed { self.linger } else { self.linger * UNFOLLOWED }
    }

    /// Whether those that wait need wait for no others.
    fn are_enough(&self) -> bool {
        self.waiting.len() >= ENOUGH || self.waiting.iter().any(WriterMessage::presses)
    }

    /// As many of those that wait as go into one commit.
    fn group(&mut self) -> Group {
        let mut items: HashMap<SessionId, Vec<Item>> = HashMap::new();
        let mut group = Group::default();
        let (mut events, mut bytes) = (0, 0);
        while let Some(next) = self.waiting.front() {
            let (more_events, more_bytes) = next.size();
            if events > 0 && (events + more_events > GROUP_EVENTS || bytes + more_bytes > GROUP_BYTES) {
                break;
            }
            (events, bytes) = (events + more_events, bytes + more_bytes);
            let session = next.session();
            let own = |what| Item { agent_seq: None, what };
            let lost = |lost| (lost > 0).then_some(own(What::Lost(lost)));
            match self.waiting.pop_front() {
                Some(WriterMessage::Own { lost: count, event, .. }) => {
                    let new = lost(count).into_iter().chain([own(What::Event(event))]);
                    items.entry(session).or_default().extend(new);
                }
                Some(WriterMessage::Told { items: told, stored, .. }) => {
                    items.entry(session).or_default().extend(told);
                    group.told.push((session, stored));
                }
                Some(WriterMessage::Ended { lost: count, agent_last, stored, .. }) => {
                    let of_agent = agent_last.filter(|last| *last > 0);
                    let of_agent = of_agent.map(|last| Item { agent_seq: Some(last), what: What::Lost(1) });
                    // Of a session that was not captured nothing is to be said.
                    let end = stored.is_some().then_some(own(What::End));
                    let new: Vec<Item> = lost(count).into_iter().chain(of_agent).chain(end).collect();
                    if !new.is_empty() {
                        items.entry(session).or_default().extend(new);
                    }
                    group.ended.push((session, stored));
                }
                None => {}
            }
        }
        let batch = |(session, items)| Batch { session, id: self.ids.next(), items };
        group.batches = items.into_iter().map(batch).collect();
        group
    }

    async fn store(&mut self, Group { batches, told, ended }: Group) {
        let mut stored: HashMap<SessionId, u64> = HashMap::new();
        for one in self.append(batches).await {
            stored.insert(one.session, one.counted.agent_seq);
            let is_last = ended.iter().any(|(session, _)| *session == one.session);
            say_what_was_lost(&one, is_last);
            self.limited.note(&one, is_last);
            if let Some(exporter) = &self.exporter {
                exporter.take(&one);
            }
            self.hubs.push(one);
        }
        for (session, done) in told {
            if let Some(agent_seq) = stored.get(&session) {
                let _ = done.send(*agent_seq);
            }
        }
        for (session, done) in ended {
            self.hubs.close(session);
            if let Some(done) = done {
                let _ = done.send(());
            }
        }
    }

    /// Stores all of them, however long the store is away. Those that it never takes are left out, and only these are lost.
    async fn append(&self, batches: Vec<Batch>) -> Vec<StoredBatch> {
        if batches.is_empty() {
            return Vec::new();
        }
        match self.append_together(&batches).await {
            Ok(stored) => stored,
            Err(_) if batches.len() > 1 => {
                let mut stored = Vec::new();
                for batch in batches {
                    stored.extend(self.append_alone(batch).await);
                }
                stored
            }
            Err(error) => lost(&batches[0], &error),
        }
    }

    async fn append_alone(&self, batch: Batch) -> Vec<StoredBatch> {
        let batch = [batch];
        self.append_together(&batch).await.unwrap_or_else(|error| lost(&batch[0], &error))
    }

    /// Tries until the store answers.
    async fn append_together(&self, batches: &[Batch]) -> Result<Vec<StoredBatch>, StoreError> {
        let mut said = false;
        loop {
            match self.store.append(batches, self.clock.now()).await {
                Err(StoreError::Unavailable { operation, source, .. }) => {
                    if !said {
                        warn!(operation, error = %source, "telemetry is not stored yet; trying again");
                        said = true;
                    }
                    counter!("casement_telemetry_write_failures_total").increment(1);
                    tokio::time::sleep(AGAIN).await;
                }
                Ok(stored) => {
                    let events: usize = stored.iter().map(|one| one.events.len()).sum();
                    counter!("casement_telemetry_events_total").increment(events as u64);
                    return Ok(stored);
                }
                broken => return broken,
            }
        }
    }
}

/// Sessions of which a storage limit refuses events.
#[derive(Default)]
struct Limited(HashMap<SessionId, StorageLimit>);

impl Limited {
    /// Says once of each session that a limit refuses its events.
    fn note(&mut self, stored: &StoredBatch, is_last: bool) {
        let session = stored.session;
        let before = match stored.counted.limit.filter(|_| !is_last) {
            Some(limit) => self.0.insert(session, limit),
            None => self.0.remove(&session),
        };
        let Some(limit) = stored.counted.limit else { return };
        counter!("casement_telemetry_limited_total", "limit" => limit.as_str()).increment(1);
        if before != Some(limit) {
            warn!(%session, limit = limit.as_str(), "telemetry is not stored: {}", limit.message());
        }
    }
}

/// What was lost to a bound used up numbers; `telemetry_dropped` tells the session's readers which.
fn say_what_was_lost(stored: &StoredBatch, is_last: bool) {
    let lost = (stored.counted.last_seq - stored.before).saturating_sub(stored.events.len() as u64);
    if lost == 0 || stored.events.is_empty() {
        return;
    }
    counter!("casement_telemetry_events_lost_total").increment(lost);
    if is_last {
        warn!(session = %stored.session, events = lost, "not all telemetry of a session that ended could be stored");
    }
}

fn lost(batch: &Batch, error: &StoreError) -> Vec<StoredBatch> {
    warn!(session = %batch.session, events = batch.items.len(), %error, "telemetry is lost");
    counter!("casement_telemetry_events_lost_total").increment(batch.items.len() as u64);
    Vec::new()
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use casement_domain::storage::StorageRoom;
    use casement_domain::telemetry::{Feed as _, MockTelemetryStore, NumberedEvent, SequenceState, Start, number};
    use casement_domain::testing::{CountingIds, FixedClock, NOON, session_id};

    use super::*;

    /// The clock and the identifiers of tests.
    pub(in crate::events) fn system() -> (Arc<dyn Clock>, Arc<dyn IdSource>) {
        (Arc::new(FixedClock::default()), Arc::new(CountingIds::default()))
    }

    fn own(session: u32, lost: u64) -> WriterMessage {
        let event = Event::api_call(NOON, "x", "y", 200, 0);
        WriterMessage::Own { session: session_id(session), lost, event }
    }

    fn away() -> StoreError {
        StoreError::unavailable("telemetry.append", "away")
    }

    type Memory = Arc<Mutex<HashMap<SessionId, (SequenceState, Vec<NumberedEvent>)>>>;

    fn keep(memory: &Memory, batches: &[Batch]) -> Vec<StoredBatch> {
        let mut memory = memory.lock().expect("memory");
        let stored = batches.iter().map(|batch| {
            let (counted, all) = memory.entry(batch.session).or_insert((SequenceState::NOTHING, Vec::new()));
            let before = counted.last_seq;
            let events = number(counted, batch.items.clone(), NOON, &mut StorageRoom::unbounded());
            all.extend(events.clone());
            StoredBatch { session: batch.session, before, counted: *counted, events }
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
    async fn events_of_many_sessions_share_a_commit_and_an_agent_is_told_what_is_stored() {
        let memory = Memory::default();
        let commits = Arc::new(Mutex::new(0));
        let mut store = MockTelemetryStore::new();
        let (kept, counted) = (memory.clone(), commits.clone());
        store.expect_append().returning(move |batches, _| {
            *counted.lock().expect("commits") += 1;
            Ok(keep(&kept, batches))
        });
        let (stored, told) = oneshot::channel();
        let items = (1..=3).map(|seq| {
            let event = Event::api_call(NOON, "x", "y", 200, 0);
            Item { agent_seq: Some(seq), what: What::Event(event) }
        });
        let mut messages: Vec<WriterMessage> = (0..100).map(|n| own(n % 10, u64::from(n == 50))).collect();
        messages.push(WriterMessage::Told { session: session_id(3), items: items.collect(), bytes: 300, stored });
        written(store, messages).await;
        assert_eq!(told.await, Ok(3));
        assert!(*commits.lock().expect("commits") < 5);
        let memory = memory.lock().expect("memory");
        assert_eq!(
            memory[&session_id(3)].1.iter().map(|one| one.seq).collect::<Vec<_>>(),
            (1..=13).collect::<Vec<_>>()
        );
        // One was lost before the sixth: its number, and the word of it.
        assert_eq!(memory[&session_id(0)].0.last_seq, 12);
        assert_eq!(memory[&session_id(0)].1.len(), 11);
    }

    #[tokio::test]
    async fn few_events_wait_for_others_until_there_are_many_or_a_session_ends() {
        let groups = Arc::new(Mutex::new(Vec::new()));
        let (memory, seen) = (Memory::default(), groups.clone());
        let mut store = MockTelemetryStore::new();
        store.expect_append().returning(move |batches, _| {
            seen.lock().expect("groups").push(batches.iter().map(|batch| batch.items.len()).sum::<usize>());
            Ok(keep(&memory, batches))
        });
        let written = async |so_many: usize| {
            while groups.lock().expect("groups").len() < so_many {
                tokio::task::yield_now().await;
            }
        };
        let store: Arc<dyn TelemetryStore> = Arc::new(store);
        let an_hour = Duration::from_secs(3600);
        let (queue, writer) = EventWriter::lingering(system(), store.clone(), EventHubs::new(store), None, an_hour);
        for n in 0..5 {
            assert!(queue.offer(own(n, 0)));
            tokio::task::yield_now().await;
        }
        assert!(groups.lock().expect("groups").is_empty());
        assert!(
            queue.send(WriterMessage::Ended { session: session_id(1), lost: 0, agent_last: None, stored: None }).await
        );
        tokio::time::timeout(Duration::from_secs(60), written(1)).await.expect("a session ended");
        for n in 0..=ENOUGH as u32 {
            assert!(queue.offer(own(n, 0)));
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(Duration::from_secs(60), written(2)).await.expect("there are many");
        assert!(queue.offer(own(1, 0)));
        tokio::task::yield_now().await;
        writer.finish(Duration::from_secs(60)).await;
        assert_eq!(*groups.lock().expect("groups"), [5, ENOUGH + 1, 1]);
    }

    #[tokio::test]
    async fn events_of_a_session_that_somebody_follows_wait_less_for_others() {
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
            hurry: Arc::default(),
            linger: LINGER,
            waiting: [own(1, 0)].into(),
            limited: Limited::default(),
        };
        let _followed = hubs.follow(session_id(2), Start::Now).await.expect("followed");
        assert_eq!(writer.linger(), LINGER * UNFOLLOWED);
        writer.waiting.push_back(own(2, 0));
        assert_eq!(writer.linger(), LINGER);
    }

    #[tokio::test]
    async fn what_the_store_never_takes_holds_no_other_session_up() {
        let memory = Memory::default();
        let mut store = MockTelemetryStore::new();
        let kept = memory.clone();
        store.expect_append().returning(move |batches, _| {
            if batches.iter().any(|batch| batch.session == session_id(2)) {
                return Err(StoreError::Broken { operation: "telemetry.append", source: "never".into() });
            }
            Ok(keep(&kept, batches))
        });
        written(store, (1..=3).map(|n| own(n, 0)).collect()).await;
        let mut sessions: Vec<SessionId> = memory.lock().expect("memory").keys().copied().collect();
        sessions.sort_unstable();
        assert_eq!(sessions, [session_id(1), session_id(3)]);
    }

    #[tokio::test]
    async fn a_store_that_is_away_is_asked_again_with_the_same_batches() {
        let memory = Memory::default();
        let seen = Arc::new(Mutex::new(HashSet::new()));
        let mut store = MockTelemetryStore::new();
        let ids = seen.clone();
        store.expect_append().times(1).returning(move |batches, _| {
            ids.lock().expect("ids").extend(batches.iter().map(|batch| batch.id));
            Err(away())
        });
        let (kept, ids) = (memory.clone(), seen.clone());
        store.expect_append().returning(move |batches, _| {
            assert!(batches.iter().all(|batch| ids.lock().expect("ids").contains(&batch.id)));
            Ok(keep(&kept, batches))
        });
        written(store, vec![own(1, 0), own(1, 0)]).await;
        assert_eq!(memory.lock().expect("memory")[&session_id(1)].0.last_seq, 2);
    }
}
