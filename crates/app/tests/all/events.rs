//! Tests of the telemetry events of a session: they are numbered, paged, followed, and never lost without a report.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Answer;
use casement_test_support::program::{Cdp, Clients, Options, Pages, Server, Session, Shared, until};
use serde_json::{Value, json};

const TEST_TIMEOUT: Duration = Duration::from_secs(180);

fn capturing(server: &Server, categories: &[&str]) -> anyhow::Result<Session> {
    let on = ["control", "connection", "system", "captcha"]
        .map(|name| (name, json!({ "enabled": categories.contains(&name) })));
    let mut browser: serde_json::Map<String, Value> = on.map(|(name, on)| (name.to_owned(), on)).into_iter().collect();
    browser.extend(categories.iter().map(|name| ((*name).to_owned(), json!({ "enabled": true }))));
    let telemetry = json!({ "browser": browser });
    server.create(&json!({ "headless": true, "timeout_seconds": 600, "telemetry": telemetry }))
}

fn page(server: &Server, session: &Session, query: &str) -> anyhow::Result<Answer> {
    server.get(&format!("/browsers/{}/telemetry/events?{query}", session.id()))
}

/// Returns all events of the last hour, page by page.
fn events(server: &Server, session: &Session) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut query = "since=1h&limit=100".to_owned();
    loop {
        let answer = page(server, session, &query)?.expect(200)?;
        all.extend(answer.json()?.as_array().context("a list")?.iter().cloned());
        if answer.header("x-has-more") != Some("true") {
            return Ok(all);
        }
        query = format!("limit=100&offset={}", answer.header("x-next-offset").context("an offset")?);
    }
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().map(|one| &one["event"]).filter(|event| event["type"] == kind).collect()
}

/// Asserts that every number from 1 on belongs to an event or to one that was reported as dropped.
fn assert_without_a_gap(events: &[Value]) -> anyhow::Result<()> {
    let mut next = 1;
    for one in events {
        let seq = one["seq"].as_u64().context("a number")?;
        if one["event"]["type"] == "telemetry_dropped" {
            let data = &one["event"]["data"];
            assert_eq!((data["first_seq"].as_u64(), data["last_seq"].as_u64()), (Some(next), Some(seq - 1)));
        } else {
            assert_eq!(seq, next, "{one}");
        }
        next = seq + 1;
    }
    Ok(())
}

#[test]
fn calls_and_connections_are_events_that_can_be_read_after_the_session_ended() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = capturing(server, &["control", "connection"])?;
    let path = format!("/browsers/{}", session.id());
    server.post(&format!("{path}/computer/screenshot"), &json!({}))?.expect(200)?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let tab = client.page()?;
    client.evaluate(&tab, "1 + 1")?;
    drop(client);
    until("the end of the connection is told", TEST_TIMEOUT, || {
        let found = events(server, &session).ok()?;
        (!of_type(&found, "cdp_disconnect").is_empty()).then_some(())
    })?;
    server.delete(&path)?.expect(204)?;
    server.get(&path)?.expect(404)?;

    let found = events(server, &session)?;
    assert_without_a_gap(&found)?;
    let call = of_type(&found, "api_call")[0];
    assert_eq!((&call["data"]["operation_id"], &call["data"]["status"]), (&json!("capture_screenshot"), &json!(200)));
    assert_eq!(call["source"], json!({ "kind": "kernel_api" }));
    let connect = of_type(&found, "cdp_connect");
    assert_eq!(connect.len(), 1);
    let end = &of_type(&found, "cdp_disconnect")[0]["data"];
    assert_eq!(end["reason"], "client_close");
    let id = &connect[0]["data"]["connection_id"];
    assert!(id.is_string() && *id == end["connection_id"], "{end}");
    assert!(end["message_count"].as_u64() >= Some(4), "{end}");
    Ok(())
}

/// Returns the connection events of a session as pairs of source and reason. A connect has no reason.
fn connections(events: &[Value]) -> Vec<(String, Option<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = events.iter().map(|one| &one["event"]).filter(|event| event["category"] == "connection");
    all.map(|event| {
        let reason = (event["type"] == "cdp_disconnect").then(|| text(&event["data"]["reason"]));
        (text(&event["source"]["event"]), reason)
    })
    .collect()
}

