//! Exports the events of sessions to the telemetry destinations that they name.
//!
//! Each destination has a worker. **Stored events are read from the store**, after the last exported one, so a
//! destination that is away for days costs no memory, and a restart loses nothing: the number of the last exported event
//! is stored after each accepted request. Events that are not stored wait in a bounded [`Outbox`] in memory.

mod outbox;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use casement_domain::telemetry::{StoredBatch, TelemetryExporter, TelemetryStore};
use casement_domain::telemetry_destination::TelemetryDestinations;
use casement_domain::{Clock, NodeId, StoreError, TelemetryDestinationId};
use metrics::counter;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::otlp::DestinationClient;
use outbox::Outbox;
use worker::Worker;

/// The pause before the sessions of the last run are read again from a store that is away.
const RETRY_BACKOFF: Duration = Duration::from_secs(5);

/// The dependencies of the export.
#[derive(Clone)]
pub struct ExportDeps {
    /// This node.
    pub node: NodeId,
    /// The version of this program.
    pub version: &'static str,
    /// The destinations.
    pub destinations: TelemetryDestinations,
    /// The stored events.
    pub store: Arc<dyn TelemetryStore>,
    /// Sends the requests.
    pub client: Arc<dyn DestinationClient>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
}

/// Passes events on to the workers of their destinations. Clones share the workers.
#[derive(Clone)]
pub struct DestinationExporter(Arc<Shared>);

/// What the workers share.
struct Shared {
    deps: ExportDeps,
    outboxes: Mutex<HashMap<TelemetryDestinationId, Arc<Outbox>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Shared {
    /// Frees the outbox of a worker that ends. Returns `false` if it is not empty any more.
    fn release(&self, id: TelemetryDestinationId, outbox: &Outbox) -> bool {
        let mut outboxes = self.outboxes.lock();
        let is_empty = outbox.is_empty();
        if is_empty {
            outboxes.remove(&id);
        }
        is_empty
    }
}

/// Counts events that are not exported and will not be.
fn count_lost(reason: &'static str, count: usize) {
    if count > 0 {
        counter!("casement_telemetry_destination_events_lost_total", "reason" => reason).increment(count as u64);
    }
}

impl DestinationExporter {
    /// Starts the export on the current runtime, with the stored events that the last run of the node did not export.
    #[must_use]
    pub fn start(deps: ExportDeps) -> Self {
        let (outboxes, tasks, stop) = Default::default();
        let exporter = Self(Arc::new(Shared { deps, outboxes, tasks, stop }));
        exporter.0.tasks.spawn(exporter.clone().resume());
        exporter
    }

    /// Exports the stored events of this node that are not exported yet, and on one of the living nodes those of lost
    /// nodes. An event that a lost node is sending at the moment of its return may be sent twice.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn take_over(&self) -> Result<(), StoreError> {
        let deps = &self.0.deps;
        for (session, destination) in deps.store.with_unexported(deps.node).await? {
            self.with_outbox(destination, |outbox| outbox.add_session(session));
        }
        Ok(())
    }

    async fn resume(self) {
        let stop = &self.0.stop;
        loop {
            match self.take_over().await {
                Ok(()) => return,
                Err(error) => {
                    warn!(%error, "cannot read which telemetry the last run did not export; retrying");
                    if stop.run_until_cancelled(tokio::time::sleep(RETRY_BACKOFF)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Gives work to a destination, whose worker is started if there is none.
    fn with_outbox<T>(&self, destination: TelemetryDestinationId, give: impl FnOnce(&Outbox) -> T) -> T {
        // The worker ends only under this lock.
        let mut outboxes = self.0.outboxes.lock();
        let outbox = outboxes.entry(destination).or_insert_with(|| {
            let outbox = Arc::new(Outbox::default());
            self.0.tasks.spawn(Worker::new(destination, outbox.clone(), self.0.clone()).run());
            outbox
        });
        give(outbox)
    }

    /// Sends the events that wait in memory, each once, within `timeout`. Stored events that remain are exported by the
    /// next run of the node.
    pub async fn finish(&self, timeout: Duration) {
        let Shared { outboxes, tasks, stop, .. } = &*self.0;
        stop.cancel();
        tasks.close();
        // After the timeout the tasks end with the runtime.
        let _ = tokio::time::timeout(timeout, tasks.wait()).await;
        let left: usize = outboxes.lock().values().map(|outbox| outbox.clear()).sum();
        if left > 0 {
            count_lost("stopped", left);
            warn!(events = left, "some telemetry was not exported to its destination before the stop");
        }
    }
}

impl TelemetryExporter for DestinationExporter {
    fn take(&self, stored: &StoredBatch) {
        let Some(destination) = stored.delivery.destination else { return };
        if stored.counted.last_seq == stored.before {
            return;
        }
        if stored.delivery.stored {
            self.with_outbox(destination, |outbox| outbox.add_session(stored.session));
        } else if stored.events.is_empty() {
            // The response of the store was lost, so the content of the events is unknown here.
            count_lost("unconfirmed", usize::try_from(stored.counted.last_seq - stored.before).unwrap_or(usize::MAX));
        } else {
            count_lost("no_room", self.with_outbox(destination, |outbox| outbox.push(stored)));
        }
    }
}

/// Passes events on to two exporters.
pub struct BothExporters(pub Arc<dyn TelemetryExporter>, pub Arc<dyn TelemetryExporter>);

impl TelemetryExporter for BothExporters {
    fn take(&self, stored: &StoredBatch) {
        self.0.take(stored);
        self.1.take(stored);
    }
}
