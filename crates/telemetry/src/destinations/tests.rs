//! Tests of the export to destinations, over mocks of the store and the client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::TelemetryDestinationId;
use casement_domain::sealing::Sealer as _;
use casement_domain::telemetry::{
    Delivery, Event, MockTelemetryStore, NumberedEvent, SequenceState, StoredBatch, TelemetryExporter as _, Unexported,
};
use casement_domain::telemetry_destination::{
    DestinationDeps, MockDestinationAddresses, MockTelemetryDestinationRepository, TelemetryDestination,
    TelemetryDestinations,
};
use casement_domain::testing::{
    CountingIds, FixedClock, NOON, PlainSealer, node_id, session_id, telemetry_destination,
};
use http::{HeaderMap, Request, Response};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use parking_lot::Mutex;
use prost::Message as _;

use super::*;
use crate::otlp::SendError;

const TEST_TIMEOUT: Duration = Duration::from_secs(600);

fn id() -> TelemetryDestinationId {
    telemetry_destination().id
}

/// What a collector received: the address, the key and the numbers of the events.
type Received = (String, String, Vec<i64>);

/// The answers of a collector, the last of which repeats, and what it received.
#[derive(Clone, Debug, Default)]
struct Collector {
    answers: Arc<Mutex<VecDeque<Result<u16, SendError>>>>,
    received: Arc<Mutex<Vec<Received>>>,
    /// The headers and the content of the last request.
    last: Arc<Mutex<Option<(HeaderMap, Bytes)>>>,
}

impl Collector {
    fn answering(answers: impl IntoIterator<Item = Result<u16, SendError>>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    fn seqs(&self) -> Vec<Vec<i64>> {
        self.received.lock().iter().map(|(_, _, seqs)| seqs.clone()).collect()
    }
}

fn seqs(body: &[u8]) -> Vec<i64> {
    let request = ExportLogsServiceRequest::decode(body).expect("protobuf");
    let scopes = request.resource_logs.into_iter().flat_map(|one| one.scope_logs);
    let records = scopes.flat_map(|one| one.log_records);
    let seq = |attributes: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>| {
        attributes.into_iter().find_map(|one| match (one.key.as_str(), one.value?.value?) {
            ("casement.seq", Value::IntValue(seq)) => Some(seq),
            _ => None,
        })
    };
    records.filter_map(|record| seq(record.attributes)).collect()
}

#[async_trait]
impl DestinationClient for Collector {
    async fn send(&self, request: Request<Bytes>, _: usize) -> Result<Response<Bytes>, SendError> {
        let key = request.headers().get("x-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
        self.received.lock().push((request.uri().to_string(), key, seqs(request.body())));
        *self.last.lock() = Some((request.headers().clone(), request.body().clone()));
        let mut answers = self.answers.lock();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        answer.unwrap_or(Ok(200)).map(|status| {
            let response = Response::builder().status(status);
            response.body(Bytes::new()).expect("a response")
        })
    }
}

/// The stored events of session 1, and the number of the last exported one.
#[derive(Clone, Default)]
struct Stored {
    last: Arc<Mutex<u64>>,
    exported: Arc<Mutex<u64>>,
}

fn numbered(seq: u64) -> NumberedEvent {
    NumberedEvent { seq, at: NOON, event: Event::api_call(NOON, "x", "y", 200, 0) }
}

impl Stored {
    fn store(&self) -> MockTelemetryStore {
        let mut store = MockTelemetryStore::new();
        let (last, exported) = (self.last.clone(), self.exported.clone());
        store.expect_page().returning(move |_, span| {
            let first = span.behind.unwrap_or(0) + 1;
            let until = (*last.lock()).min(first + 2);
            Ok(((first..=until).map(numbered).collect(), until < *last.lock()))
        });
        store
            .expect_unexported()
            .returning(move |_| Ok(Some(Unexported { destination: id(), after: *exported.lock() })));
        let exported = self.exported.clone();
        store.expect_set_exported().returning(move |_, through| {
            *exported.lock() = through;
            Ok(())
        });
        store
    }