/// Opens a BiDi connection with a session; that needs four messages.
fn bidi(session: &Session) -> anyhow::Result<Cdp> {
    let mut client = Cdp::connect(session.text("webdriver_ws_url"))?;
    client.call("session.new", &json!({ "capabilities": {} }))?;
    client.call("session.status", &json!({}))?;
    Ok(client)
}

#[test]
fn webdriver_connections_are_events_with_a_source_and_classic_commands_are_calls() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let (webdriver, closed) = ("webdriver".to_owned(), Some("client_close".to_owned()));
    let session = capturing(server, &["control", "connection"])?;
    let script = "crates/app/tests/scripts/puppeteer_drive.mjs";
    let arguments = [session.text("webdriver_ws_url"), "webDriverBiDi", &pages.url("")];
    Clients::find()?.run(server, script, &arguments)?;
    // The next client connects only after the disconnect of this one is reported.
    until("the first connection has ended", TEST_TIMEOUT, || {
        let found = events(server, &session).ok()?;
        (of_type(&found, "cdp_disconnect").len() == 1).then_some(())
    })?;
    let wd = format!("{}/wd", session.text("base_url"));
    let arguments = [&wd, session.token(), &pages.url("")];
    Clients::find()?.run(server, "crates/app/tests/scripts/selenium_drive.py", &arguments)?;
    // Puppeteer's BiDi connection, then Selenium's classic session and its BiDi socket.
    let expected = 3;
    let found = until("every connection has begun and ended", TEST_TIMEOUT, || {
        let found = events(server, &session).ok()?;
        (of_type(&found, "cdp_disconnect").len() == expected).then_some(found)
    })?;
    assert_without_a_gap(&found)?;
    let listed = connections(&found);
    assert_eq!(listed[..2], [(webdriver.clone(), None), (webdriver.clone(), closed.clone())]);
    assert_eq!(listed.iter().filter(|one| **one == (webdriver.clone(), None)).count(), expected, "{listed:?}");
    assert_eq!(
        listed.iter().filter(|one| **one == (webdriver.clone(), closed.clone())).count(),
        expected,
        "{listed:?}"
    );
    for end in of_type(&found, "cdp_disconnect") {
        let data = &end["data"];
        assert!(data["duration_ms"].as_u64() > Some(0) && data["message_count"].as_u64() > Some(4), "{end}");
    }
    let calls = of_type(&found, "api_call");
    assert!(calls.len() > 10, "{calls:?}");
    // The navigation to an unknown name is the only command that fails.
    let failed: Vec<_> = calls.iter().map(|call| &call["data"]["status"]).filter(|&status| *status != 200).collect();
    assert_eq!(failed, [&json!(500)], "{calls:?}");
    for call in calls {
        assert_eq!(
            (&call["category"], &call["source"]),
            (&json!("control"), &json!({ "kind": "kernel_api" })),
            "{call}"
        );
        assert_eq!(call["data"]["operation_id"], "webdriver_command", "{call}");
        assert!(call["data"]["request_id"].is_string() && call["data"]["duration_ms"].is_u64(), "{call}");
    }

    let mut client = bidi(&session)?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    assert_eq!(client.until_closed()?, Some((4000, "deleted".to_owned())));
    let end = until("its end is told", TEST_TIMEOUT, || {
        let found = events(server, &session).ok()?;
        let ends = of_type(&found, "cdp_disconnect");
        ends.last().filter(|_| ends.len() > expected).map(|end| end["data"].clone())
    })?;
    assert_eq!((&end["reason"], &end["message_count"]), (&json!("context_cancelled"), &json!(4)));
    Ok(())
}

#[test]
fn every_connection_to_a_crashed_browser_has_an_event_of_its_loss() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = capturing(server, &["connection"])?;
    let _bidi = bidi(&session)?;
    let wd = format!("/vm/{}/wd/session?jwt={}", session.id(), session.token());
    server.post(&wd, &json!({ "capabilities": {} }))?.expect(200)?;
    // The response never arrives.
    drop(Cdp::connect(session.text("cdp_ws_url"))?.call("Browser.crash", &json!({})));
    let found = until("every end is told", TEST_TIMEOUT, || {
        let found = events(server, &session).ok()?;
        (of_type(&found, "cdp_disconnect").len() == 3).then_some(found)
    })?;
    assert_without_a_gap(&found)?;
    let mut listed = connections(&found);
    listed.sort();
    let lost = Some("upstream_error".to_owned());
    let each = |source: &str| [(source.to_owned(), None), (source.to_owned(), lost.clone())];
    let [cdp, webdriver] = ["cdp", "webdriver"].map(each);
    let all = [&cdp[0], &cdp[1], &webdriver[0], &webdriver[0], &webdriver[1], &webdriver[1]];
    assert_eq!(listed.iter().collect::<Vec<_>>(), all);
    Ok(())
}

