//! Stores events of many sessions in one commit. While a group is being written, the next one is collected.

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

/// The limits of one commit; a single message may be larger.
const MAX_GROUP_EVENTS: usize = 2_000;
const MAX_GROUP_BYTES: usize = 4 << 20;
/// The time for which messages are collected, because a commit for each would take processor time from the calls.
const COLLECT_INTERVAL: Duration = Duration::from_millis(25);
/// The factor of that time for sessions without followers, whose events are read later.
const UNFOLLOWED_FACTOR: u32 = 4;
/// The number of events or messages from which they are written at once.
const MIN_IMMEDIATE: usize = 200;
/// The maximum number of queued messages. Further events of the server are lost, and reported.
const MAX_QUEUED: usize = 20_000;
/// The pause before a group that could not be written is retried.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// A message to the writer.
pub(super) enum WriterMessage {
    /// An event of the server, and the number of dropped ones before it.
    ServerEvent { session: SessionId, lost: u64, event: Event },
    /// Events of an agent. Replies with the agent's number of the last stored event, or drops the sender if the events
    /// can never be stored.
    AgentEvents { session: SessionId, items: Vec<Item>, bytes: usize, stored: oneshot::Sender<u64> },
    /// The end of a session's events, with the number of dropped ones. Events up to the agent's last number that are
    /// not stored are recorded as lost. Replies when that is stored.
    Ended { session: SessionId, lost: u64, agent_last: Option<u64>, stored: Option<oneshot::Sender<()>> },
}

impl WriterMessage {
    fn session(&self) -> SessionId {
        match self {
            Self::ServerEvent { session, .. } | Self::AgentEvents { session, .. } | Self::Ended { session, .. } => {
                *session
            }
        }
    }

    /// Returns true if the message and those before it are written at once: it is large, or the end of a session.
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Ended { .. }) || self.size().0 >= MIN_IMMEDIATE
    }

    /// Returns the number of events and bytes.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::ServerEvent { event, .. } => (1, event.body.len()),
            Self::AgentEvents { items, bytes, .. } => (items.len(), *bytes),
            Self::Ended { .. } => (1, 0),
        }
    }
}

/// The queue of the writer. Clones share their state.
///
/// Not every message wakes the writer, because that would cost a call more than the creation of its event.
#[derive(Clone)]
pub(super) struct Queue {
    sender: mpsc::Sender<WriterMessage>,
    /// Wakes the writer to write at once.
    urgent: Arc<Notify>,
}

impl Queue {
    /// Adds a message; returns `false` if the queue is full.
    pub(super) fn offer(&self, message: WriterMessage) -> bool {
        let is_urgent = message.is_urgent();
        let taken = self.sender.try_send(message).is_ok();
        self.wake_writer(is_urgent);
        taken
    }

    /// Waits for space; returns `false` if the writer has ended.
    pub(super) async fn send(&self, message: WriterMessage) -> bool {
        let is_urgent = message.is_urgent();
        let taken = self.sender.send(message).await.is_ok();
        self.wake_writer(is_urgent);
        taken
    }

