//! Tests of the export of events to an OpenTelemetry collector.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use casement_test_support::program::{Cdp, Options, Server, until};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::json;

const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A collector that accepts only requests with the right header, and refuses the first of them.
#[derive(Default)]
pub(super) struct Collector {
    requests: Mutex<u32>,
    refused: Mutex<u32>,
    records: Mutex<Vec<LogRecord>>,
    spans: Mutex<Vec<Span>>,
}

impl Collector {
    pub(super) fn start() -> anyhow::Result<(SocketAddr, Arc<Self>)> {
        let (listener, collector) = (TcpListener::bind("127.0.0.1:0")?, Arc::new(Self::default()));
        let (address, serving) = (listener.local_addr()?, collector.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                // The exporter repeats an interrupted request.
                thread::spawn(move || drop(serving.serve(stream)));
            }
        });
        Ok((address, collector))
    }

    fn serve(&self, stream: TcpStream) -> anyhow::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0").parse()?;
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let status = self.answer(&head, &body)?;
            write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
        }
    }

    fn answer(&self, head: &str, body: &[u8]) -> anyhow::Result<&'static str> {
        if head.starts_with("post /base/v1/traces ") {
            let request = ExportTraceServiceRequest::decode(body)?;
            let scopes = request.resource_spans.into_iter().flat_map(|one| one.scope_spans);
            self.spans.lock().extend(scopes.flat_map(|one| one.spans));
            return Ok("200 OK");
        }
        if !head.starts_with("post /base/v1/logs ") || !head.contains("\r\nauthorization: bearer swordfish\r\n") {
            *self.refused.lock() += 1;
            return Ok("401 Unauthorized");
        }
        let mut requests = self.requests.lock();
        *requests += 1;
        if *requests == 1 {
            return Ok("503 Service Unavailable");
        }
        let request = ExportLogsServiceRequest::decode(body)?;
        let scopes = request.resource_logs.into_iter().flat_map(|one| one.scope_logs);
        self.records.lock().extend(scopes.flat_map(|one| one.log_records));
        Ok("200 OK")
    }

    /// Returns the spans of a trace.
    pub(super) fn spans(&self, trace: &str) -> Vec<Span> {
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.spans.lock().iter().filter(|span| hex(&span.trace_id) == trace).cloned().collect()
    }

    /// Returns the number of all spans.
    pub(super) fn span_count(&self) -> usize {
        self.spans.lock().len()
    }

    fn records(&self) -> Vec<LogRecord> {
        self.records.lock().clone()
    }
}

fn attribute(record: &LogRecord, name: &str) -> Option<Any> {
    record.attributes.iter().find(|one| one.key == name)?.value.clone()?.value
}

