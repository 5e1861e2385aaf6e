//! Which sessions of this node capture what.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::session::Session;
use casement_domain::session_operation::OperationError;
use casement_domain::telemetry::{Capture, Category, Event, EventCategory, Recorder, TelemetryStore, TelemetryTap};
use casement_domain::{BrowserId, SessionId};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::writer::{Queue, WriterMessage};
use super::{OpenConnections, agent};

/// How long the last words of a session may take: its agent's, and those of its connections. What is not stored by then is lost, and
/// counted.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long the agent may take of it to say how many there are.
const FINISH: Duration = Duration::from_secs(5);
/// How long storing the number of those that were lost may be waited for: it is stored later all the same.
const LOST_STORED: Duration = Duration::from_secs(2);
/// How often it is looked whether a session that has ended has connections left.
const LOOK: Duration = Duration::from_millis(20);

/// Takes note of what happens in this node's sessions; clones are the same one.
#[derive(Clone)]
pub struct EventCollector(Arc<Inner>);

struct Inner {
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    connections: OpenConnections,
    queue: Queue,
    sessions: Mutex<HashMap<SessionId, Arc<Captured>>>,
    /// A web worker's own runtime may go away.
    runtime: Handle,
    stop: CancellationToken,
}

/// A session whose telemetry is on, or was.
pub(super) struct Captured {
    pub(super) session: SessionId,
    pub(super) browser: BrowserId,
    capture: Mutex<Option<Capture>>,
    /// Two of them must not overtake one another on their way to the agent.
    configuring: tokio::sync::Mutex<()>,
    /// Events that found no room since the last one that did.
    lost: AtomicU64,
    /// How far the agent is followed.
    pub(super) progress: watch::Sender<Progress>,
    /// The session has ended, and the agent was asked to end, too.
    ended: AtomicBool,
    ending: AtomicBool,
    /// All of it is stored, or counted as lost.
    done: CancellationToken,
    /// The agent has told all there is.
    pub(super) told: CancellationToken,
    /// Nobody waits for what the agent tells any more.
    pub(super) over: CancellationToken,
}

/// How far an agent is followed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The events up to this number of its are stored.
    pub(super) through: u64,
    /// It is telling, or what it told is not stored yet.
    pub(super) is_open: bool,
}

impl Captured {
    fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an event of that category is wanted.
    pub(super) fn wants(&self, category: EventCategory) -> bool {
        match (category, self.capture().as_ref()) {
            (EventCategory::Captured(category), Some(capture)) => capture.includes(category),
            (EventCategory::Monitor, capture) => capture.is_some(),
            (_, None) => false,
        }
    }

    /// Tells the agent what is captured now.
    pub(super) async fn configure(&self, tap: &dyn TelemetryTap) -> Result<(), OperationError> {
        let _alone = self.configuring.lock().await;
        if self.ending.load(Ordering::Relaxed) {
            // An agent that has said its last number tells nothing more.
            return Ok(());
        }
        let capture = self.capture().clone();
        tap.configure(self.browser, capture).await
    }

    /// Tells the agent what is stored.
    pub(super) async fn confirm(&self, tap: &dyn TelemetryTap, through: u64) -> Result<(), OperationError> {
        tap.confirm(self.browser, through).await
    }

    /// Has the agent end its capture, and returns its last number; nothing if it does not say.
    async fn finish(&self, tap: &dyn TelemetryTap) -> Option<u64> {
        let finished = async {
            let _alone = self.configuring.lock().await;
            self.ending.store(true, Ordering::Relaxed);
            tap.finish(self.browser).await
        };
        tokio::time::timeout(FINISH, finished).await.ok()?.ok()
    }

    /// Returns once everything is stored up to the agent's last number; where that is not known, all that it has told.
    async fn stored(&self, last: Option<u64>) {
        let mut progress = self.progress.subscribe();
        let enough = progress.wait_for(|progress| match last {
            Some(last) => progress.through >= last,
            None => !progress.is_open,
        });
        tokio::select! {
            // The sender is our own.
            _ = enough => {}
            () = self.told.cancelled() => {}
        }
    }
}

impl EventCollector {
    pub(super) fn new(
        store: Arc<dyn TelemetryStore>,
        tap: Arc<dyn TelemetryTap>,
        connections: OpenConnections,
        queue: Queue,
        stop: CancellationToken,
    ) -> Self {
        let runtime = Handle::current();
        Self(Arc::new(Inner { store, tap, connections, queue, sessions: Mutex::default(), runtime, stop }))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Captured>>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, session: SessionId) -> Option<Arc<Captured>> {
        self.sessions().get(&session).cloned()
    }

