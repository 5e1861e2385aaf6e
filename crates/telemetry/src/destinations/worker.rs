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
/// The maximum number of events that are read from the store at once.
const READ_EVENTS: u32 = 512;

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

    /// Runs until the stop, and then sends what waits once.
    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        while stop.run_until_cancelled(self.outbox.wait()).await.is_some() {
            let _ = stop.run_until_cancelled(tokio::time::sleep(COLLECT_INTERVAL)).await;
            let pause = match self.export().await {
                Ok(true) => {
                    backoff.reset();
                    continue;
                }
                // The destination was deleted.
                Ok(false) => return,
                Err(Pause::Destination(after)) => backoff.next_pause().max(after).min(MAX_RETRY_AFTER),
                Err(Pause::Server(error)) => {
                    debug!(destination = %self.id, error, "an export of telemetry pauses");
                    backoff.next_pause()
                }
            };
            let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
        // Stored events that are not sent now are sent by the next run.
        let _ = self.export().await;
    }

    /// Sends all that waits. Returns `false` if the destination does not exist any more.
    async fn export(&mut self) -> Result<bool, Pause> {
        let destination = match self.shared.deps.destinations.open(self.id).await {
            Ok(Some(destination)) => destination,
            Ok(None) => {
                self.shared.outboxes.lock().remove(&self.id);
                count_lost("gone", self.outbox.clear());
                return Ok(false);
            }
            Err(UseCaseError::Store(error)) => return Err(error.into()),
            Err(_) => return Err(self.failed("the headers cannot be opened", Duration::ZERO).await),
        };
        self.renew_sender(&destination).await?;
        let exported = self.export_all().await;
        if std::mem::take(&mut self.has_succeeded) && exported.is_ok() {
            self.note(Ok(())).await;
            if self.last_problem.take().is_some() {
                info!(destination = %self.id, "telemetry is exported again");
            }
        }
        exported.map(|()| true)
    }

    async fn export_all(&mut self) -> Result<(), Pause> {
        loop {
            let batch = self.outbox.next_batch();
            if batch.is_empty() {
                break;
            }
            if let Err(pause) = self.deliver(&batch).await {
                let now = self.shared.deps.clock.now();
                count_lost("too_old", self.outbox.put_back(batch, now));
                return Err(pause);
            }
        }
        while let Some(session) = self.outbox.next_session() {
            if let Err(pause) = self.export_stored(session).await {
                self.outbox.add_session(session);
                return Err(pause);
            }
        }
        Ok(())
    }

    /// Sends the stored events of a session after the last exported one.
    async fn export_stored(&mut self, session: SessionId) -> Result<(), Pause> {
        let store = self.shared.deps.store.clone();
        // Read again for each page, because the session may end its export or choose another destination.
        while let Some(unexported) = store.unexported(session).await?.filter(|one| one.destination == self.id) {
            let (events, more) = store.page(session, &after(unexported.after)).await?;
            let mut events: VecDeque<Outgoing> = events.iter().map(|one| outgoing(session, one)).collect();
            while !events.is_empty() {
                let batch = front_batch(&mut events);
                self.deliver(&batch).await?;
                if let Some(last) = batch.last() {
                    store.set_exported(session, last.numbered.seq).await?;
                }
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Sends a batch until its result is final, in halves if it is too long.
    async fn deliver(&mut self, batch: &[Outgoing]) -> Result<(), Pause> {
        let mut pending = vec![batch];
        while let Some(batch) = pending.pop() {
            let Some((_, sender)) = &self.sender else { return Ok(()) };
            match sender.send(batch).await {
                Verdict::Accepted { rejected } => {
                    let rejected = rejected.min(batch.len());
                    let accepted = batch.len() - rejected;
                    counter!("casement_telemetry_destination_events_exported_total").increment(accepted as u64);
                    count_lost("refused", rejected);
                    self.has_succeeded = true;
                }
                Verdict::TooLong if batch.len() > 1 => {
                    let (first, second) = batch.split_at(batch.len() / 2);
                    pending.extend([second, first]);
                }
                Verdict::TooLong => self.lose(batch.len(), "a record is too long").await,
                Verdict::Refused { why, for_content: true } => self.lose(batch.len(), &why).await,
                // A caller can repair the destination, so the events wait.
                Verdict::Refused { why, .. } => return Err(self.failed(&why, Duration::ZERO).await),
                Verdict::RetryLater { why, after } => return Err(self.failed(&why, after).await),
            }
        }
        Ok(())
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
                debug!(destination = %self.id, ?error, "cannot build the exporter of a destination");
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
