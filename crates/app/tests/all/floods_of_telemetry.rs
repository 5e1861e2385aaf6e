//! Tests of telemetry with a page that logs more than can be stored, with deleted sessions, and with exceeded memory.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use casement_test_support::program::{Cdp, Options, Server, Session, Shared, flood, until};
use serde_json::{Value, json};

use super::host::{all_of, browser_of, resident, sandbox, server_process, sql, uuid};

const TEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The number of bursts at the full size, and of lines in each.
const BURSTS: u64 = 50;
const LINES: u64 = 20_000;
/// The limits of the additional memory of the server and the agent, and of the stored events, in MiB.
const MAX_MEMORY_MIB: u64 = 64;
const MAX_STORED_MIB: u64 = 512;

fn capturing(server: &Server, category: &str) -> anyhow::Result<Session> {
    let browser: serde_json::Map<String, Value> = ["control", "connection", "system", "captcha", category]
        .map(|name| (name.to_owned(), json!({ "enabled": name == category })))
        .into_iter()
        .collect();
    server.create(&json!({ "headless": true, "timeout_seconds": 600, "telemetry": { "browser": browser } }))
}

/// Returns all events of a category, page by page.
fn events(server: &Server, session: &Session, category: &str) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut query = "since=1h".to_owned();
    loop {
        let path = format!("/browsers/{}/telemetry/events?limit=100&category={category}&{query}", session.id());
        let answer = server.get(&path)?.expect(200)?;
        all.extend(answer.json()?.as_array().context("a list")?.iter().cloned());
        if answer.header("x-has-more") != Some("true") {
            return Ok(all);
        }
        query = format!("offset={}", answer.header("x-next-offset").context("an offset")?);
    }
}

fn agent(server: &Server) -> anyhow::Result<i32> {
    let agents = server.processes().into_iter().filter(|process| {
        let words: Vec<&str> = process.argv.iter().take(2).map(String::as_str).collect();
        words == ["/run/casement/program", "agent"]
    });
    agents.map(|process| process.pid).max().context("no agent runs")
}

#[test]
fn a_million_console_lines_stay_bounded_and_every_lost_one_is_counted() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let session = capturing(&server, "console")?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    let processes = [server_process(&server)?.pid, agent(&server)?];
    let before = processes.map(resident);
    let say = format!("for (let n = 0; n < {LINES}; n++) console.log('line ' + n)");
    let bursts = flood(BURSTS);
    for _ in 0..bursts {
        cdp.evaluate(&page, &say)?;
    }
    // While this page overloads the capture, lines are only counted.
    let (id, mut written) = (uuid(session.id())?, bursts * LINES);
    until("the end is heard", TEST_TIMEOUT, || {
        cdp.evaluate(&page, "console.log('the end')").ok()?;
        written += 1;
        let path = format!("/browsers/{}/telemetry/events?order=desc&limit=1&category=console", session.id());
        let newest = server.get(&path).ok()?.json().ok()?;
        (newest[0]["event"]["data"]["text"] == "the end").then_some(())
    })?;
    let after = processes.map(resident);

    // Each line has a number, and so does each report of lost lines.
    let stored = || -> anyhow::Result<(u64, u64)> {
        let lines = format!("select count(*) from telemetry_events where session_id = '{id}' and category = 'console'");
        let lost = events(&server, &session, "monitor")?;
        let lost = lost.iter().filter(|one| one["event"]["type"] == "telemetry_dropped");
        let counts = lost.map(|one| one["event"]["data"]["count"].as_u64().context("a count"));
        Ok((sql(&server, &lines)?.parse()?, counts.sum::<anyhow::Result<u64>>()?))
    };
    until("every line is stored or counted", TEST_TIMEOUT, || {
        let (lines, lost) = stored().ok()?;
        println!("{lines} of {written} are stored, {lost} are counted as lost");
        (lines + lost == written).then_some(())
    })?;
    let (lines, lost) = stored()?;
    assert!(lines > 10_000 && lost > 0, "{lines} lines are stored, {lost} are lost");
    for one in events(&server, &session, "monitor")? {
        let (data, seq) = (&one["event"]["data"], one["seq"].as_u64().context("a number")?);
        let number = |name: &str| data[name].as_u64().unwrap_or_default();
        assert_eq!((number("last_seq"), number("count")), (seq - 1, seq - number("first_seq")), "{one}");
    }

    for (name, (before, after)) in ["the server", "the agent"].into_iter().zip(before.into_iter().zip(after)) {
        let (before, after) = (before?, after?);
        println!("{name}: {before} MiB before, {after} MiB after");
        assert!(after < before + MAX_MEMORY_MIB, "{name}: {before} MiB before, {after} MiB after");
    }
    let size = "select sum(pg_total_relation_size(relid)) from pg_partition_tree('telemetry_events')";
    let size = sql(&server, size)?.parse::<u64>()? >> 20;
    println!("{lines} lines are stored in {size} MiB, {lost} are lost");
    assert!(size < MAX_STORED_MIB, "{lines} lines are stored in {size} MiB");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

