//! Exports to one destination.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use casement_domain::backoff::Backoff;
use casement_domain::telemetry::{EventCategory, Order, Span, TypeFilter};
use casement_domain::telemetry_destination::OpenDestination;
use casement_domain::{SessionId, StoreError, TelemetryDestinationId, UseCaseError};
use metrics::counter;
use time::OffsetDateTime;
use tracing::{debug, info, warn};

use super::outbox::{Outbox, front_batch};
use super::{Shared, count_lost};
use crate::otlp::{InvalidSettings, LogSender, Outgoing, Settings, Transport, Verdict, destination_headers, outgoing};

/// The time for which events collect before they are sent.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);
/// The first and the longest pause after a failure, and the longest that a destination may request.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// The time without anything to send after which a worker ends.
pub(super) const MAX_IDLE: Duration = Duration::from_secs(600);
/// The maximum number of events that are read from the store at once.
const READ_EVENTS: u32 = 512;
/// The maximum numbers of batches of events in memory, and of pages of one session, that one round sends. Between the
/// rounds the destination is read again and the outcome is stored.
const ROUND_BATCHES: usize = 32;
const ROUND_PAGES: usize = 8;

/// The reason why an export pauses.
enum Pause {
    /// The destination failed, and asks for this pause at least.
    Destination(Duration),
    /// The store failed.
    Server(String),
}

impl From<StoreError> for Pause {
    fn from(error: StoreError) -> Self {
        Self::Server(error.to_string())
    }
}

/// The end of a round of an export that did not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Everything that waited was sent.
    Complete,
    /// More waits.
    Partial,
    /// The destination was deleted.
    Gone,
}

/// A failed delivery of a batch, whose first events may be final.
struct Undelivered {
    finished: usize,
    pause: Pause,
}

pub(super) struct Worker {
    id: TelemetryDestinationId,
    outbox: Arc<Outbox>,
    shared: Arc<Shared>,
    /// The sender, with the version of the destination that it was made for.
    sender: Option<(OffsetDateTime, LogSender)>,
    /// True after an accepted request that is not stored as a success yet.
    has_succeeded: bool,
    /// The last logged problem.
    last_problem: Option<String>,
}

impl Worker {
    pub(super) fn new(id: TelemetryDestinationId, outbox: Arc<Outbox>, shared: Arc<Shared>) -> Self {
        Self { id, outbox, shared, sender: None, has_succeeded: false, last_problem: None }
    }

    /// Runs until the stop, and then sends what waits once. Ends early if the destination is deleted, or if nothing waits
    /// for a long time.
    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        loop {
            let waiting = tokio::time::timeout(MAX_IDLE, self.outbox.wait());
            match stop.run_until_cancelled(waiting).await {
                None => break,
                Some(Err(_)) if self.shared.release(self.id, &self.outbox) => return,
                Some(_) => {}
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(COLLECT_INTERVAL)).await;
            let pause = match self.rounds().await {
                Ok(Round::Gone) => return,
                Ok(_) => {
                    backoff.reset();
                    continue;
                }
                Err(Pause::Destination(after)) => backoff.next_pause().max(after).min(MAX_RETRY_AFTER),
                Err(Pause::Server(error)) => {
                    debug!(destination = %self.id, error, "an export of telemetry pauses");
                    backoff.next_pause()
                }
            };
            let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
        // Stored events that are not sent now are sent by the next run.
        let _ = self.round().await;
    }

    /// Runs rounds until all is sent, or until the stop.
    async fn rounds(&mut self) -> Result<Round, Pause> {
        loop {
            let end = self.round().await?;
            if end != Round::Partial || self.shared.stop.is_cancelled() {
                return Ok(end);
            }
        }
    }

    async fn round(&mut self) -> Result<Round, Pause> {
        let destination = match self.shared.deps.destinations.open(self.id).await {
            Ok(Some(destination)) => destination,
            Ok(None) => {
                self.shared.outboxes.lock().remove(&self.id);
                count_lost("gone", self.outbox.clear());
                return Ok(Round::Gone);
            }
            Err(UseCaseError::Store(error)) => return Err(error.into()),
            Err(_) => return Err(self.failed("the headers cannot be opened", Duration::ZERO).await),
        };
        self.renew_sender(&destination).await?;
        let exported = self.export().await;
        if std::mem::take(&mut self.has_succeeded) && exported.is_ok() {
            self.note(Ok(())).await;
            if self.last_problem.take().is_some() {
                info!(destination = %self.id, "telemetry is exported again");
            }
        }
        exported
    }

    async fn export(&mut self) -> Result<Round, Pause> {
        for _ in 0..ROUND_BATCHES {
            let mut batch = self.outbox.next_batch();
            if batch.is_empty() {
                break;
            }
            if let Err(Undelivered { finished, pause }) = self.deliver(&batch).await {
                let now = self.shared.deps.clock.now();
                count_lost("too_old", self.outbox.put_back(batch.split_off(finished), now));
                return Err(pause);
            }
        }
        for _ in 0..self.outbox.session_count() {
            let Some(session) = self.outbox.next_session() else { break };
            let exported = self.export_stored(session).await;
            if !matches!(exported, Ok(Round::Complete)) {
                self.outbox.add_session(session);
            }
            exported?;
        }
        Ok(if self.outbox.is_empty() { Round::Complete } else { Round::Partial })
    }

