//! Exports the traces of calls to an OpenTelemetry collector, as spans over OTLP/HTTP.
//!
//! A trace begins with a call of the API, or continues the trace that the caller names (`traceparent` of W3C Trace
//! Context). Nothing waits for the export: a span that does not fit into the queue is lost, and counted in
//! `casement_trace_spans_lost_total`.

use std::collections::HashMap;
use std::time::Duration;

use casement_domain::backoff::Backoff;
use metrics::counter;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Link, SpanKind, Status, TraceContextExt as _, TraceId, TraceState, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    Sampler, SamplingDecision, SamplingResult, SdkTracerProvider, ShouldSample, SpanData, SpanExporter as _,
    SpanProcessor,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Span, Subscriber, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::otlp::{InvalidSettings, REQUEST_TIMEOUT, Settings, Transport, Verdict, resource};

/// The name of the span of a call, with which a trace begins.
pub const CALL: &str = "request";
/// The maximum number of spans that wait for the export.
const MAX_QUEUED: usize = 8192;
/// The maximum number of spans of one batch, and the maximum wait for it to fill.
const MAX_BATCH: usize = 512;
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The backoff of a batch that the collector does not accept now, and the number of attempts.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
const MAX_ATTEMPTS: u32 = 5;

/// Traces that are recorded but not exported yet.
#[derive(Debug)]
pub struct RecordedTraces(mpsc::Receiver<SpanData>);

/// The task that exports traces.
#[derive(Debug)]
pub struct TraceExport {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

/// Creates the layer that records the spans of this program. `ratio`: the share of the calls without a trace of their
/// caller that are traced, from 0 to 1; a caller's own decision is followed.
pub fn layer<S>(ratio: f64) -> (impl Layer<S> + Send + Sync + use<S>, RecordedTraces)
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let (queue, recorded) = mpsc::channel(MAX_QUEUED);
    let sampler = CallSampler(Sampler::TraceIdRatioBased(ratio));
    let provider = SdkTracerProvider::builder().with_sampler(sampler).with_span_processor(QueueWriter(queue)).build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("casement"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("casement")));
    (layer, RecordedTraces(recorded))
}

/// Samples calls; everything else belongs to the trace of a call, or to none.
#[derive(Clone, Debug)]
struct CallSampler(Sampler);

impl ShouldSample for CallSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let decided = |decision, trace_state| SamplingResult { decision, attributes: Vec::new(), trace_state };
        match parent.filter(|parent| parent.has_active_span()) {
            Some(parent) => {
                let span = parent.span();
                let context = span.span_context();
                let decision = match context.is_sampled() {
                    true => SamplingDecision::RecordAndSample,
                    false => SamplingDecision::Drop,
                };
                decided(decision, context.trace_state().clone())
            }
            None if name == CALL => self.0.should_sample(None, trace_id, name, kind, attributes, links),
            None => decided(SamplingDecision::Drop, TraceState::default()),
        }
    }
}

/// Queues spans that have ended.
#[derive(Debug)]
struct QueueWriter(mpsc::Sender<SpanData>);

