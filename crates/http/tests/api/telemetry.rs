//! Listing and streaming the telemetry events of a session.

use casement_domain::{
    StoreError,
    telemetry::{
        Capture, Category, Event, EventCategory, Followed, MockFeed, MockRecorder, MockTelemetryStore, NumberedEvent,
        Order, Start,
    },
    testing::{NOON, session, session_id},
};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Key, Ports, Reply, TestApi, request};

fn numbered(seq: u64) -> NumberedEvent {
    let at = NOON + Duration::seconds(i64::try_from(seq).unwrap());
    NumberedEvent { seq, at, event: Event::api_call(at, "capture_screenshot", "id", 200, 5) }
}

/// Returns ports with an ended session and its events.
fn ports(store: MockTelemetryStore) -> Ports {
    let mut ports = Ports { events: store, ..Ports::default() };
    ports.sessions.expect_find_in_project().returning(|_, which, _| {
        let known = *which == casement_domain::session::IdOrName::Id(session_id(1));
        Ok(known.then(|| session(1)))
    });
    ports
}

fn path(query: &str) -> String {
    format!("/browsers/{}/telemetry/events{query}", session_id(1))
}

#[tokio::test]
async fn a_page_states_where_the_next_one_begins() {
    let mut store = MockTelemetryStore::new();
    store.expect_page().returning(|_, span| {
        let first = span.behind.unwrap_or(0) + 1;
        let last = (first + u64::from(span.limit) - 1).min(3);
        Ok(((first..=last).map(numbered).collect(), last < 3))
    });
    let api = TestApi::start(ports(store));
    let first = api.get(&path("?limit=2")).await;
    assert_eq!((first.status, first.header("x-has-more")), (200, Some("true")));
    let expected = json!({
        "seq": 1,
        "event": {
            "type": "api_call", "category": "control", "ts": 1_796_126_401_000_000_i64, "source": { "kind": "kernel_api" },
            "data": { "operation_id": "capture_screenshot", "request_id": "id", "status": 200, "duration_ms": 5 },
        },
    });
    assert_eq!(first.json()[0], expected);
    let offset = first.header("x-next-offset").unwrap().to_owned();
    assert!(offset.parse::<u64>().unwrap() > 0);
    let last = api.get(&path(&format!("?limit=2&offset={offset}"))).await;
    assert_eq!((last.header("x-has-more"), last.header("x-next-offset")), (Some("false"), Some("0")));
    assert_eq!(last.json().as_array().unwrap().iter().map(|one| &one["seq"]).collect::<Vec<_>>(), [&json!(3)]);
}

#[tokio::test]
async fn the_query_selects_the_events_that_are_read() {
    let mut store = MockTelemetryStore::new();
    store.expect_page().times(1).returning(|_, span| {
        assert_eq!((span.limit, span.order), (20, Order::Ascending));
        assert_eq!(span.since, Some(NOON - Duration::minutes(90)));
        assert_eq!(span.until, Some(NOON - Duration::minutes(1)));
        assert_eq!(span.categories.len(), 2);
        assert_eq!(span.types.types().collect::<Vec<_>>(), ["console_log", "page_crashed"]);
        Ok((Vec::new(), false))
    });
    let api = TestApi::start(ports(store));
    let query =
        "?since=1h30m&until=1m&category=console,page&category=page&type=page_crashed&type=console_log&unknown=1";
    let reply = api.get(&path(query)).await;
    assert_eq!((reply.status, reply.text().as_str(), reply.header("x-has-more")), (200, "[]", Some("false")));
}

#[tokio::test]
async fn invalid_query_parameters_are_named() {
    let api = TestApi::start(ports(MockTelemetryStore::new()));
    for (query, detail) in [
        ("?limit=0", "out_of_range: limit: must be from 1 to 100"),
        ("?limit=101", "out_of_range: limit: must be from 1 to 100"),
        ("?limit=x", "invalid_type: limit: must be an integer"),
        ("?order=down", "not_allowed: order: must be asc or desc"),
        ("?order=desc&since=5m", "mutually_exclusive: since: cannot be given with order=desc"),
        ("?since=1m&until=5m", "out_of_range: until: must be after since"),
        ("?type=page%20crashed", "invalid_format: type: must be the name of a type, such as page_crashed"),
        ("?since=31d", "out_of_range: since: must be at most 30d ago"),
    ] {
        let reply = api.get(&path(query)).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"), "{query}: {reply}");
        assert_eq!(reply.details(), [detail], "{query}");
    }
    let unknown = api.get(&path("?category=all")).await;
    assert!(unknown.details()[0].starts_with("not_allowed: category: must be one of console, "), "{unknown}");
    for offset in ["0", "-1", "1", "4294967296", "9223372036854775807", "99999999999999999999"] {
        let reply = api.get(&path(&format!("?offset={offset}"))).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_cursor"), "{offset}: {reply}");
    }
}

#[tokio::test]
async fn an_unavailable_store_returns_no_events_and_an_unknown_session_is_not_found() {
    let mut store = MockTelemetryStore::new();
    store.expect_page().returning(|_, _| Err(StoreError::unavailable("telemetry.page", "away")));
    let api = TestApi::start(ports(store));
    let away = api.get(&path("")).await;
    assert_eq!((away.status, away.text().as_str(), away.header("x-next-offset")), (200, "[]", Some("0")));
    for id in [session_id(2).to_string(), "nonsense".to_owned()] {
        let reply = api.get(&format!("/browsers/{id}/telemetry/events")).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"));
    }
}

