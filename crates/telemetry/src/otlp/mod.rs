//! Exports the events of sessions to an OpenTelemetry collector, as log records over OTLP/HTTP.
//!
//! A stored event enters a bounded queue and is sent in a batch, which is retried until the destination accepts or
//! refuses it. Nothing waits for the export: an event that does not fit into the queue is not exported, and is counted
//! in `casement_otlp_events_lost_total`. It stays in the store.

mod client;
mod deliver;
mod queue;
mod record;
mod sender;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use casement_domain::telemetry::{StoredBatch, TelemetryExporter};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use client::{DestinationClient, SendError};
pub(crate) use client::{REQUEST_TIMEOUT, Transport, Verdict};
use deliver::ExportSender;
use queue::Queue;
pub(crate) use queue::{Outgoing, outgoing};
pub(crate) use record::resource;
pub(crate) use sender::LogSender;
pub(crate) use settings::destination_headers;
pub use settings::{InvalidSettings, Settings};

/// Queues events for the export. Clones share the queue.
#[derive(Clone)]
pub struct OtlpExporter(Arc<Queue>);

impl TelemetryExporter for OtlpExporter {
    fn take(&self, stored: &StoredBatch) {
        self.0.push(stored);
    }
}

/// The task that sends events.
pub struct ExportTask {
    queue: Arc<Queue>,
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl OtlpExporter {
    /// Starts the export on the current runtime.
    ///
    /// # Errors
    /// [`InvalidSettings`] if the destination cannot be used. Connection failures are only logged later.
    pub fn start(settings: &Settings) -> Result<(Self, ExportTask), InvalidSettings> {
        let (queue, stop) = (Arc::new(Queue::new()), CancellationToken::new());
        let deliverer = ExportSender::new(settings, queue.clone())?;
        let task = tokio::spawn(deliverer.run(stop.clone()));
        Ok((Self(queue.clone()), ExportTask { queue, task, stop }))
    }
}

impl ExportTask {
    /// Sends the queued batches, each once, within `timeout`. Logs the number of lost events.
    pub async fn finish(mut self, timeout: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(timeout, &mut self.task).await.is_err() {
            self.task.abort();
        }
        let left = self.queue.left();
        if left > 0 {
            queue::count_lost("stopped", left);
            warn!(events = left, "some telemetry was not exported before the stop");
        }
    }
}
