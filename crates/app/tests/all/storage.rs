//! Tests that telemetry is stored within budgets, and not at all on a nearly full disk.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Options, Server, Session, until};
use serde_json::{Value, json};

use super::bad_database::SmallDisk;
use super::host::{metric, sql, uuid};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// A script that logs a MiB: 256 lines of 4 KiB.
const FLOOD: &str = "for (let n = 0; n < 256; n++) console.log(String(n).padEnd(4096, 'x'))";

fn options(flags: &[&str]) -> Options {
    Options { flags: flags.iter().map(|&flag| flag.to_owned()).collect(), ..Options::default() }
}

fn capturing(server: &Server) -> anyhow::Result<Session> {
    let telemetry = json!({ "browser": { "console": { "enabled": true } } });
    server.create(&json!({ "headless": true, "timeout_seconds": 600, "telemetry": telemetry }))
}

/// Returns the reported losses, as limit and count.
fn dropped(server: &Server, session: &Session) -> anyhow::Result<Vec<(Option<String>, u64)>> {
    let path = format!("/browsers/{}/telemetry/events?since=1h&category=monitor&limit=100", session.id());
    let events = server.get(&path)?.expect(200)?.json()?;
    let events = events.as_array().context("a list")?.clone();
    let dropped = events.iter().map(|one| &one["event"]).filter(|event| event["type"] == "telemetry_dropped");
    let limit = |data: &Value| data["limit"].as_str().map(str::to_owned);
    Ok(dropped.map(|event| (limit(&event["data"]), event["data"]["count"].as_u64().unwrap_or_default())).collect())
}

fn stored(server: &Server, session: &Session) -> anyhow::Result<(u64, u64)> {
    let id = uuid(session.id())?;
    let of = |what: &str| sql(server, &format!("select {what} from telemetry_events where session_id = '{id}'"));
    Ok((
        of("count(*) filter (where category = 'console')")?.parse()?,
        of("coalesce(sum(octet_length(body)), 0)")?.parse()?,
    ))
}

/// Makes the session's page log this many MiB.
fn say(session: &Session, mebibytes: usize) -> anyhow::Result<()> {
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    for _ in 0..mebibytes {
        cdp.evaluate(&page, FLOOD)?;
    }
    Ok(())
}

fn end(server: &Server, session: &Session) -> anyhow::Result<()> {
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn telemetry_is_stored_within_its_budgets_and_the_rest_is_counted() -> anyhow::Result<()> {
    let server = Server::start(options(&["--session-storage", "1", "--project-storage", "2"]))?;
    let (mut all, mut limits) = (0, Vec::new());
    for n in 0..3 {
        let session = capturing(&server)?;
        say(&session, 4)?;
        end(&server, &session)?;
        let mut seen = (0, 0);
        let counted = until("every line is stored or counted", TEST_TIMEOUT, || {
            let (lines, _) = stored(&server, &session).ok()?;
            let lost: u64 = dropped(&server, &session).ok()?.iter().map(|(_, count)| count).sum();
            seen = (lines, lost);
            (lines + lost >= 1024).then_some(())
        });
        let (lines, lost) = seen;
        counted.with_context(|| format!("session {n}: {lines} lines are stored, {lost} are counted as lost"))?;
        let losses = dropped(&server, &session)?;
        println!("session {n}: {lines} lines are stored, {lost} are lost: {losses:?}");
        // A busy machine loses lines before they reach the server; those are counted without a limit.
        let limited: Vec<&str> = losses.iter().filter_map(|(limit, _)| limit.as_deref()).collect();
        ensure!(limited.len() < 20, "told too often: {losses:?}");
        limits.push((*limited.last().context("a limit")?).to_owned());
        let (_, bytes) = stored(&server, &session)?;
        ensure!(bytes < (1 << 20) + 4096, "session {n}: {bytes}");
        all += bytes;
    }
    assert_eq!(limits, ["session", "session", "project"]);
    ensure!(all < (2 << 20) + 3 * 4096, "{all}");
    ensure!(server.log().contains("the session's storage is used up"), "the log says nothing");
    let limited = metric(&server, "casement_telemetry_limited_total{limit=\"session\"}")?;
    ensure!(limited.is_some_and(|count| count > 0.0), "{limited:?}");
    Ok(())
}

#[test]
fn on_a_nearly_full_disk_telemetry_is_only_counted_and_readiness_reports_it() -> anyhow::Result<()> {
    let server = Server::start(options(&[]))?;
    let readiness = || -> anyhow::Result<Value> { server.get("/readyz")?.expect(200)?.json() };
    assert_eq!(readiness()?, json!({ "status": "ok" }));
    let session = capturing(&server)?;
    let disk = SmallDisk::mount(server.data_dir().join("blobs"))?;
    let filler = disk.fill()?;
    until("it is said", TEST_TIMEOUT, || (readiness().ok()?["status"] == "degraded").then_some(()))?;
    let reasons = readiness()?["detail"].as_str().unwrap_or_default().to_owned();
    ensure!(reasons.contains("the disk is nearly full"), "{reasons}");
    ensure!(server.get("/metrics")?.text().contains("casement_disk_low 1"), "the metrics do not say so");

    say(&session, 1)?;
    until("it is told", TEST_TIMEOUT, || {
        let losses = dropped(&server, &session).ok()?;
        losses.iter().any(|(limit, _)| limit.as_deref() == Some("disk")).then_some(())
    })?;
    assert_eq!(stored(&server, &session)?.0, 0);

    fs::remove_file(filler)?;
    until("there is room again", TEST_TIMEOUT, || (readiness().ok()?["status"] == "ok").then_some(()))?;
    say(&session, 1)?;
    // A busy machine loses lines before they reach the server; those are counted without a limit.
    until("lines are stored again", TEST_TIMEOUT, || {
        let (lines, _) = stored(&server, &session).ok()?;
        let losses = dropped(&server, &session).ok()?;
        let lost: u64 = losses.iter().filter(|(limit, _)| limit.is_none()).map(|(_, count)| count).sum();
        (lines > 0 && lines + lost >= 256).then_some(())
    })?;
    end(&server, &session)?;
    Ok(())
}