    /// Stores events up to a number, and returns their batch.
    fn add(&self, through: u64) -> StoredBatch {
        let before = std::mem::replace(&mut *self.last.lock(), through);
        batch(before, through, true)
    }
}

fn batch(before: u64, through: u64, stored: bool) -> StoredBatch {
    let counted = SequenceState { last_seq: through, ..SequenceState::NOTHING };
    let events = (before + 1..=through).map(numbered).collect();
    let delivery = Delivery { destination: Some(id()), stored };
    StoredBatch { session: session_id(1), before, counted, events, delivery }
}

type Outcomes = Arc<Mutex<Vec<Option<String>>>>;

/// Returns the exporter, and the outcomes that it stores: `None` for a success.
fn exporter(collector: &Collector, store: MockTelemetryStore, exists: bool) -> (DestinationExporter, Outcomes) {
    exporter_to(collector, store, exists.then(telemetry_destination))
}

fn exporter_to(
    collector: &Collector,
    mut store: MockTelemetryStore,
    destination: Option<TelemetryDestination>,
) -> (DestinationExporter, Outcomes) {
    let outcomes = Outcomes::default();
    let mut rows = MockTelemetryDestinationRepository::new();
    rows.expect_find_any().returning(move |_| Ok(destination.clone()));
    let noted = outcomes.clone();
    rows.expect_note_success().returning(move |_, _| {
        noted.lock().push(None);
        Ok(())
    });
    let noted = outcomes.clone();
    rows.expect_note_failure().returning(move |_, error, _| {
        noted.lock().push(Some(error.to_owned()));
        Ok(())
    });
    store.expect_with_unexported().returning(|_| Ok(Vec::new()));
    let clock = Arc::new(FixedClock::default());
    let destinations = TelemetryDestinations::new(DestinationDeps {
        destinations: Arc::new(rows),
        sealer: Arc::new(PlainSealer),
        addresses: Arc::new(MockDestinationAddresses::new()),
        clock: clock.clone(),
        ids: Arc::new(CountingIds::default()),
    });
    let (store, client) = (Arc::new(store), Arc::new(collector.clone()));
    let deps = ExportDeps { node: node_id(), version: "1", destinations, store, client, clock };
    (DestinationExporter::start(deps), outcomes)
}

async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let waiting = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(start_paused = true)]
async fn stored_events_are_exported_once_in_order_with_the_headers() {
    let (collector, stored) = (Collector::answering([Ok(200)]), Stored::default());
    let (exporter, outcomes) = exporter(&collector, stored.store(), true);
    exporter.take(&stored.add(4));
    until("the first are exported", || *stored.exported.lock() == 4).await;
    exporter.take(&stored.add(5));
    until("the last is exported", || *stored.exported.lock() == 5 && outcomes.lock().len() == 2).await;
    assert_eq!(collector.seqs(), [vec![1, 2, 3], vec![4], vec![5]]);
    let (url, key, _) = collector.received.lock()[0].clone();
    assert_eq!((&*url, &*key), ("https://otel.test/otlp/v1/logs", "swordfish"));
    assert_eq!(*outcomes.lock(), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_away_or_refuses_loses_no_stored_event() {
    let away = [Err(SendError::Unreachable), Ok(503), Ok(401), Ok(200)];
    let (collector, stored) = (Collector::answering(away), Stored::default());
    let (exporter, outcomes) = exporter(&collector, stored.store(), true);
    exporter.take(&stored.add(2));
    until("exported after all", || *stored.exported.lock() == 2 && outcomes.lock().len() == 4).await;
    assert_eq!(collector.seqs(), vec![vec![1, 2]; 4]);
    let expected = [
        Some("the host cannot be reached".to_owned()),
        Some("it answers 503 Service Unavailable".to_owned()),
        Some("it answers 401 Unauthorized".to_owned()),
        None,
    ];
    assert_eq!(*outcomes.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_content_is_refused_does_not_block_later_ones() {
    let (collector, stored) = (Collector::answering([Ok(400), Ok(200)]), Stored::default());
    let (exporter, _) = exporter(&collector, stored.store(), true);
    exporter.take(&stored.add(4));
    until("the rest is exported", || *stored.exported.lock() == 4).await;
    assert_eq!(collector.seqs(), [vec![1, 2, 3], vec![4]]);
}

#[tokio::test(start_paused = true)]
async fn the_accepted_half_of_a_divided_batch_is_not_sent_again() {
    for is_stored in [true, false] {
        let (collector, stored) = (Collector::answering([Ok(413), Ok(200), Ok(503), Ok(200)]), Stored::default());
        let (exporter, _) = exporter(&collector, stored.store(), true);
        exporter.take(&if is_stored { stored.add(3) } else { batch(0, 3, false) });
        until("sent", || collector.seqs().len() == 4).await;
        assert_eq!(collector.seqs(), [vec![1, 2, 3], vec![1], vec![2, 3], vec![2, 3]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_work_ends_and_starts_again() {
    let collector = Collector::answering([Ok(200)]);
    let (exporter, _) = exporter(&collector, MockTelemetryStore::new(), true);
    for sent in 1..=2 {
        exporter.take(&batch(0, 2, false));
        until("sent", || collector.seqs().len() == sent).await;
        tokio::time::sleep(worker::MAX_IDLE * 2).await;
        assert!(exporter.0.outboxes.lock().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_are_not_stored_wait_in_bounded_memory() {
    let collector = Collector::answering([Ok(503), Ok(200)]);
    let (exporter, _) = exporter(&collector, MockTelemetryStore::new(), true);
    exporter.take(&batch(0, 3, false));
    until("sent again", || collector.seqs().len() == 2).await;
    assert_eq!(collector.seqs(), [vec![1, 2, 3], vec![1, 2, 3]]);

    let outbox = Outbox::default();
    assert_eq!(outbox.push(&batch(0, outbox::MAX_EVENTS as u64 + 5, false)), 5);
    let first = outbox.next_batch();
    assert_eq!((first.len(), first[0].numbered.seq), (outbox::MAX_BATCH_EVENTS, 1));
    assert_eq!(outbox.put_back(first, NOON + outbox::MAX_AGE), 0);
    let again = outbox.next_batch();
    assert_eq!(again[0].numbered.seq, 1);
    let too_late = NOON + outbox::MAX_AGE + time::Duration::SECOND;
    assert_eq!(outbox.put_back(again, too_late), outbox::MAX_EVENTS, "those behind the batch are as old");
    assert!(outbox.is_empty());
    assert_eq!(outbox.push(&batch(0, 1, false)), 0, "their room is free");
}

#[tokio::test(start_paused = true)]
async fn a_stop_sends_what_waits_in_memory_once() {
    let collector = Collector::answering([Ok(200)]);
    let (exporter, _) = exporter(&collector, MockTelemetryStore::new(), true);
    exporter.take(&batch(0, 2, false));
    exporter.finish(TEST_TIMEOUT).await;
    assert_eq!(collector.seqs(), [vec![1, 2]]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_to_a_destination_that_was_deleted() {
    let collector = Collector::answering([Ok(200)]);
    let (exporter, _) = exporter(&collector, MockTelemetryStore::new(), false);
    exporter.take(&batch(0, 2, false));
    until("its worker has ended", || exporter.0.outboxes.lock().is_empty()).await;
    assert!(collector.seqs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn sessions_without_a_destination_are_left_out() {
    let collector = Collector::answering([Ok(200)]);
    let (exporter, _) = exporter(&collector, MockTelemetryStore::new(), true);
    exporter.take(&StoredBatch { delivery: Delivery::default(), ..batch(0, 2, true) });
    assert!(exporter.0.outboxes.lock().is_empty());
}

/// Runs a test of this module in a process with the variables of an operator; `false` in that process.
fn runs_with_variables(test: &str, variables: &[(&str, &str)]) -> bool {
    const ALONE: &str = "CASEMENT_TEST_WITH_VARIABLES";
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let (_, module) = module_path!().split_once("::").expect("a module");
    let mut alone = std::process::Command::new(std::env::current_exe().expect("the tests"));
    let alone = alone.args(["--exact", &format!("{module}::{test}")]).env(ALONE, "1").envs(variables.iter().copied());
    let ran = alone.output().expect("run");
    let output = [&*ran.stdout, &ran.stderr].map(String::from_utf8_lossy).concat();
    assert!(ran.status.success() && output.contains("1 passed"), "{output}");
    true
}

#[tokio::test(start_paused = true)]
async fn a_destination_gets_nothing_of_the_variables_of_the_operator() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "x-key=operator,x-operator=1,content-type=x"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=operator,x-operator=1"),
        ("OTEL_RESOURCE_ATTRIBUTES", "operator=1"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ];
    if runs_with_variables("a_destination_gets_nothing_of_the_variables_of_the_operator", &variables) {
        return;
    }
    let collector = Collector::answering([Ok(200)]);
    let (exporter, _) = exporter(&collector, MockTelemetryStore::new(), true);
    exporter.take(&batch(0, 1, false));
    until("sent", || collector.last.lock().is_some()).await;
    let (headers, body) = collector.last.lock().take().expect("a request");
    let named: HashMap<&str, &[u8]> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let expected: [(&str, &[u8]); 2] = [("content-type", b"application/x-protobuf"), ("x-key", b"swordfish")];
    assert_eq!(named, HashMap::from(expected));
    assert!(headers["x-key"].is_sensitive());
    let request = ExportLogsServiceRequest::decode(body).expect("protobuf");
    let resource = request.resource_logs[0].resource.clone().expect("a resource");
    let mut attributes: Vec<String> = resource.attributes.into_iter().map(|one| one.key).collect();
    attributes.sort();
    assert_eq!(attributes, ["service.instance.id", "service.name", "service.version"]);
}

#[tokio::test(start_paused = true)]
async fn an_exporter_that_cannot_be_built_is_an_outcome_of_the_destination() {
    let mut destination = telemetry_destination();
    let place = TelemetryDestination::place(destination.id);
    destination.headers = PlainSealer.seal(&place, br#"{"no name":"swordfish"}"#).expect("sealed");
    let collector = Collector::default();
    let (exporter, outcomes) = exporter_to(&collector, MockTelemetryStore::new(), Some(destination));
    exporter.take(&batch(0, 1, false));
    until("the failure is stored", || !outcomes.lock().is_empty()).await;
    assert_eq!(outcomes.lock()[0].as_deref(), Some("header 1 must be NAME=VALUE, both as HTTP takes them"));
    assert!(collector.seqs().is_empty());
}