#[test]
fn a_capture_change_applies_at_once_and_off_captures_nothing() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = server.headless()?;
    assert_eq!(session.0["telemetry"], Value::Null);
    let path = format!("/browsers/{}", session.id());
    let change =
        |telemetry: Value| server.send("PATCH", &path, Some(&json!({ "telemetry": telemetry })))?.expect(200)?.json();
    let on = change(json!({ "browser": { "console": { "enabled": true }, "control": { "enabled": false } } }))?;
    let enabled = |record: &Value| -> BTreeSet<String> {
        let all = record["telemetry"]["browser"].as_object().cloned().unwrap_or_default();
        all.into_iter().filter(|(_, switch)| switch["enabled"] == true).map(|(name, _)| name).collect()
    };
    assert_eq!(enabled(&on), ["captcha", "connection", "console", "system"].map(str::to_owned).into());
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let tab = client.page()?;
    client.evaluate(&tab, "console.log('heard')")?;
    until("the console is heard", TEST_TIMEOUT, || {
        let found = events(server, &session).ok()?;
        of_type(&found, "console_log").iter().any(|event| event["data"]["text"] == "heard").then_some(())
    })?;
    assert_eq!(change(json!({ "enabled": false }))?["telemetry"], Value::Null);
    client.evaluate(&tab, "console.log('not heard')")?;
    change(json!({ "enabled": true, "browser": { "console": { "enabled": true } } }))?;
    client.evaluate(&tab, "console.log('heard again')")?;
    until("the console is heard again", TEST_TIMEOUT, || {
        let found = events(server, &session).ok()?;
        of_type(&found, "console_log").iter().any(|event| event["data"]["text"] == "heard again").then_some(())
    })?;
    let found = events(server, &session)?;
    assert_without_a_gap(&found)?;
    assert!(of_type(&found, "console_log").iter().all(|event| event["data"]["text"] != "not heard"), "{found:?}");
    server.delete(&path)?.expect(204).map(drop)
}

#[test]
fn an_offset_is_valid_for_its_own_query_only() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let (session, other) = (capturing(server, &["control"])?, capturing(server, &["control"])?);
    for session in [&session, &other] {
        for _ in 0..6 {
            server.get(&format!("/browsers/{}", session.id()))?.expect(200)?;
        }
        until("the calls are stored", TEST_TIMEOUT, || (events(server, session).ok()?.len() == 6).then_some(()))?;
    }
    let offset = |query: &str| -> anyhow::Result<u64> {
        Ok(page(server, &session, query)?.expect(200)?.header("x-next-offset").context("an offset")?.parse()?)
    };
    let (up, down) = (offset("limit=2&since=1h")?, offset("limit=2&order=desc")?);
    let seqs = |query: &str| -> anyhow::Result<Vec<u64>> {
        let found = page(server, &session, query)?.expect(200)?.json()?;
        Ok(found.as_array().context("a list")?.iter().filter_map(|one| one["seq"].as_u64()).collect())
    };
    assert_eq!(seqs(&format!("limit=2&offset={up}"))?, [3, 4]);
    assert_eq!(seqs(&format!("limit=3&order=desc&offset={down}"))?, [4, 3, 2]);
    assert_eq!(seqs("since=1h&category=connection")?, Vec::<u64>::new());
    for (of, query) in [
        (&other, format!("offset={up}")),
        (&session, format!("offset={}", up + 1)),
        (&session, format!("offset={up}&order=desc")),
        (&session, format!("offset={up}&category=control")),
        (&session, "offset=7".to_owned()),
    ] {
        let refused = page(server, of, &query)?.expect(400)?;
        assert_eq!(refused.json()?["code"], "invalid_cursor", "{query}");
    }
    for session in [&session, &other] {
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}

/// A reader of the stream of events.
struct Follower(BufReader<TcpStream>);