    /// The session's entry. The agent of a new one is followed from now on. Nothing for a session without a browser.
    fn enter(&self, session: &Session) -> Option<Arc<Captured>> {
        Some(self.enter_with(session, session.browser?))
    }

    fn enter_with(&self, session: &Session, browser: BrowserId) -> Arc<Captured> {
        let mut sessions = self.sessions();
        if let Some(known) = sessions.get(&session.id) {
            return Arc::clone(known);
        }
        let captured = Arc::new(Captured {
            session: session.id,
            browser,
            capture: Mutex::new(session.telemetry.clone()),
            configuring: tokio::sync::Mutex::default(),
            lost: AtomicU64::new(0),
            progress: watch::Sender::default(),
            ended: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            done: CancellationToken::new(),
            told: CancellationToken::new(),
            over: self.0.stop.child_token(),
        });
        sessions.insert(session.id, Arc::clone(&captured));
        let inner = &self.0;
        let following = agent::follow(captured.clone(), inner.store.clone(), inner.tap.clone(), inner.queue.clone());
        inner.runtime.spawn(following);
        captured
    }

    /// Sees to the last words of a session, once.
    fn end(&self, captured: &Arc<Captured>) {
        if !captured.ended.swap(true, Ordering::Relaxed) {
            self.0.runtime.spawn(self.clone().last_words(captured.clone()));
        }
    }

    async fn last_words(self, captured: Arc<Captured>) {
        let session = captured.session;
        let mut last = None;
        let all = async {
            last = captured.finish(self.0.tap.as_ref()).await;
            captured.stored(last).await;
            // What is open into the session tells of its own end.
            while (self.0.connections)(session) > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, all).await;
        captured.over.cancel();
        self.sessions().remove(&session);
        let lost = captured.lost.swap(0, Ordering::Relaxed);
        let (stored, counted) = oneshot::channel();
        // Behind what was handed over: what of the agent's is stored by then is known when this is.
        self.0.queue.send(WriterMessage::Ended { session, lost, agent_last: last, stored: Some(stored) }).await;
        let _ = tokio::time::timeout(LOST_STORED, counted).await;
        captured.done.cancel();
    }
}

#[async_trait]
impl Recorder for EventCollector {
    async fn capture(&self, session: &Session) -> Result<(), EngineError> {
        if session.telemetry.is_none() && self.find(session.id).is_none() {
            return Ok(());
        }
        let Some(captured) = self.enter(session) else { return Ok(()) };
        captured.capture().clone_from(&session.telemetry);
        captured.configure(self.0.tap.as_ref()).await.map_err(|error| match error {
            OperationError::Engine(error) => error,
            other => EngineError::Failed { fault: EngineFault::AgentError, message: other.to_string() },
        })
    }

    fn take_up(&self, session: &Session) {
        // Its follower configures the agent.
        let _ = self.enter(session);
    }

    fn captures(&self, session: SessionId, category: Category) -> bool {
        self.find(session).is_some_and(|captured| captured.wants(EventCategory::Captured(category)))
    }

