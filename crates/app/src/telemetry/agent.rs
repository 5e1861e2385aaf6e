//! Follows the agent of one session: what it tells is handed to the writer, and confirmed once it is stored.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::browser::EngineError;
use casement_domain::inside::InsideError;
use casement_domain::telemetry::{Item, TelemetryStore, TelemetryTap, ToldEvents, What};
use futures_util::stream::Fuse;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::collector::Captured;
use super::writer::{Inbound, Queue};

/// How much is handed over at once.
const CHUNK_EVENTS: usize = 500;
const CHUNK_BYTES: usize = 1 << 20;
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

impl From<InsideError> for End {
    fn from(error: InsideError) -> Self {
        match error {
            InsideError::Engine(EngineError::NotRunning(_)) => Self::Over,
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
    let agent = Agent { captured: &captured, store, tap, queue };
    captured.over.run_until_cancelled(agent.follow()).await;
    told.cancel();
}

struct Agent<'a> {
    captured: &'a Captured,
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    queue: Queue,
}

impl Agent<'_> {
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
        if let Err(error) = self.captured.configure(self.tap.as_ref()).await {
            return error.into();
        }
        match self.tap.follow(browser, counted.agent_seq).await {
            Ok(events) => match self.hand_over(events).await {
                Ok(()) => End::Again("it ended".to_owned()),
                Err(end) => end,
            },
            Err(error) => error.into(),
        }
    }

    async fn hand_over(&self, events: ToldEvents) -> Result<(), End> {
        let mut events = events.fuse();
        let Captured { session, browser, .. } = *self.captured;
        // The last number that is stored and not confirmed, how many there are, and when it is time to.
        let mut unconfirmed: Option<(u64, usize, Instant)> = None;
        loop {
            let confirm_at = unconfirmed.map(|(_, _, at)| at);
            let first = tokio::select! {
                first = events.next() => first,
                () = due(confirm_at) => None,
            };
            if let Some((through, count, at)) = unconfirmed
                && (count >= UNCONFIRMED || at <= Instant::now())
            {
                self.tap.confirm(browser, through).await?;
                unconfirmed = None;
                if first.is_none() {
                    continue;
                }
            }
            let Some(first) = first else { return Ok(()) };
            let (items, bytes, broken) = self.chunk(first?, &mut events);
            let count = items.len();
            let (stored, done) = oneshot::channel();
            let told = Inbound::Told { session, items, bytes, stored };
            if !self.queue.send(told).await {
                return Err(End::Over);
            }
            let through = done.await.map_err(|_| End::Over)?;
            let (before, since) = unconfirmed.map_or((0, Instant::now() + CONFIRM_AFTER), |(_, n, at)| (n, at));
            unconfirmed = Some((through, before + count, since));
            if let Some(error) = broken {
                return Err(error.into());
            }
        }
    }

    /// What is there already behind the first one, up to a bound, and why it ended if it did.
    fn chunk(&self, first: Item, events: &mut Fuse<ToldEvents>) -> (Vec<Item>, usize, Option<InsideError>) {
        let (mut items, mut bytes) = (Vec::new(), 0);
        let mut next = Some(Ok(first));
        while let Some(item) = next {
            match item {
                Ok(item) => {
                    bytes += size(&item);
                    items.push(self.wanted(item));
                }
                Err(error) => return (items, bytes, Some(error)),
            }
            if items.len() >= CHUNK_EVENTS || bytes >= CHUNK_BYTES {
                break;
            }
            next = events.next().now_or_never().flatten();
        }
        (items, bytes, None)
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

fn size(item: &Item) -> usize {
    match &item.what {
        What::Event(event) => event.body.len(),
        What::Nothing | What::Lost(_) => 0,
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