/// Returns the number of stored events of a type, and of events that are counted as lost.
fn stored(server: &Server, session: &Session, kind: &str) -> anyhow::Result<(u64, u64)> {
    let id = uuid(session.id())?;
    let of = |what: &str, kind: &str| {
        sql(
            server,
            &format!(
                "select {what} from telemetry_events where session_id = '{id}' and body::json->>'type' = '{kind}'"
            ),
        )
    };
    let lost = of("coalesce(sum((body::json->'data'->>'count')::bigint), 0)", "telemetry_dropped")?;
    Ok((of("count(*)", kind)?.parse()?, lost.parse()?))
}

const PICTURES: u64 = 100;

#[test]
fn requests_of_a_page_are_stored_even_if_its_session_is_deleted_at_once() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let pictures: String = (0..PICTURES).map(|n| format!("<img src='/picture.svg?{n}'>")).collect();
    pages.put("/pictures", &format!("<!doctype html><link rel=icon href=data:,><body>{pictures}"));
    pages.put_as("/picture.svg", "Content-Type: image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg'/>");
    let session = capturing(server, "network")?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/pictures"))?;
    until("every picture is there", TEST_TIMEOUT, || {
        let whole = "document.readyState === 'complete' && [...document.images].filter(one => one.complete).length";
        (cdp.evaluate(&page, whole).ok()? == json!(PICTURES)).then_some(())
    })?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;

    let answers = until("every answer is stored", TEST_TIMEOUT, || {
        let (answers, _) = stored(server, &session, "network_response").ok()?;
        (answers > PICTURES).then_some(answers)
    })?;
    let (requests, lost) = stored(server, &session, "network_request")?;
    println!("{requests} requests and {answers} answers are stored, {lost} events are lost");
    assert_eq!((requests > PICTURES, lost), (true, 0));
    Ok(())
}

#[test]
fn every_console_line_is_stored_or_counted_if_its_session_is_deleted_meanwhile() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = capturing(server, "console")?;
    let browser = browser_of(server, &session)?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    let mut written = 0;
    for _ in 0..20 {
        cdp.evaluate(&page, "for (let n = 0; n < 100; n++) console.log('line ' + n)")?;
        written += 100;
    }
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;

    until("every line is stored or counted", TEST_TIMEOUT, || {
        let (lines, lost) = stored(server, &session, "console_log").ok()?;
        println!("{lines} of {written} are stored, {lost} are counted as lost");
        (lines + lost >= written).then_some(())
    })?;
    until("nothing is left of the session", TEST_TIMEOUT, || all_of(server, &browser).is_empty().then_some(()))
}

#[test]
fn a_process_killed_for_memory_is_reported_where_the_kernel_logs_it() -> anyhow::Result<()> {
    let server = &Shared::with_small_sessions().server;
    let session = capturing(server, "system")?;
    let place = sandbox(server, &browser_of(server, &session)?);
    let record: Value = serde_json::from_slice(&fs::read(place.join("state.json"))?)?;
    // With a control group the kernel log shows the killed process; without one the agent reports it.
    let known = record["memory"] == "None" || fs::File::open("/dev/kmsg").is_ok();
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    let take = "setTimeout(() => { globalThis.held = []; for (;;) held.push(new Uint8Array(16 << 20).fill(7)) }); 0";
    cdp.evaluate(&page, take)?;
    until("the session has ended", TEST_TIMEOUT, || {
        (server.get(&format!("/browsers/{}", session.id())).ok()?.status == 404).then_some(())
    })?;
    if !known {
        return Ok(());
    }
    let reported = until("it is told", TEST_TIMEOUT, || {
        let reported = events(server, &session, "system").ok()?;
        reported.into_iter().find(|one| one["event"]["type"] == "system_oom_kill")
    })?;
    let data = &reported["event"]["data"];
    assert_eq!((&data["constraint"], &reported["event"]["source"]["kind"]), (&json!("memcg"), &json!("local_process")));
    let numbers = [&data["pid"], &data["rss_kb"]].map(|value| value.as_u64().unwrap_or_default());
    assert!(numbers[0] > 1 && numbers[1] > 10_000, "{reported}");
    assert!(data["process_name"].as_str().is_some_and(|name| name.contains("chrom")), "{reported}");
    Ok(())
}