    fn wake_writer(&self, is_urgent: bool) {
        if is_urgent || self.sender.max_capacity() - self.sender.capacity() >= MIN_IMMEDIATE {
            self.urgent.notify_one();
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
        Self::start_collecting(system, store, hubs, exporter, COLLECT_INTERVAL)
    }

    fn start_collecting(
        (clock, ids): (Arc<dyn Clock>, Arc<dyn IdSource>),
        store: Arc<dyn TelemetryStore>,
        hubs: EventHubs,
        exporter: Option<Arc<dyn TelemetryExporter>>,
        collect_interval: Duration,
    ) -> (Queue, Self) {
        let (sender, inbound) = mpsc::channel(MAX_QUEUED);
        let (urgent, stop) = (Arc::<Notify>::default(), CancellationToken::new());
        let queue = Queue { sender, urgent: Arc::clone(&urgent) };
        let (waiting, limited) = Default::default();
        let writer = Writer { clock, ids, store, hubs, exporter, inbound, urgent, collect_interval, waiting, limited };
        (queue, Self { task: tokio::spawn(writer.run(stop.clone())), stop })
    }

    /// Waits until the queued events are stored, at most `timeout`.
    pub async fn finish(self, timeout: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(timeout, self.task).await.is_err() {
            warn!("some telemetry was not stored before the timeout");
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
    urgent: Arc<Notify>,
    collect_interval: Duration,
    waiting: VecDeque<WriterMessage>,
    limited: LimitedSessions,
}

/// Messages that are stored together.
#[derive(Default)]
struct Group {
    batches: Vec<Batch>,
    received: Vec<(SessionId, oneshot::Sender<u64>)>,
    ended: Vec<(SessionId, Option<oneshot::Sender<()>>)>,
}

impl Writer {
    async fn run(mut self, stop: CancellationToken) {
        while self.gather(&stop).await {
            let group = self.group();
            self.store(group).await;
        }
    }

    /// Waits for messages; returns `false` when the queue is closed and empty.
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
        self.receive_queued();
        if !self.write_at_once() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.collect_interval()) => {}
                () = self.urgent.notified() => {}
            }
            self.receive_queued();
        }
        true
    }

    fn receive_queued(&mut self) {
        while self.waiting.len() < MAX_GROUP_EVENTS
            && let Ok(more) = self.inbound.try_recv()
        {
            self.waiting.push_back(more);
        }
    }

    /// Returns the time for which messages are collected.
    fn collect_interval(&self) -> Duration {
        let followed = self.waiting.iter().any(|one| self.hubs.is_followed(one.session()));
        if followed { self.collect_interval } else { self.collect_interval * UNFOLLOWED_FACTOR }
    }

    /// Returns true if the waiting messages are written at once.
    fn write_at_once(&self) -> bool {
        self.waiting.len() >= MIN_IMMEDIATE || self.waiting.iter().any(WriterMessage::is_urgent)
    }

    /// Takes the messages of one commit.
    fn group(&mut self) -> Group {
        let mut items: HashMap<SessionId, Vec<Item>> = HashMap::new();
        let mut group = Group::default();
        let (mut events, mut bytes) = (0, 0);
        while let Some(next) = self.waiting.front() {
            let (more_events, more_bytes) = next.size();
            if events > 0 && (events + more_events > MAX_GROUP_EVENTS || bytes + more_bytes > MAX_GROUP_BYTES) {
                break;
            }
            (events, bytes) = (events + more_events, bytes + more_bytes);
            let session = next.session();
            let own = |what| Item { agent_seq: None, what };
            let lost = |lost| (lost > 0).then_some(own(What::Lost(lost)));
            match self.waiting.pop_front() {
                Some(WriterMessage::ServerEvent { lost: count, event, .. }) => {
                    let new = lost(count).into_iter().chain([own(What::Event(event))]);
                    items.entry(session).or_default().extend(new);
                }
                Some(WriterMessage::AgentEvents { items: received, stored, .. }) => {
                    items.entry(session).or_default().extend(received);
                    group.received.push((session, stored));
                }
                Some(WriterMessage::Ended { lost: count, agent_last, stored, .. }) => {
                    let of_agent = agent_last.filter(|last| *last > 0);
                    let of_agent = of_agent.map(|last| Item { agent_seq: Some(last), what: What::Lost(1) });
                    // Sessions without capture get no event.
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

    async fn store(&mut self, Group { batches, received, ended }: Group) {
        let mut stored: HashMap<SessionId, u64> = HashMap::new();
        for one in self.append(batches).await {
            stored.insert(one.session, one.counted.agent_seq);
            let is_last = ended.iter().any(|(session, _)| *session == one.session);
            log_lost(&one, is_last);
            self.limited.log_once(&one, is_last);
            if let Some(exporter) = &self.exporter {
                exporter.take(&one);
            }
            self.hubs.push(one);
        }
        for (session, done) in received {
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

    /// Stores all batches, however long the store is unavailable. Only batches that the store rejects are lost.
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

    /// Retries until the store answers.
    async fn append_together(&self, batches: &[Batch]) -> Result<Vec<StoredBatch>, StoreError> {
        let mut logged = false;
        loop {
            match self.store.append(batches, self.clock.now()).await {
                Err(StoreError::Unavailable { operation, source, .. }) => {
                    if !logged {
                        warn!(operation, error = %source, "cannot store telemetry; retrying");
                        logged = true;
                    }
                    counter!("casement_telemetry_write_failures_total").increment(1);
                    tokio::time::sleep(RETRY_BACKOFF).await;
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

/// Sessions whose events a storage limit refuses.
#[derive(Default)]
struct LimitedSessions(HashMap<SessionId, StorageLimit>);

impl LimitedSessions {
    /// Logs once per session that a limit refuses its events.
    fn log_once(&mut self, stored: &StoredBatch, is_last: bool) {
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

/// Logs lost events. Their numbers are used up; the event `telemetry_dropped` reports them to readers of the session.
fn log_lost(stored: &StoredBatch, is_last: bool) {
    let lost = (stored.counted.last_seq - stored.before).saturating_sub(stored.events.len() as u64);
    if lost == 0 || stored.events.is_empty() {
        return;
    }
    counter!("casement_telemetry_events_lost_total").increment(lost);
    if is_last {
        warn!(session = %stored.session, events = lost, "lost telemetry of an ended session");
    }
}

fn lost(batch: &Batch, error: &StoreError) -> Vec<StoredBatch> {
    warn!(session = %batch.session, events = batch.items.len(), %error, "lost telemetry that the store rejects");
    counter!("casement_telemetry_events_lost_total").increment(batch.items.len() as u64);
    Vec::new()
}

#[cfg(test)]
pub(super) mod tests;
