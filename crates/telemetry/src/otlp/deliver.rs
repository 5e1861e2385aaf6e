//! Sends batches in order, each until it is accepted or refused.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::backoff::Backoff;
use metrics::counter;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::client::{Transport, Verdict};
use super::queue::{Outgoing, Queue, count_lost};
use super::sender::LogSender;
use super::settings::{InvalidSettings, Settings};

/// The first and the longest backoff of a batch, and the longest that a destination may request.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// The log message about telemetry that the exporter gives up.
const DROPPED: &str = "telemetry is not exported and will not be sent again";

/// Takes batches from the queue and sends them.
pub(crate) struct ExportSender {
    queue: Arc<Queue>,
    sender: LogSender,
    destination: String,
    /// The last logged problem of the destination.
    last_problem: Option<String>,
}

impl ExportSender {
    pub(crate) fn new(settings: &Settings, queue: Arc<Queue>) -> Result<Self, InvalidSettings> {
        let transport = Transport::new(settings.endpoint().scheme() == "https").map_err(InvalidSettings::Tls)?;
        let (sender, destination) = (LogSender::new(settings, transport)?, settings.endpoint().to_string());
        Ok(Self { queue, sender, destination, last_problem: None })
    }

    /// Runs until `stop`, and then until every queued batch was sent once or one failed.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while let Some(batch) = self.queue.next(&stop).await {
            // The halves of a batch that is too long are sent before the next batch.
            let mut pending = vec![batch];
            while let Some(batch) = pending.pop() {
                match self.deliver(&batch, &stop).await {
                    Some(Verdict::TooLong) if batch.len() > 1 => {
                        let (first, second) = batch.split_at(batch.len() / 2);
                        pending.extend([second.to_vec(), first.to_vec()]);
                    }
                    // The server stops, so the rest is not sent.
                    None => return,
                    Some(verdict) => self.conclude(batch.len(), verdict),
                }
            }
        }
    }

    /// Sends a batch until the result is final. Returns `None` if it is not final at the stop.
    async fn deliver(&mut self, batch: &[Outgoing], stop: &CancellationToken) -> Option<Verdict> {
        let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        loop {
            match self.sender.send(batch).await {
                Verdict::RetryLater { why, after } => {
                    counter!("casement_otlp_failures_total").increment(1);
                    self.log_problem(why, "cannot export telemetry; retrying");
                    if stop.is_cancelled() {
                        return None;
                    }
                    let pause = tokio::time::sleep(backoff.next_pause().max(after).min(MAX_RETRY_AFTER));
                    let _ = stop.run_until_cancelled(pause).await;
                }
                verdict => return Some(verdict),
            }
        }
    }

    fn conclude(&mut self, count: usize, verdict: Verdict) {
        self.queue.finish(count);
        match verdict {
            Verdict::Accepted { rejected } => {
                let rejected = rejected.min(count);
                counter!("casement_otlp_events_exported_total").increment((count - rejected) as u64);
                if rejected > 0 {
                    count_lost("refused", rejected);
                    self.log_problem("it rejects some records".to_owned(), DROPPED);
                } else if self.last_problem.take().is_some() {
                    info!(destination = self.destination, "telemetry is exported again");
                }
            }
            Verdict::TooLong => {
                count_lost("refused", count);
                self.log_problem("a record is too long".to_owned(), DROPPED);
            }
            Verdict::Refused { why, .. } | Verdict::RetryLater { why, .. } => {
                count_lost("refused", count);
                self.log_problem(why, DROPPED);
            }
        }
    }

    /// Logs a problem if it differs from the last one.
    fn log_problem(&mut self, why: String, what: &'static str) {
        if self.last_problem.as_ref() != Some(&why) {
            warn!(destination = self.destination, why, "{what}");
            self.last_problem = Some(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::telemetry::{Category, Delivery, Event, NumberedEvent, SequenceState, StoredBatch};
    use casement_domain::testing::{NOON, session_id};
    use opentelemetry_proto::tonic::collector::logs::v1::{
        ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
    };
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use prost::Message as _;
    use secrecy::SecretString;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;
    use url::Url;

    use super::*;
    use crate::otlp::{ExportTask, OtlpExporter};
    use casement_domain::telemetry::TelemetryExporter as _;

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// A request to the collector: its head and its content.
    type CollectorRequest = (String, ExportLogsServiceRequest);
    /// The collector's response to the request of this number: the status line, and a body.
    type Answer = fn(usize, &[LogRecord]) -> (&'static str, Vec<u8>);

    /// Starts a mock collector with these responses, which sends the requests to the channel.
    async fn collector(answer: Answer) -> (Url, mpsc::UnboundedReceiver<CollectorRequest>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = Url::parse(&format!("http://{}", listener.local_addr().expect("an address"))).expect("an address");
        (url, serve(listener, answer))
    }

    fn serve(listener: TcpListener, answer: Answer) -> mpsc::UnboundedReceiver<CollectorRequest> {
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut count = 0;
            while let Ok((mut stream, _)) = listener.accept().await {
                while let Some((head, body)) = read(&mut stream).await {
                    let request = ExportLogsServiceRequest::decode(body.as_slice()).expect("protobuf");
                    let (status, body) = answer(count, &records(&request));
                    count += 1;
                    let head_of_answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
                    let _ = stream.write_all(&[head_of_answer.as_bytes(), &body].concat()).await;
                    let _ = sender.send((head, request));
                    if status == "no" {
                        break;
                    }
                }
            }
        });
        requests
    }

    async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).ok()?.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        Some((head, body))
    }

    fn records(request: &ExportLogsServiceRequest) -> Vec<LogRecord> {
        let scopes = request.resource_logs.iter().flat_map(|one| &one.scope_logs);
        scopes.flat_map(|one| one.log_records.clone()).collect()
    }

    fn attribute(record: &LogRecord, name: &str) -> Option<Value> {
        let found = record.attributes.iter().find(|one| one.key == name)?;
        found.value.clone()?.value
    }

    fn seqs(request: &ExportLogsServiceRequest) -> Vec<i64> {
        let seq = |record: &LogRecord| match attribute(record, "casement.seq") {
            Some(Value::IntValue(seq)) => seq,
            other => panic!("{other:?}"),
        };
        records(request).iter().map(seq).collect()
    }

    fn ok(_: usize, _: &[LogRecord]) -> (&'static str, Vec<u8>) {
        ("200 OK", Vec::new())
    }

    fn start(url: &Url, headers: &[&str]) -> (OtlpExporter, ExportTask) {
        let headers: Vec<SecretString> = headers.iter().map(|text| SecretString::from(*text)).collect();
        OtlpExporter::start(&Settings::new(url, &headers, "one", "1").expect("settings")).expect("started")
    }

    fn events(seqs: std::ops::RangeInclusive<u64>) -> StoredBatch {
        let event = |seq| NumberedEvent { seq, at: NOON, event: Event::api_call(NOON, "x", "y", 200, 7) };
        let (before, last) = (seqs.start() - 1, *seqs.end());
        let counted = SequenceState { last_seq: last, last_at: NOON, ..SequenceState::NOTHING };
        StoredBatch {
            session: session_id(1),
            before,
            counted,
            events: seqs.map(event).collect(),
            delivery: Delivery::default(),
        }
    }

    async fn next(requests: &mut mpsc::UnboundedReceiver<CollectorRequest>) -> CollectorRequest {
        tokio::time::timeout(TEST_TIMEOUT, requests.recv()).await.expect("in time").expect("a request")
    }

    #[tokio::test]
    async fn an_event_becomes_a_log_record_with_its_data_as_body() {
        let (url, mut requests) = collector(ok).await;
        let (exporter, export) = start(&url, &["x-tenant=seven"]);
        let data = json!({ "text": "boo", "args": ["a", 1], "line": 3 });
        let data = data.as_object().expect("an object").clone().into_iter().collect::<Vec<_>>();
        let data: [(String, serde_json::Value); 3] = data.try_into().expect("three");
        let mut stored = events(4..=4);
        stored.events[0].event = Event::ours(Category::Console, "console_error", NOON, None, Some(data));
        exporter.take(&stored);
        let (head, request) = next(&mut requests).await;

        assert!(head.starts_with("post /v1/logs http/1.1\r\n") && head.contains("\r\nx-tenant: seven\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"), "{head}");
        let resource = request.resource_logs[0].resource.clone().expect("a resource");
        let service = resource.attributes.iter().find(|one| one.key == "service.name").expect("a name");
        assert_eq!(
            service.value.clone().and_then(|value| value.value),
            Some(Value::StringValue("casement".to_owned()))
        );
        let [record] = &*records(&request) else { panic!("{request:?}") };
        let text = |text: &str| Some(Value::StringValue(text.to_owned()));
        assert_eq!(record.event_name, "console_error");
        assert_eq!((record.severity_number, &*record.severity_text), (17, "ERROR"));
        assert_eq!(u128::from(record.time_unix_nano), NOON.unix_timestamp_nanos().unsigned_abs());
        assert_eq!(attribute(record, "session.id"), text(&session_id(1).to_string()));
        assert_eq!(attribute(record, "casement.seq"), Some(Value::IntValue(4)));
        assert_eq!(attribute(record, "casement.category"), text("console"));
        assert_eq!(attribute(record, "casement.source"), text("kernel_api"));
        let Some(Value::KvlistValue(body)) = record.body.clone().and_then(|body| body.value) else { panic!("a map") };
        let member =
            |name: &str| body.values.iter().find(|one| one.key == name).and_then(|one| one.value.clone()?.value);
        assert_eq!((member("text"), member("line")), (text("boo"), Some(Value::IntValue(3))));
        assert!(matches!(member("args"), Some(Value::ArrayValue(list)) if list.values.len() == 2));
        export.finish(TEST_TIMEOUT).await;
    }

    #[tokio::test]
    async fn failed_batches_are_retried_in_order() {
        let (url, mut requests) = collector(|count, _| match count {
            0 => ("503 Service Unavailable\r\nRetry-After: 1", Vec::new()),
            // Not HTTP: the connection breaks.
            1 => ("no", Vec::new()),
            _ => ("200 OK", Vec::new()),
        })
        .await;
        let (exporter, export) = start(&url, &[]);
        exporter.take(&events(1..=3));
        let mut tries: Vec<Vec<i64>> = vec![seqs(&next(&mut requests).await.1)];
        exporter.take(&events(4..=5));
        while !tries.concat().contains(&5) {
            tries.push(seqs(&next(&mut requests).await.1));
        }
        // The first batch is sent three times, because it failed twice; then the later events.
        assert_eq!(tries.iter().take(3).collect::<Vec<_>>(), [&tries[0]; 3]);
        assert_eq!(tries[2..].concat(), [1, 2, 3, 4, 5]);
        export.finish(TEST_TIMEOUT).await;
    }

    #[tokio::test]
    async fn a_too_long_batch_is_split_and_a_refused_one_is_skipped() {
        let (url, mut requests) = collector(|_, records| match records.len() {
            1 if attribute(&records[0], "casement.seq") == Some(Value::IntValue(3)) => ("400 Bad Request", Vec::new()),
            1 => ("200 OK", Vec::new()),
            _ => ("413 Payload Too Large", Vec::new()),
        })
        .await;
        let (exporter, export) = start(&url, &[]);
        exporter.take(&events(1..=5));
        let mut alone = Vec::new();
        while alone.len() < 5 {
            let seqs = seqs(&next(&mut requests).await.1);
            alone.extend(seqs.first().filter(|_| seqs.len() == 1).copied());
        }
        assert_eq!(alone, [1, 2, 3, 4, 5]);
        export.finish(TEST_TIMEOUT).await;
    }

    #[tokio::test]
    async fn a_partial_success_is_final() {
        let (url, mut requests) = collector(|_, _| {
            let partial = ExportLogsPartialSuccess { rejected_log_records: 2, error_message: "no".to_owned() };
            ("200 OK", ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec())
        })
        .await;
        let (exporter, export) = start(&url, &[]);
        exporter.take(&events(1..=3));
        assert_eq!(seqs(&next(&mut requests).await.1), [1, 2, 3]);
        let queue = export.queue.clone();
        export.finish(TEST_TIMEOUT).await;
        assert_eq!(queue.left(), 0);
        assert!(requests.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_stop_sends_queued_batches_once() {
        let (url, mut requests) = collector(ok).await;
        let (exporter, export) = start(&url, &[]);
        exporter.take(&events(1..=1000));
        export.finish(TEST_TIMEOUT).await;
        let mut seen = Vec::new();
        while let Ok((_, request)) = requests.try_recv() {
            seen.extend(seqs(&request));
        }
        assert_eq!(seen, (1..=1000).collect::<Vec<_>>());

        let (url, _) = collector(|_, _| ("503 Service Unavailable", Vec::new())).await;
        let (exporter, export) = start(&url, &[]);
        exporter.take(&events(1..=1000));
        let queue = export.queue.clone();
        export.finish(TEST_TIMEOUT).await;
        assert_eq!(queue.left(), 1000);
    }
}