/// Reads a stream to its end.
async fn stream_of(api: &TestApi, path: &str, headers: &[&str]) -> Reply {
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let lines: Vec<&str> = [key.as_str()].into_iter().chain(headers.iter().copied()).collect();
    let mut connection = api.connect().await;
    connection.write_all(&request("GET", path, &lines, "")).await.unwrap();
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).await.unwrap();
    Reply::parse(&bytes)
}

#[tokio::test]
async fn a_stream_starts_where_its_caller_says_and_ends_with_its_events() {
    let path = format!("/browsers/{}/telemetry/stream", session_id(1));
    for (query, headers, start) in [
        ("", &[][..], Start::Now),
        ("?replay=some", &[], Start::Now),
        ("?replay=all", &[], Start::Oldest),
        ("?replay=all", &["Last-Event-ID: 7"], Start::After(7)),
        ("", &["Last-Event-ID: seven"], Start::Now),
        ("", &["Last-Event-ID: -7"], Start::Now),
    ] {
        let mut feed = MockFeed::new();
        feed.expect_follow().times(1).returning(move |session, begin| {
            assert_eq!((session, begin), (session_id(1), start));
            Ok(stream::iter([Followed::Event(numbered(8)), Followed::Event(numbered(9)), Followed::TooSlow]).boxed())
        });
        let api = TestApi::start(Ports { feed, ..ports(MockTelemetryStore::new()) });
        let reply = stream_of(&api, &format!("{path}{query}"), headers).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
        let text = reply.text();
        assert!(text.contains("id: 8\ndata: {\"seq\":8,\"event\":{"), "{text}");
        assert!(text.contains("id: 9\n") && text.contains(": slow_reader\n\n"), "{text}");
    }
}

#[tokio::test]
async fn a_stream_of_types_names_the_last_event_that_it_left_out() {
    let path = format!("/browsers/{}/telemetry/stream", session_id(1));
    for query in ["?type=page_load,page_crashed", "?type=page_load&type=page_crashed"] {
        let mut feed = MockFeed::new();
        let crashed = || {
            let body = r#"{"type":"page_crashed"}"#;
            let category = EventCategory::Captured(Category::Page);
            NumberedEvent { seq: 8, at: NOON, event: Event { category, at: NOON, body: body.into() } }
        };
        let events = move || [numbered(7), crashed(), numbered(9), numbered(10)].map(Followed::Event);
        feed.expect_follow().returning(move |_, _| Ok(stream::iter(events()).boxed()));
        let api = TestApi::start(Ports { feed, ..ports(MockTelemetryStore::new()) });
        let reply = stream_of(&api, &format!("{path}{query}"), &[]).await;
        let text = reply.text();
        let frame = "id: 8\ndata: {\"seq\":8,\"event\":{\"type\":\"page_crashed\"}}\n\n";
        assert!(text.contains(frame) && text.contains("\nid: 10\n\n"), "{query}: {text}");
        assert_eq!((text.matches("id: ").count(), text.matches("data: ").count()), (2, 1), "{query}: {text}");
    }
    let api = TestApi::start(ports(MockTelemetryStore::new()));
    let refused = api.get(&format!("{path}?type=Page")).await;
    let rule = "invalid_format: type: must be the name of a type, such as page_crashed";
    assert_eq!((refused.status, refused.details()), (400, vec![rule.to_owned()]));
}

#[tokio::test]
async fn a_call_on_a_session_is_recorded_as_its_event() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut recorder = MockRecorder::new();
    recorder.expect_captures().returning(|session, category| (session, category) == (session_id(1), Category::Control));
    recorder.expect_note().returning(move |session, event| sender.send((session, event)).unwrap());
    let mut ports = ports(MockTelemetryStore::new());
    ports.recorder = Some(recorder);
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let path = format!("/browsers/{}", session_id(1));
    api.request("GET", &path, &[&key, "X-Request-Id: mine"], "").await;
    api.request("GET", "/browsers/nobody", &[&key], "").await;
    let (session, event) = receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(session, session_id(1));
    let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
    let data = json!({ "operation_id": "get_browser", "request_id": "mine", "status": 200, "duration_ms": 0 });
    assert_eq!(body["data"], data);
    assert!(receiver.try_recv().is_err(), "a call on nothing is nobody's event");
}

#[tokio::test]
async fn a_session_record_shows_captured_telemetry_while_any_is_captured() {
    let mut ports = Ports::default();
    let capture = Capture::only([Category::Console, Category::Captcha]);
    ports.sessions.expect_find_in_project().returning(move |_, _, _| {
        Ok(Some(casement_domain::session::Session { telemetry: capture.clone(), ..session(1) }))
    });
    let api = TestApi::start(ports);
    let record = api.get(&format!("/browsers/{}", session_id(1))).await.json();
    let on: Vec<&str> = record["telemetry"]["browser"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, switch)| switch["enabled"] == true)
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!((on, record["telemetry"]["browser"].as_object().unwrap().len()), (vec!["captcha", "console"], 9));
}