impl Follower {
    fn open(server: &Server, session: &Session, query: &str, last: Option<u64>) -> anyhow::Result<Self> {
        let mut connection = TcpStream::connect(server.address())?;
        connection.set_read_timeout(Some(TEST_TIMEOUT))?;
        let resume = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
        let (id, key) = (session.id(), server.key());
        write!(
            connection,
            "GET /browsers/{id}/telemetry/stream{query} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n{resume}\r\n",
            server.address()
        )?;
        let mut reader = BufReader::new(connection);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(reader.read_line(&mut head)? > 0, "no answer: {head}");
        }
        ensure!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        Ok(Self(reader))
    }

    /// Returns the next event, or `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<Value>> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Ok(Some(serde_json::from_str(data)?));
            }
        }
    }
}

#[test]
fn a_stream_can_be_resumed_without_a_gap_and_ends_with_its_session() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = capturing(server, &["control"])?;
    let path = format!("/browsers/{}", session.id());
    let call = || server.send("PATCH", &path, Some(&json!({})))?.expect(200).map(drop);
    let mut live = Follower::open(server, &session, "", None)?;
    // The call that opened the stream is the first event.
    let first = live.next()?.context("an event")?;
    assert_eq!(first["event"]["data"]["operation_id"], "stream_telemetry");
    call()?;
    let second = live.next()?.context("an event")?;
    assert_eq!((second["seq"].as_u64(), &second["event"]["data"]["operation_id"]), (Some(2), &json!("update_browser")));
    drop(live);
    call()?;
    let mut resumed = Follower::open(server, &session, "", Some(1))?;
    let mut whole = Follower::open(server, &session, "?replay=all", None)?;
    let seqs = |follower: &mut Follower, count| -> anyhow::Result<Vec<u64>> {
        (0..count).map(|_| follower.next()?.context("an event")?["seq"].as_u64().context("a number")).collect()
    };
    assert_eq!(seqs(&mut resumed, 3)?, [2, 3, 4]);
    assert_eq!(seqs(&mut whole, 3)?, [1, 2, 3]);
    server.delete(&path)?.expect(204)?;
    until("both streams have ended", TEST_TIMEOUT, || resumed.next().ok()?.is_none().then_some(()))?;
    until("both streams have ended", TEST_TIMEOUT, || whole.next().ok()?.is_none().then_some(()))?;
    let gone = server.get(&format!("{path}/telemetry/stream"))?;
    assert_eq!(gone.status, 404);
    Ok(())
}

#[test]
fn events_have_no_gap_after_the_server_is_killed_during_a_burst() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options::reaching(&pages))?;
    let session = capturing(&server, &["console"])?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let tab = client.page()?;
    let burst = "globalThis.n = 0; globalThis.dones = 0; const timer = setInterval(() => {
        for (let i = 0; i < 50; i++) console.log('line ' + n++);
        if (n >= 5000) clearInterval(timer); }, 10); 0";
    client.evaluate(&tab, burst)?;
    until("some lines are stored", TEST_TIMEOUT, || (events(&server, &session).ok()?.len() > 50).then_some(()))?;
    server.kill()?;
    server.restart()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let tab = client.page()?;
    let mut dones = 0;
    until("a last line is stored", Duration::from_secs(180), || {
        // While this page overloads the capture, lines are only counted.
        let done = "if (n >= 5000) { dones++; console.log('done') } dones";
        dones = client.evaluate(&tab, done).ok()?.as_u64()?;
        let newest = page(&server, &session, "order=desc&limit=1").ok()?.json().ok()?;
        (newest[0]["event"]["data"]["text"] == "done").then_some(())
    })?;
    let found = until("every line is stored or counted", TEST_TIMEOUT, || {
        let found = events(&server, &session).ok()?;
        let listed = found.iter().map(|one| match one["event"]["data"]["count"].as_u64() {
            Some(lost) => lost,
            None => u64::from(one["event"]["type"] == "console_log"),
        });
        (listed.sum::<u64>() == 5000 + dones).then_some(found)
    })?;
    assert_without_a_gap(&found)?;
    let lines = of_type(&found, "console_log");
    let texts = || lines.iter().filter_map(|event| event["data"]["text"].as_str()).filter(|text| *text != "done");
    assert_eq!(texts().collect::<BTreeSet<&str>>().len(), texts().count(), "each line once");
    Ok(())
}

#[test]
fn the_telemetry_example_reads_and_follows_a_session() -> anyhow::Result<()> {
    let run = Clients::find()?.run(&Shared::get().server, "docs/examples/telemetry.py", &[])?;
    let last = run.stdout.lines().last().unwrap_or_default();
    assert!(last.contains("events: [") && last.contains("'api_call', 'console_log'"), "{}", run.stdout);
    Ok(())
}
