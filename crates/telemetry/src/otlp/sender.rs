//! Sends single batches.

use opentelemetry_otlp::{LogExporter, Protocol, RetryPolicy, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _};

use super::client::{REQUEST_TIMEOUT, Transport, Verdict};
use super::queue::Outgoing;
use super::record::{Records, resource};
use super::settings::{InvalidSettings, Settings};

/// Sends batches to one collector, each once.
pub(crate) struct LogSender {
    exporter: LogExporter,
    transport: Transport,
    records: Records,
}

impl LogSender {
    pub(crate) fn new(settings: &Settings, transport: Transport) -> Result<Self, InvalidSettings> {
        let mut exporter = LogExporter::builder()
            .with_http()
            .with_http_client(transport.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(settings.endpoint().as_str())
            .with_headers(settings.headers())
            .with_timeout(REQUEST_TIMEOUT * 2)
            // The callers retry themselves, because their retries end at a stop.
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|error| InvalidSettings::OtlpExporter(error.into()))?;
        exporter.set_resource(&resource(settings));
        Ok(Self { exporter, transport, records: Records::new() })
    }

    /// Sends a batch once.
    pub(crate) async fn send(&self, batch: &[Outgoing]) -> Verdict {
        let records = self.records.of(batch);
        let borrowed: Vec<_> = records.iter().map(|(record, scope)| (record, scope)).collect();
        let sent = self.exporter.export(LogBatch::new(&borrowed)).await;
        match (self.transport.verdict(), sent) {
            (Some(verdict), _) => verdict,
            (None, Ok(())) => Verdict::Accepted { rejected: 0 },
            (None, Err(error)) => {
                tracing::debug!(%error, "a request with telemetry was not sent");
                Verdict::Refused { why: "the request cannot be built".to_owned(), for_content: false }
            }
        }
    }
}