fn seq(record: &LogRecord) -> i64 {
    match attribute(record, "casement.seq") {
        Some(Any::IntValue(seq)) => seq,
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_of_a_session_reach_a_collector_once_and_in_order() -> anyhow::Result<()> {
    let (address, collector) = Collector::start()?;
    let endpoint = format!("http://{address}/base/");
    let flags = vec!["--otlp-endpoint".to_owned(), endpoint];
    let secret = ("CASEMENT_OTLP_HEADER".to_owned(), "Authorization=Bearer swordfish,X-Other=1".to_owned());
    let mut server = Server::start(Options { flags, variables: vec![secret], ..Options::default() })?;
    let telemetry = json!({ "enabled": true, "browser": { "console": { "enabled": true } } });
    let session = server.create(&json!({ "headless": true, "telemetry": telemetry }))?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    // A line that is logged before the initial navigation of the first page may be lost, so it is repeated.
    let mut flag_values = Instant::now();
    cdp.evaluate(&page, "console.log('exported', 42)")?;
    let has_come = |kind: &str| collector.records().iter().any(|record| record.event_name == kind);
    until("the line has come", TEST_TIMEOUT, || {
        if flag_values.elapsed() > Duration::from_secs(5) {
            flag_values = Instant::now();
            cdp.evaluate(&page, "console.log('exported', 42)").ok()?;
        }
        has_come("console_log").then_some(())
    })?;
    let path = format!("/browsers/{}", session.id());
    for _ in 0..5 {
        server.get(&path)?.expect(200)?;
    }
    drop(cdp);

    let events = format!("{path}/telemetry/events?since=1h&limit=100");
    // Each read of the events is an event itself, so the test waits at the collector.
    until("the connection's end has come", TEST_TIMEOUT, || has_come("cdp_disconnect").then_some(()))?;
    let reported = until("the connection's end is told", TEST_TIMEOUT, || {
        let events = server.get(&events).ok()?.json().ok()?.as_array()?.clone();
        events.iter().any(|one| one["event"]["type"] == "cdp_disconnect").then_some(events)
    })?;
    let records = until("everything has arrived", TEST_TIMEOUT, || {
        Some(collector.records()).filter(|records| records.len() >= reported.len())
    })?;
    // Reads are events too, so there may be more than before.
    assert_eq!(records.iter().map(seq).collect::<Vec<_>>(), (1..=records.len() as i64).collect::<Vec<_>>());
    for (record, reported) in records.iter().zip(&reported) {
        assert_eq!(record.event_name, reported["event"]["type"].as_str().unwrap());
        assert_eq!(attribute(record, "session.id"), Some(Any::StringValue(session.id().to_owned())));
        assert_eq!(record.time_unix_nano / 1000, reported["event"]["ts"].as_u64().unwrap());
    }
    let line = records.iter().find(|record| record.event_name == "console_log").expect("the line");
    let Some(Any::KvlistValue(body)) = line.body.clone().and_then(|body| body.value) else { panic!("{line:?}") };
    let text = body.values.iter().find(|one| one.key == "text").and_then(|one| one.value.clone()?.value);
    assert_eq!(text, Some(Any::StringValue("exported".to_owned())));

    let metrics = until("it is counted", TEST_TIMEOUT, || {
        let text = server.get("/metrics").ok()?.text();
        let count = text.lines().find_map(|line| line.strip_prefix("casement_otlp_events_exported_total "))?;
        (count.parse::<usize>().ok()? >= reported.len()).then_some(text)
    })?;
    let is_loss = |line: &str| line.starts_with("casement_otlp_events_lost_total{") && !line.ends_with(" 0");
    assert!(metrics.contains("casement_otlp_failures_total 1\n") && !metrics.lines().any(is_loss));
    assert_eq!(*collector.refused.lock(), 0);
    assert!(server.stop()?.success());
    assert!(server.log().contains("telemetry is exported again") && !server.log().contains("swordfish"));
    Ok(())
}

#[test]
fn a_session_exports_to_its_destination_which_was_away_at_a_restart() -> anyhow::Result<()> {
    let (address, collector) = Collector::start()?;
    let mut server = Server::start(Options {
        flags: vec!["--egress-allow".to_owned(), "127.0.0.1".to_owned()],
        ..Options::default()
    })?;
    let named = json!({ "name": "mine", "endpoint": format!("http://{address}/base") });
    server.post("/telemetry/destinations", &named)?.expect(201)?;
    let telemetry = json!({ "enabled": true, "export": { "otlp": { "destination": { "name": "mine" } } } });
    let session = server.create(&json!({ "headless": true, "telemetry": telemetry }))?;
    let path = format!("/browsers/{}", session.id());
    for _ in 0..3 {
        server.get(&path)?.expect(200)?;
    }
    let export = server.get(&path)?.expect(200)?.json()?["telemetry"]["export"]["otlp"].clone();
    assert_eq!(export["enabled"], true);
    let destination = "/telemetry/destinations/mine";
    // The collector refuses the missing header, and nothing is lost meanwhile.
    let failing = until("the failure is shown", TEST_TIMEOUT, || {
        let record = server.get(destination).ok()?.json().ok()?;
        (record["consecutive_failures"].as_u64() > Some(0)).then_some(record)
    })?;
    assert_eq!(
        (&failing["last_error"], &failing["id"]),
        (&json!("it answers 401 Unauthorized"), &export["destination"])
    );
    server.delete(destination)?.expect(409)?;
    server.kill()?;
    server.restart()?;
    let headers = json!({ "headers": { "authorization": "Bearer swordfish" } });
    let record = server.send("PATCH", destination, Some(&headers))?.expect(200)?.json()?;
    assert_eq!(record["headers"], json!({ "Authorization": "" }));
    let until_exported = |count: usize| {
        until("the events have come", TEST_TIMEOUT, || Some(collector.records()).filter(|all| all.len() >= count))
    };
    let before = until_exported(4)?;
    // The last events are exported although the session has ended.
    server.get(&path)?.expect(200)?;
    server.delete(&path)?.expect(204)?;
    let records = until_exported(before.len() + 1)?;
    assert_eq!(records.iter().map(seq).collect::<Vec<_>>(), (1..=records.len() as i64).collect::<Vec<_>>());
    let is_of_session = |one| attribute(one, "session.id") == Some(Any::StringValue(session.id().to_owned()));
    assert!(records.iter().all(is_of_session));
    until("the success is shown", TEST_TIMEOUT, || {
        let record = server.get(destination).ok()?.json().ok()?;
        (record["consecutive_failures"] == 0 && record["last_export_at"].is_string()).then_some(())
    })?;
    server.delete(destination)?.expect(204)?;
    assert!(server.stop()?.success());
    assert!(!server.log().contains("swordfish"));
    Ok(())
}

#[test]
fn url_queries_reach_neither_the_api_nor_a_collector_if_the_operator_says_so() -> anyhow::Result<()> {
    let (address, collector) = Collector::start()?;
    let flag_values = ["--otlp-endpoint", &format!("http://{address}/base/"), "--telemetry-urls", "without-query"];
    let secret = ("CASEMENT_OTLP_HEADER".to_owned(), "Authorization=Bearer swordfish".to_owned());
    let flags = flag_values.map(str::to_owned).to_vec();
    let server = Server::start(Options { flags, variables: vec![secret], ..Options::default() })?;
    let on = json!({ "enabled": true });
    let telemetry = json!({ "enabled": true, "browser": { "console": on, "network": on, "page": on } });
    let session = server.create(&json!({ "headless": true, "telemetry": telemetry }))?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    let has_come = |kind: &str| collector.records().iter().any(|record| record.event_name == kind);
    until("a page's requests have come", TEST_TIMEOUT, || {
        cdp.evaluate(
            &page,
            "console.log('http://127.0.0.1:1/?hidden'); fetch('http://127.0.0.1:1/a?hidden').catch(() => {})",
        )
        .ok()?;
        std::thread::sleep(Duration::from_millis(200));
        let all = ["console_log", "network_request", "network_loading_failed"];
        all.into_iter().all(has_come).then_some(())
    })?;
    let events = server.get(&format!("/browsers/{}/telemetry/events?since=1h&limit=100", session.id()))?.text();
    assert!(events.contains("http://127.0.0.1:1/a\""), "{events}");
    assert!(!events.contains("hidden"), "{events}");
    let exported = format!("{:?}", collector.records());
    assert!(exported.contains("http://127.0.0.1:1/a\"") && !exported.contains("hidden"), "{exported}");
    Ok(())
}

#[test]
fn an_invalid_exporter_header_fails_the_start_and_is_not_shown() -> anyhow::Result<()> {
    let serve = |words: &[&str]| {
        let folder = tempfile::tempdir()?;
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_casement"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config", "/dev/null", "--data-dir"]);
        let output = command.arg(folder.path()).args(words).output()?;
        anyhow::ensure!(!output.status.success());
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (header, flag_values) in [
        (vec!["--otlp-header", "x=swordfish"], "there is no --otlp-endpoint"),
        (vec!["--otlp-endpoint", "http://127.0.0.1:1", "--otlp-header", "swordfish"], "header 1 must be NAME=VALUE"),
        (vec!["--otlp-traces", "1"], "there is no --otlp-endpoint"),
    ] {
        let refused = serve(&header)?;
        assert!(refused.contains(flag_values) && !refused.contains("swordfish"), "{refused}");
    }
    Ok(())
}
