//! Reads the events of one session's agent, passes them to the writer, and confirms them once they are stored. Reading
//! continues while events are being stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use casement_domain::browser::EngineError;
use casement_domain::session_operation::OperationError;
use casement_domain::telemetry::{AgentEvents, Item, TelemetryStore, TelemetryTap, What};
use futures_util::future::BoxFuture;
use futures_util::stream::Fuse;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::collector::SessionCapture;
use super::writer::{Queue, WriterMessage};

/// The limits of one message to the writer.
const MAX_CHUNK_EVENTS: usize = 1_000;
const MAX_CHUNK_BYTES: usize = 1 << 20;
/// The limits of what is read ahead while a message is being stored. Further events stay in the agent's larger buffer.
const MAX_AHEAD_EVENTS: usize = 2_000;
const MAX_AHEAD_BYTES: usize = 2 << 20;
/// The maximum number of stored events that are not confirmed, and the maximum time until they are.
const MAX_UNCONFIRMED: usize = 2_000;
const CONFIRM_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before an agent that did not answer is requested again.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// The reason why following ended.
enum FollowEnd {
    /// The browser has ended, or its events can never be stored.
    Finished,
    /// The stream broke, or the store is unavailable; the text is the reason.
    Retry(String),
}

impl From<OperationError> for FollowEnd {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Engine(EngineError::NotRunning(_)) => Self::Finished,
            other => Self::Retry(other.to_string()),
        }
    }
}

/// Runs until the browser has ended, or `abandoned` is cancelled.
pub(super) async fn follow(
    captured: Arc<SessionCapture>,
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    queue: Queue,
) {
    let all_received = captured.all_received.clone();
    let agent = AgentFollower { captured: &captured, store, tap, queue };
    captured.abandoned.run_until_cancelled(agent.follow()).await;
    all_received.cancel();
}

struct AgentFollower<'a> {
    captured: &'a SessionCapture,
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    queue: Queue,
}

impl AgentFollower<'_> {
    async fn follow(&self) {
        while let FollowEnd::Retry(why) = self.follow_once().await {
            debug!(session = %self.captured.session, why, "the agent's event stream broke; retrying");
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
    }

    /// Reads from the last stored event until the stream breaks.
    async fn follow_once(&self) -> FollowEnd {
        let SessionCapture { session, browser, .. } = *self.captured;
        let counted = match self.store.counted(session).await {
            Ok(counted) => counted,
            Err(error) => return FollowEnd::Retry(error.to_string()),
        };
        self.captured.progress.send_modify(|progress| progress.through = progress.through.max(counted.agent_seq));
        if let Err(error) = self.captured.configure(self.tap.as_ref()).await {
            return error.into();
        }
        match self.tap.follow(browser, counted.agent_seq).await {
            Ok(events) => {
                self.captured.progress.send_modify(|progress| progress.is_open = true);
                let ended = self.store_events(events).await;
                self.captured.progress.send_modify(|progress| progress.is_open = false);
                ended
            }
            Err(error) => error.into(),
        }
    }

    /// Stores events until the stream has ended and all are stored.
    async fn store_events(&self, events: AgentEvents) -> FollowEnd {
        let mut reading = ReadAhead { events: events.fuse(), ahead: VecDeque::new(), bytes: 0, ended: None };
        let mut storing: Option<BoxFuture<'_, Option<(u64, usize)>>> = None;
        let mut unconfirmed: Option<Unconfirmed> = None;
        loop {
            if storing.is_none() && !reading.ahead.is_empty() {
                storing = Some(self.store(reading.chunk()).boxed());
            }
            if storing.is_none()
                && let Some(end) = reading.ended.take()
            {
                return end;
            }
            let confirm_at = unconfirmed.as_ref().map(|one| one.at);
            tokio::select! {
                biased;
                stored = pending_if_none(storing.as_mut()) => {
                    storing = None;
                    let Some((through, count)) = stored else { return FollowEnd::Finished };
                    self.captured.progress.send_modify(|progress| progress.through = progress.through.max(through));
                    let before = unconfirmed.map_or((0, Instant::now() + CONFIRM_INTERVAL), |one| (one.count, one.at));
                    unconfirmed = Some(Unconfirmed { through, count: before.0 + count, at: before.1 });
                }
                () = due(confirm_at) => {}
                () = reading.more(|item| self.wanted(item)), if reading.has_space() => {}
            }
            if let Some(one) = unconfirmed.take_if(|one| one.count >= MAX_UNCONFIRMED || one.at <= Instant::now())
                && let Err(error) = self.captured.confirm(self.tap.as_ref(), one.through).await
            {
                reading.ended.get_or_insert(error.into());
            }
        }
    }

    /// Stores a chunk. Returns the agent's number of the last stored event, and the number of events; `None` if they
    /// can never be stored.
    async fn store(&self, (items, bytes): (Vec<Item>, usize)) -> Option<(u64, usize)> {
        let (count, (stored, done)) = (items.len(), oneshot::channel());
        let message = WriterMessage::AgentEvents { session: self.captured.session, items, bytes, stored };
        if !self.queue.send(message).await {
            return None;
        }
        Some((done.await.ok()?, count))
    }

    /// Removes the content of an event whose category was turned off after the agent sent it; its number still counts.
    fn wanted(&self, Item { agent_seq, what }: Item) -> Item {
        let what = match what {
            What::Event(event) if !self.captured.wants(event.category) => What::Nothing,
            other => other,
        };
        Item { agent_seq, what }
    }
}

/// The stored, unconfirmed events: the last number, the count, and the time at which they are confirmed.
struct Unconfirmed {
    through: u64,
    count: usize,
    at: Instant,
}

/// Reads ahead while events are being stored.
struct ReadAhead {
    events: Fuse<AgentEvents>,
    ahead: VecDeque<Item>,
    bytes: usize,
    /// The reason why the stream ended, if it has.
    ended: Option<FollowEnd>,
}

impl ReadAhead {
    fn has_space(&self) -> bool {
        self.ended.is_none() && self.ahead.len() < MAX_AHEAD_EVENTS && self.bytes < MAX_AHEAD_BYTES
    }

    /// Waits for an event, and appends all that have arrived to `ahead`.
    async fn more(&mut self, wanted: impl Fn(Item) -> Item) {
        let mut next = self.events.next().await;
        loop {
            match next {
                Some(Ok(item)) => {
                    self.bytes += size(&item);
                    self.ahead.push_back(wanted(item));
                }
                Some(Err(error)) => self.ended = Some(error.into()),
                None => self.ended = Some(FollowEnd::Retry("it ended".to_owned())),
            }
            if !self.has_space() {
                return;
            }
            match self.events.next().now_or_never() {
                Some(more) => next = more,
                None => return,
            }
        }
    }

    /// Returns the events of one message, and their bytes.
    fn chunk(&mut self) -> (Vec<Item>, usize) {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < MAX_CHUNK_EVENTS
            && bytes < MAX_CHUNK_BYTES
            && let Some(item) = self.ahead.pop_front()
        {
            bytes += size(&item);
            items.push(item);
        }
        self.bytes = self.ahead.iter().map(size).sum();
        (items, bytes)
    }
}

fn size(item: &Item) -> usize {
    match &item.what {
        What::Event(event) => event.body.len(),
        What::Nothing | What::Lost(_) | What::End => 0,
    }
}

async fn pending_if_none<F: Future + Unpin>(one: Option<F>) -> F::Output {
    match one {
        Some(one) => one.await,
        None => std::future::pending().await,
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