impl SpanProcessor for QueueWriter {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.0.try_send(span).is_err() {
            count_lost("no_room", 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Begins to trace a call whose span is new, and links it with the trace that the caller names. Returns the trace's id
/// if the call is traced.
pub fn begin(span: &Span, method: &str, traceparent: Option<&str>, tracestate: Option<&str>) -> Option<String> {
    let named = [("traceparent", traceparent), ("tracestate", tracestate)];
    let carrier: HashMap<String, String> =
        named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    let caller = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    if caller.span().span_context().is_valid() {
        // Fails only if the span has begun already.
        let _ = span.set_parent(caller);
    }
    span.record("otel.kind", "server");
    span.set_attribute("http.request.method", method.to_owned());
    let context = span.context();
    let began = context.span().span_context().clone();
    began.is_sampled().then(|| began.trace_id().to_string())
}

/// Completes the span of a call. `route`: the pattern of its path.
pub fn end(span: &Span, method: &str, route: &str, status: u16) {
    span.context().span().update_name(format!("{method} {route}"));
    span.set_attribute("http.route", route.to_owned());
    span.set_attribute("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.set_status(Status::error(""));
    }
}

impl RecordedTraces {
    /// Starts the export on the current runtime.
    ///
    /// # Errors
    /// [`InvalidSettings`] if the destination cannot be used.
    pub fn export(self, settings: &Settings) -> Result<TraceExport, InvalidSettings> {
        let transport = Transport::new(settings.endpoint().scheme() == "https").map_err(InvalidSettings::Tls)?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(transport.clone())
            .with_endpoint(settings.traces().as_str())
            .with_headers(settings.headers())
            .with_timeout(REQUEST_TIMEOUT * 2)
            // The attempts here end at a stop.
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|error| InvalidSettings::OtlpExporter(error.into()))?;
        exporter.set_resource(&resource(settings));
        let stop = CancellationToken::new();
        let sender = SpanSender { recorded: self.0, exporter, transport, last_problem: None };
        Ok(TraceExport { task: tokio::spawn(sender.run(stop.clone())), stop })
    }
}

impl TraceExport {
    /// Exports what is recorded, within `timeout`.
    pub async fn finish(mut self, timeout: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(timeout, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

struct SpanSender {
    recorded: mpsc::Receiver<SpanData>,
    exporter: SpanExporter,
    transport: Transport,
    /// The last logged problem of the destination.
    last_problem: Option<String>,
}

impl SpanSender {
    async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            let received = stop.run_until_cancelled(self.recorded.recv_many(&mut batch, MAX_BATCH)).await;
            let is_stopped = received.is_none();
            if is_stopped {
                self.recorded.close();
                while let Ok(span) = self.recorded.try_recv() {
                    batch.push(span);
                }
            } else if received == Some(0) {
                return;
            } else if batch.len() < MAX_BATCH {
                let _ = stop.run_until_cancelled(tokio::time::sleep(BATCH_INTERVAL)).await;
                while batch.len() < MAX_BATCH
                    && let Ok(span) = self.recorded.try_recv()
                {
                    batch.push(span);
                }
            }
            if !batch.is_empty() {
                self.deliver(std::mem::take(&mut batch), &stop).await;
            }
            if is_stopped {
                return;
            }
        }
    }

    /// Sends a batch until it is accepted or refused, or all attempts have failed.
    async fn deliver(&mut self, batch: Vec<SpanData>, stop: &CancellationToken) {
        let count = batch.len();
        let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        for _ in 0..MAX_ATTEMPTS {
            let sent = self.exporter.export(batch.clone()).await;
            let verdict = self.transport.verdict();
            match (verdict, sent) {
                (Some(Verdict::Accepted { rejected }), _) => {
                    count_lost("refused", rejected.min(count));
                    counter!("casement_trace_spans_exported_total").increment((count - rejected.min(count)) as u64);
                    self.last_problem = None;
                    return;
                }
                (Some(Verdict::RetryLater { why, after }), _) => {
                    self.log_problem(why);
                    let pause = tokio::time::sleep(backoff.next_pause().max(after.min(MAX_BACKOFF)));
                    if stop.run_until_cancelled(pause).await.is_none() {
                        break;
                    }
                }
                (Some(Verdict::Refused { why, .. }), _) => {
                    self.log_problem(why);
                    return count_lost("refused", count);
                }
                (Some(Verdict::TooLong), _) => return count_lost("refused", count),
                (None, sent) => {
                    self.log_problem(sent.err().map(|error| error.to_string()).unwrap_or_default());
                    return count_lost("refused", count);
                }
            }
        }
        count_lost("unreachable", count);
    }

    fn log_problem(&mut self, why: String) {
        if self.last_problem.as_ref() != Some(&why) {
            warn!(why, "traces cannot be exported");
            self.last_problem = Some(why);
        }
    }
}

fn count_lost(reason: &'static str, count: usize) {
    if count > 0 {
        counter!("casement_trace_spans_lost_total", "reason" => reason).increment(count as u64);
    }
}