    fn note(&self, session: SessionId, event: Event) {
        let Some(captured) = self.find(session).filter(|captured| captured.wants(event.category)) else { return };
        let lost = captured.lost.swap(0, Ordering::Relaxed);
        if !self.0.queue.offer(WriterMessage::Own { session, lost, event }) {
            captured.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    fn note_late(&self, session: &Session, event: Event) {
        if self.find(session.id).is_some() {
            return self.note(session.id, event);
        }
        let EventCategory::Captured(category) = event.category else { return };
        if session.telemetry.as_ref().is_some_and(|capture| capture.includes(category))
            && !self.0.queue.offer(WriterMessage::Own { session: session.id, lost: 0, event })
        {
            metrics::counter!("casement_telemetry_events_lost_total").increment(1);
        }
    }

    fn ended(&self, session: SessionId) {
        match self.find(session) {
            Some(captured) => self.end(&captured),
            // There may be followers of it all the same.
            None => drop(self.0.queue.offer(WriterMessage::Ended { session, lost: 0, agent_last: None, stored: None })),
        }
    }

    fn is_owed(&self, ended: &Session) -> bool {
        ended.telemetry.is_some() || self.find(ended.id).is_some()
    }

    async fn collect(&self, ended: &Session, browser: BrowserId) {
        // An earlier life of this node may have begun it.
        let captured = self.enter_with(ended, browser);
        self.end(&captured);
        captured.done.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use casement_domain::StoreError;
    use casement_domain::storage::StorageRoom;
    use casement_domain::telemetry::{
        Batch, Item, MockTelemetryStore, MockTelemetryTap, NumberedEvent, SequenceState, Span, StoredBatch, What,
        number,
    };
    use casement_domain::testing::{NOON, browser_id, session};
    use futures_util::{StreamExt as _, stream};
    use time::OffsetDateTime;
    use tokio::time::timeout;

    use super::*;
    use crate::events::start;
    use crate::events::writer::tests::system;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// What is stored.
    type Rows = (HashMap<SessionId, SequenceState>, Vec<NumberedEvent>);

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Rows>>);

    impl Memory {
        fn store(&self) -> MockTelemetryStore {
            let mut store = MockTelemetryStore::new();
            let memory = self.clone();
            store.expect_append().returning(move |batches, _| Ok(batches.iter().map(|one| memory.keep(one)).collect()));
            let memory = self.clone();
            store.expect_counted().returning(move |id| {
                Ok(memory.0.lock().expect("memory").0.get(&id).copied().unwrap_or(SequenceState::NOTHING))
            });
            store
        }

        fn keep(&self, batch: &Batch) -> StoredBatch {
            let (counts, all) = &mut *self.0.lock().expect("memory");
            let counted = counts.entry(batch.session).or_insert(SequenceState::NOTHING);
            let before = counted.last_seq;
            let events = number(counted, batch.items.clone(), NOON, &mut StorageRoom::unbounded());
            all.extend(events.clone());
            StoredBatch { session: batch.session, before, counted: *counted, events }
        }

        fn kinds(&self) -> Vec<String> {
            let kind = |one: &NumberedEvent| {
                let body: serde_json::Value = serde_json::from_str(&one.event.body).expect("JSON");
                body["type"].as_str().expect("a type").to_owned()
            };
            self.0.lock().expect("memory").1.iter().map(kind).collect()
        }

        async fn until(&self, count: usize) {
            let there = async {
                while self.kinds().len() < count {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, there).await.expect("the events are stored");
        }
    }

    fn event(category: Category, kind: &str) -> Event {
        Event::ours::<0>(category, kind, NOON, None, None)
    }

    fn told(seq: u64) -> Item {
        Item { agent_seq: Some(seq), what: What::Event(event(Category::Console, "console_log")) }
    }

    fn with(telemetry: &[Category]) -> Session {
        Session { telemetry: Capture::only(telemetry.iter().copied()), ..session(1) }
    }

    #[tokio::test]
    async fn only_what_is_captured_is_noted_and_a_change_counts_at_once() {
        let memory = Memory::default();
        let mut tap = MockTelemetryTap::new();
        let configured = Arc::new(Mutex::new(Vec::new()));
        let seen = configured.clone();
        tap.expect_configure().returning(move |_, capture| {
            seen.lock().expect("configured").push(capture);
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
        writer.finish(PATIENCE).await;
        assert_eq!(memory.kinds(), ["one", "two"]);
        assert_eq!(configured.lock().expect("configured").last(), Some(&None));
    }

    #[tokio::test]
    async fn what_an_agent_tells_is_stored_once_confirmed_and_followed_to_the_end_of_its_session() {
        let memory = Memory::default();
        let mut tap = MockTelemetryTap::new();
        tap.expect_configure().returning(|_, _| Ok(()));
        let breaks = OperationError::Broken("it broke off".to_owned());
        let mut streams = vec![
            stream::iter([Ok(told(1)), Ok(told(2)), Err(breaks)]).boxed(),
            stream::iter([Ok(told(2)), Ok(told(3)), Ok(told(5))]).boxed(),
        ];
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        tap.expect_follow().returning(move |browser, after| {
            seen.lock().expect("asked").push((browser, after));
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
        assert_eq!(asked.lock().expect("asked")[..2], [(browser_id(1), 0), (browser_id(1), 2)]);
        collector.ended(session(1).id);
        let gone = async {
            while collector.find(session(1).id).is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, gone).await.expect("nothing is left of the session");
        stop.cancel();
        writer.finish(PATIENCE).await;
    }

    /// An agent that tells this, each when it is waited for long enough, and says at its end how many there were.
    fn agent(told: Vec<u64>, last: Result<u64, OperationError>) -> MockTelemetryTap {
        let mut tap = MockTelemetryTap::new();
        tap.expect_configure().returning(|_, _| Ok(()));
        tap.expect_confirm().returning(|_, _| Ok(()));
        let mut streams = vec![told];
        tap.expect_follow().returning(move |browser, _| {
            let numbers = streams.pop().ok_or(EngineError::NotRunning(browser))?;
            Ok(stream::iter(numbers)
                .then(async |seq| {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok(self::told(seq))
                })
                .boxed())
        });
        let mut last = Some(last);
        tap.expect_finish().times(1).returning(move |_| last.take().expect("it is asked once"));
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
        timeout(PATIENCE, collector.collect(&session, browser_id(1))).await.expect("collected");
        stop.cancel();
        writer.finish(PATIENCE).await;
        memory
    }

    #[tokio::test]
    async fn at_the_end_of_a_session_everything_that_its_agent_holds_is_stored() {
        let memory = collected(agent((1..=500).collect(), Ok(500))).await;
        assert_eq!(memory.kinds(), vec!["console_log"; 500]);
    }

    #[tokio::test]
    async fn what_an_agent_told_is_stored_though_it_is_gone_before_it_said_how_much_there_was() {
        let gone = OperationError::Engine(EngineError::NotRunning(browser_id(1)));
        let memory = collected(agent((1..=50).collect(), Err(gone))).await;
        assert!(memory.kinds().iter().all(|kind| kind == "console_log"), "{:?}", memory.kinds());
    }

    #[tokio::test]
    async fn what_an_agent_held_and_did_not_tell_is_counted_and_said() {
        let memory = collected(agent(vec![1, 2], Ok(5))).await;
        assert_eq!(memory.kinds(), ["console_log", "console_log", "telemetry_dropped"]);
        let rows = memory.0.lock().expect("memory");
        let body: serde_json::Value = serde_json::from_str(&rows.1[2].event.body).expect("JSON");
        assert_eq!(body["data"], serde_json::json!({ "count": 3, "first_seq": 3, "last_seq": 5 }));
    }

    #[tokio::test]
    async fn a_session_of_an_earlier_life_that_has_ended_is_collected_too() {
        let (memory, stop) = (Memory::default(), CancellationToken::new());
        let tap = agent((1..=20).collect(), Ok(20));
        let (collector, _, writer) =
            start(system(), Arc::new(memory.store()), Arc::new(tap), Arc::new(|_| 0), None, stop.clone());
        let session = with(&[Category::Console]);
        timeout(PATIENCE, collector.collect(&session, browser_id(1))).await.expect("collected");
        stop.cancel();
        writer.finish(PATIENCE).await;
        assert_eq!(memory.kinds().len(), 20);
    }

    /// A store that takes its time over each commit, and how many events it was given at once.
    struct Slow(Memory, Arc<Mutex<Vec<usize>>>);

    #[async_trait]
    impl TelemetryStore for Slow {
        async fn append(&self, batches: &[Batch], _: OffsetDateTime) -> Result<Vec<StoredBatch>, StoreError> {
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.1.lock().expect("groups").push(batches.iter().map(|batch| batch.items.len()).sum());
            Ok(batches.iter().map(|one| self.0.keep(one)).collect())
        }

        async fn page(&self, _: SessionId, _: &Span) -> Result<(Vec<NumberedEvent>, bool), StoreError> {
            Ok((Vec::new(), false))
        }

        async fn counted(&self, _: SessionId) -> Result<SequenceState, StoreError> {
            Ok(SequenceState::NOTHING)
        }

        async fn tidy(&self, _: OffsetDateTime, _: OffsetDateTime) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_agent_is_read_on_while_what_it_told_is_being_stored() {
        let (memory, groups, stop) = (Memory::default(), Arc::<Mutex<Vec<usize>>>::default(), CancellationToken::new());
        let store = Arc::new(Slow(memory.clone(), groups.clone()));
        let tap = agent((1..=200).collect(), Ok(200));
        let (collector, _, writer) = start(system(), store, Arc::new(tap), Arc::new(|_| 0), None, stop.clone());
        let session = with(&[Category::Console]);
        collector.capture(&session).await.expect("captured");
        memory.until(200).await;
        timeout(PATIENCE, collector.collect(&session, browser_id(1))).await.expect("collected");
        stop.cancel();
        writer.finish(PATIENCE).await;
        // One commit for each event would be 200 of them.
        assert!(groups.lock().expect("groups").len() < 20, "{groups:?}");
    }
}
