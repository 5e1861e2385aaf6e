//! Tests of the export of calls' traces to an OpenTelemetry collector.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Options, Server, Session, until};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use super::host::create_pool;
use super::telemetry_export::Collector;

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
const CALLERS_SPAN: [u8; 8] = [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7];

fn start(ratio: &str) -> anyhow::Result<(Server, std::sync::Arc<Collector>)> {
    let (address, collector) = Collector::start()?;
    let endpoint = format!("http://{address}/base/");
    let flags = ["--otlp-endpoint", &endpoint, "--otlp-traces", ratio].map(str::to_owned).to_vec();
    Ok((Server::start(Options { flags, ..Options::default() })?, collector))
}

/// Returns the header of a caller's trace.
fn traceparent(trace: &str, is_sampled: bool) -> String {
    format!("00-{trace}-00f067aa0ba902b7-0{}", u8::from(is_sampled))
}

fn named<'a>(spans: &'a [Span], name: &str) -> anyhow::Result<&'a Span> {
    let names = || spans.iter().map(|span| span.name.clone()).collect::<Vec<_>>();
    spans.iter().find(|span| span.name == name).with_context(|| format!("no span {name} in {:?}", names()))
}

#[test]
fn a_callers_trace_continues_through_acquire_hand_out_agent_database_and_relay() -> anyhow::Result<()> {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (server, collector) = start("0")?;
    create_pool(&server, "traced", 1)?;
    until("the pool is filled", TEST_TIMEOUT, || {
        let pool = server.get("/browser_pools/traced").ok()?.json().ok()?;
        (pool["available_count"] == 1).then_some(())
    })?;
    let traced = traceparent(TRACE, true);
    let acquire = Request::new("POST", "/browser_pools/traced/acquire").bearer(server.key());
    let acquire = acquire.header("traceparent", &traced).json(&json!({ "acquire_timeout_seconds": 120 }));
    let session = Session(acquire.send(server.address())?.expect(200)?.json()?);
    server.get(&format!("/browsers/{}", session.id()))?.expect(200)?;
    drop(Cdp::connect_with_header(session.text("cdp_ws_url"), "traceparent", &traced)?);

    let call = "POST /browser_pools/{id_or_name}/acquire";
    let spans = until("all spans have arrived", TEST_TIMEOUT, || {
        let spans = collector.spans(TRACE);
        ["relay", "GET /vm/{session_id}/cdp", call].iter().all(|name| named(&spans, name).is_ok()).then_some(spans)
    })
    .with_context(|| {
        let names = collector.spans(TRACE).into_iter().map(|span| span.name);
        names.collect::<Vec<_>>().join(", ")
    })?;
    let root = named(&spans, call)?;
    assert_eq!(root.parent_span_id, CALLERS_SPAN, "the call belongs to the caller's span");
    let parent = |span: &Span| spans.iter().find(|other| other.span_id == span.parent_span_id).map(|span| &*span.name);
    let agent = named(&spans, "agent /v1/handout")?;
    assert_eq!(parent(agent), Some("hand out"));
    assert_eq!(parent(named(&spans, "hand out")?), Some("acquire"));
    assert_eq!(parent(named(&spans, "acquire")?), Some(call));
    assert_eq!(parent(named(&spans, "relay")?), Some("GET /vm/{session_id}/cdp"));
    let is_database = |span: &&Span| span.name.starts_with("wait_queue.");
    ensure!(spans.iter().any(|span| is_database(&span)), "no database: {spans:?}");
    // The call without a trace of its caller is not traced with the share 0.
    ensure!(spans.len() == collector.span_count(), "{} of {}", spans.len(), collector.span_count());
    ensure!(server.log().contains(&format!("trace_id=\"{TRACE}\"")), "the log does not name the trace");
    Ok(())
}

#[test]
fn a_caller_may_decide_against_a_trace_and_a_share_of_other_calls_is_traced() -> anyhow::Result<()> {
    const TRACE: &str = "00112233445566778899aabbccddeeff";
    let (server, collector) = start("1")?;
    for (path, header) in [("/browsers", &*traceparent(TRACE, false)), ("/profiles", "nonsense")] {
        let call = Request::new("GET", path).bearer(server.key()).header("traceparent", header);
        call.send(server.address())?.expect(200)?;
    }
    until("the other call is traced", TEST_TIMEOUT, || (collector.span_count() > 0).then_some(()))?;
    ensure!(collector.spans(TRACE).is_empty(), "{:?}", collector.spans(TRACE));
    Ok(())
}