    /// Sends stored events of a session after the last exported one.
    async fn export_stored(&mut self, session: SessionId) -> Result<Round, Pause> {
        let store = self.shared.deps.store.clone();
        for _ in 0..ROUND_PAGES {
            // Read again for each page, because the session may end its export or choose another destination.
            let unexported = store.unexported(session).await?.filter(|one| one.destination == self.id);
            let Some(unexported) = unexported else { return Ok(Round::Complete) };
            let (events, more) = store.page(session, &after(unexported.after)).await?;
            let mut events: VecDeque<Outgoing> = events.iter().map(|one| outgoing(session, one)).collect();
            while !events.is_empty() {
                let batch = front_batch(&mut events);
                let delivered = self.deliver(&batch).await;
                let finished = delivered.as_ref().map_or_else(|failed| failed.finished, |()| batch.len());
                if let Some(last) = batch[..finished].last() {
                    store.set_exported(session, last.numbered.seq).await?;
                }
                delivered.map_err(|failed| failed.pause)?;
            }
            if !more {
                return Ok(Round::Complete);
            }
        }
        Ok(Round::Partial)
    }

    /// Sends a batch until its result is final, in halves if it is too long.
    async fn deliver(&mut self, batch: &[Outgoing]) -> Result<(), Undelivered> {
        let mut pending = vec![batch];
        let mut finished = 0;
        while let Some(batch) = pending.pop() {
            if self.send(batch).await.map_err(|pause| Undelivered { finished, pause })? {
                finished += batch.len();
            } else {
                let (first, second) = batch.split_at(batch.len() / 2);
                pending.extend([second, first]);
            }
        }
        Ok(())
    }

    /// Sends a batch. Returns `false` if it must be sent in halves.
    async fn send(&mut self, batch: &[Outgoing]) -> Result<bool, Pause> {
        let Some((_, sender)) = &self.sender else { return Ok(true) };
        match sender.send(batch).await {
            Verdict::Accepted { rejected } => {
                let rejected = rejected.min(batch.len());
                let accepted = batch.len() - rejected;
                counter!("casement_telemetry_destination_events_exported_total").increment(accepted as u64);
                self.has_succeeded |= accepted > 0;
                if rejected > 0 {
                    self.lose(rejected, "the collector refused some records of a batch").await;
                }
            }
            Verdict::TooLong if batch.len() > 1 => return Ok(false),
            Verdict::TooLong => self.lose(batch.len(), "a record is too long").await,
            Verdict::Refused { why, for_content: true } => self.lose(batch.len(), &why).await,
            // A caller can repair the destination, so the events wait.
            Verdict::Refused { why, .. } => return Err(self.failed(&why, Duration::ZERO).await),
            Verdict::RetryLater { why, after } => return Err(self.failed(&why, after).await),
        }
        Ok(true)
    }

    /// Gives up events that the destination will never accept.
    async fn lose(&mut self, count: usize, why: &str) {
        count_lost("refused", count);
        self.failed(why, Duration::ZERO).await;
    }

    async fn failed(&mut self, why: &str, after: Duration) -> Pause {
        counter!("casement_telemetry_destination_failures_total").increment(1);
        if std::mem::take(&mut self.has_succeeded) {
            self.note(Ok(())).await;
        }
        self.note(Err(why)).await;
        if self.last_problem.as_deref() != Some(why) {
            warn!(destination = %self.id, why, "cannot export telemetry to a destination");
            self.last_problem = Some(why.to_owned());
        }
        Pause::Destination(after)
    }

    /// Stores an outcome. An error of the store changes nothing for the export.
    async fn note(&self, outcome: Result<(), &str>) {
        if let Err(error) = self.shared.deps.destinations.note_outcome(self.id, outcome).await {
            debug!(destination = %self.id, %error, "cannot store the outcome of an export");
        }
    }

    async fn renew_sender(&mut self, destination: &OpenDestination) -> Result<(), Pause> {
        if self.sender.as_ref().is_some_and(|(version, _)| *version == destination.version) {
            return Ok(());
        }
        match self.new_sender(destination) {
            Ok(sender) => self.sender = Some((destination.version, sender)),
            Err(error) => {
                debug!(destination = %self.id, %error, "cannot build the exporter of a destination");
                return Err(self.failed(&error.to_string(), Duration::ZERO).await);
            }
        }
        Ok(())
    }

    fn new_sender(&self, destination: &OpenDestination) -> Result<LogSender, InvalidSettings> {
        let deps = &self.shared.deps;
        let settings = Settings::of_destination(destination, &deps.node.to_string(), deps.version)?;
        LogSender::new(&settings, Transport::restricted(deps.client.clone(), destination_headers(destination)?))
    }
}

/// The events after a number.
fn after(seq: u64) -> Span {
    Span {
        limit: READ_EVENTS,
        order: Order::Ascending,
        behind: Some(seq),
        since: None,
        until: None,
        categories: EventCategory::ALL.to_vec(),
        types: TypeFilter::default(),
    }
}
