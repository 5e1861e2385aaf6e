//! Exports what happened in sessions to an OpenTelemetry collector, as log records over OTLP/HTTP.
//!
//! An event comes here once it is stored, waits in a bounded queue, and leaves in batches, each tried until the destination takes or
//! refuses it. Nobody waits for any of this: what finds no room is lost here and nowhere else, and counted as
//! `casement_otlp_events_lost_total`.

mod client;
mod deliver;
mod queue;
mod record;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use casement_domain::telemetry::{StoredBatch, TelemetryExporter};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use deliver::ExportSender;
use queue::Queue;
pub use settings::{InvalidSettings, Settings};

/// Takes events over; clones are the same one.
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
    /// Starts to export, on the current runtime.
    ///
    /// # Errors
    /// [`InvalidSettings`]: this destination cannot be spoken to. Whether it is there shows only later.
    pub fn start(settings: &Settings) -> Result<(Self, ExportTask), InvalidSettings> {
        let (queue, stop) = (Arc::new(Queue::new()), CancellationToken::new());
        let deliverer = ExportSender::new(settings, queue.clone())?;
        let task = tokio::spawn(deliverer.run(stop.clone()));
        Ok((Self(queue.clone()), ExportTask { queue, task, stop }))
    }
}

impl ExportTask {
    /// Sends what still waits, each batch tried once more, and takes no longer than that. Says how many events are lost with it.
    pub async fn finish(mut self, patience: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
        }
        let left = self.queue.left();
        if left > 0 {
            queue::lost("stopped", left);
            warn!(events = left, "not all telemetry could be exported before the stop");
        }
    }
}
