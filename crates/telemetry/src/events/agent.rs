//! Follows the agent of one session: what it tells is handed to the writer, and confirmed once it is stored. While something is being
//! stored, it is read on.

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

use super::collector::Captured;
use super::writer::{Queue, WriterMessage};

/// How much is handed over at once.
const CHUNK_EVENTS: usize = 1_000;
const CHUNK_BYTES: usize = 1 << 20;
/// How much is read ahead while that is being stored. What is beyond stays with the agent, which keeps more.
const AHEAD_EVENTS: usize = 2_000;
const AHEAD_BYTES: usize = 2 << 20;
/// How many stored events an agent keeps at most before it is told that they are stored, and for how long.
const UNCONFIRMED: usize = 2_000;
const CONFIRM_AFTER: Duration = Duration::from_secs(1);
/// How long until an agent is asked again that does not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// Why following came to an end.
enum End {
    /// The browser is gone, or what it tells can never be stored.
    Over,
    /// It broke off, or the store is away.
    Again(String),
}

impl From<OperationError> for End {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Engine(EngineError::NotRunning(_)) => Self::Over,
            other => Self::Again(other.to_string()),
        }
    }
}

/// Runs until the browser has ended, or nobody waits any more.
pub(super) async fn follow(
    captured: Arc<Captured>,
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    queue: Queue,
) {
    let told = captured.told.clone();
    let agent = AgentFollower { captured: &captured, store, tap, queue };
    captured.over.run_until_cancelled(agent.follow()).await;
    told.cancel();
}

struct AgentFollower<'a> {
    captured: &'a Captured,
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    queue: Queue,
}

impl AgentFollower<'_> {
    async fn follow(&self) {
        while let End::Again(why) = self.once().await {
            debug!(session = %self.captured.session, why, "the agent's events broke off; asking again");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// From what is stored on, until it breaks off.
    async fn once(&self) -> End {
        let Captured { session, browser, .. } = *self.captured;
        let counted = match self.store.counted(session).await {
            Ok(counted) => counted,
            Err(error) => return End::Again(error.to_string()),
        };
        self.captured.progress.send_modify(|progress| progress.through = progress.through.max(counted.agent_seq));
        if let Err(error) = self.captured.configure(self.tap.as_ref()).await {
            return error.into();
        }
        match self.tap.follow(browser, counted.agent_seq).await {
            Ok(events) => {
                self.captured.progress.send_modify(|progress| progress.is_open = true);
                let ended = self.hand_over(events).await;
                self.captured.progress.send_modify(|progress| progress.is_open = false);
                ended
            }
            Err(error) => error.into(),
        }
    }

    /// Until all that was told is stored.
    async fn hand_over(&self, events: AgentEvents) -> End {
        let mut reading = Reading { events: events.fuse(), ahead: VecDeque::new(), bytes: 0, ended: None };
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
                    let Some((through, count)) = stored else { return End::Over };
                    self.captured.progress.send_modify(|progress| progress.through = progress.through.max(through));
                    let before = unconfirmed.map_or((0, Instant::now() + CONFIRM_AFTER), |one| (one.count, one.at));
                    unconfirmed = Some(Unconfirmed { through, count: before.0 + count, at: before.1 });
                }
                () = due(confirm_at) => {}
                () = reading.more(|item| self.wanted(item)), if reading.has_room() => {}
            }
            if let Some(one) = unconfirmed.take_if(|one| one.count >= UNCONFIRMED || one.at <= Instant::now())
                && let Err(error) = self.captured.confirm(self.tap.as_ref(), one.through).await
            {
                reading.ended.get_or_insert(error.into());
            }
        }
    }

    /// The number of the agent's up to which all is stored then, and how many there were; nothing if they never will be.
    async fn store(&self, (items, bytes): (Vec<Item>, usize)) -> Option<(u64, usize)> {
        let (count, (stored, done)) = (items.len(), oneshot::channel());
        let told = WriterMessage::Told { session: self.captured.session, items, bytes, stored };
        if !self.queue.send(told).await {
            return None;
        }
        Some((done.await.ok()?, count))
    }

    /// What was on its way when its category was turned off is only counted.
    fn wanted(&self, Item { agent_seq, what }: Item) -> Item {
        let what = match what {
            What::Event(event) if !self.captured.wants(event.category) => What::Nothing,
            other => other,
        };
        Item { agent_seq, what }
    }
}

/// What is stored and not confirmed: the last number, how many there are, and when it is time to.
struct Unconfirmed {
    through: u64,
    count: usize,
    at: Instant,
}

/// What is read ahead of what is being stored.
struct Reading {
    events: Fuse<AgentEvents>,
    ahead: VecDeque<Item>,
    bytes: usize,
    /// Why there is no more.
    ended: Option<End>,
}

impl Reading {
    fn has_room(&self) -> bool {
        self.ended.is_none() && self.ahead.len() < AHEAD_EVENTS && self.bytes < AHEAD_BYTES
    }

    /// Waits for the next ones, and takes what has come with them.
    async fn more(&mut self, wanted: impl Fn(Item) -> Item) {
        let mut next = self.events.next().await;
        loop {
            match next {
                Some(Ok(item)) => {
                    self.bytes += size(&item);
                    self.ahead.push_back(wanted(item));
                }
                Some(Err(error)) => self.ended = Some(error.into()),
                None => self.ended = Some(End::Again("it ended".to_owned())),
            }
            if !self.has_room() {
                return;
            }
            match self.events.next().now_or_never() {
                Some(more) => next = more,
                None => return,
            }
        }
    }

    /// As many as are handed over at once, and their bytes.
    fn chunk(&mut self) -> (Vec<Item>, usize) {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < CHUNK_EVENTS
            && bytes < CHUNK_BYTES
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
