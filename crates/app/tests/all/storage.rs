//! Tests that telemetry is stored within budgets, and not at all on a nearly full disk.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Options, Server, Session, until};
use serde_json::{Value, json};

use super::bad_database::SmallDisk;
use super::host::{metric, sql, uuid};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// A script that logs 128 KiB: lines of 4 KiB.
const FLOOD: &str = "for (let n = 0; n < 32; n++) console.log(String(n).padEnd(4096, 'x'))";
const LINES_OF_FLOOD: u64 = 32;
const FLOODS_OF_MEBIBYTE: usize = 8;

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

/// Makes the session's page log this many MiB. Waits until the server has stored or refused each part, because a busy machine
/// loses lines of larger parts before they reach the server.
fn say(server: &Server, session: &Session, mebibytes: usize) -> anyhow::Result<()> {
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    for _ in 0..mebibytes * FLOODS_OF_MEBIBYTE {
        let before = received(server, session)?;
        cdp.evaluate(&page, FLOOD)?;
        until("the lines are received", TEST_TIMEOUT, || {
            (received(server, session).ok()? >= before + LINES_OF_FLOOD).then_some(())
        })?;
    }
    Ok(())
}

/// Returns the number of the last event of the session's agent that the server has stored or refused.
fn received(server: &Server, session: &Session) -> anyhow::Result<u64> {
    let id = uuid(session.id())?;
    Ok(sql(server, &format!("select coalesce(max(agent_seq), 0) from telemetry_counts where session_id = '{id}'"))?
        .parse()?)
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
        say(&server, &session, 4)?;
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
        ensure!(losses.len() < 20, "told too often: {losses:?}");
        limits.push(losses.last().context("a word")?.0.clone().context("a limit")?);
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

    say(&server, &session, 1)?;
    until("it is told", TEST_TIMEOUT, || {
        let losses = dropped(&server, &session).ok()?;
        losses.iter().any(|(limit, _)| limit.as_deref() == Some("disk")).then_some(())
    })?;
    assert_eq!(stored(&server, &session)?.0, 0);

    fs::remove_file(filler)?;
    until("there is room again", TEST_TIMEOUT, || (readiness().ok()?["status"] == "ok").then_some(()))?;
    say(&server, &session, 1)?;
    until("lines are stored again", TEST_TIMEOUT, || (stored(&server, &session).ok()?.0 == 256).then_some(()))?;
    end(&server, &session)?;
    Ok(())
}

#[test]
fn a_server_killed_on_a_full_disk_starts_again_and_says_that_the_disk_is_full() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    server.stop()?;
    let data_dir = server.data_dir().to_owned();
    let disk = onto_small_disk(&data_dir)?;
    server.restart()?;
    let is_occupied = || data_dir.join("spare-space.2").exists();
    until("space is occupied", TEST_TIMEOUT, || is_occupied().then_some(()))?;
    let filler = disk.fill()?;
    server.kill()?;
    let pids = fs::read_to_string(data_dir.join("postgres/postmaster.pid"))?;
    let database = pids.lines().next().and_then(|pid| pid.parse::<i32>().ok()).context("no process of the database")?;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(database).context("no pid")?,
        rustix::process::Signal::KILL,
    )?;

    server.restart()?;

    let readiness = server.get("/readyz")?.text();
    ensure!(readiness.contains("the disk is nearly full"), "{readiness}");
    ensure!(server.log().contains("the disk is full: starting with space"), "the log says nothing");
    server.get("/browsers")?.expect(200)?;
    fs::remove_file(filler)?;
    until("space is occupied again", TEST_TIMEOUT, || {
        (is_occupied() && data_dir.join("spare-space.1").exists()).then_some(())
    })?;
    server.stop()?;
    drop(disk);
    Ok(())
}

/// Moves a data directory onto a small disk that is mounted in its place.
fn onto_small_disk(data_dir: &Path) -> anyhow::Result<SmallDisk> {
    let aside = data_dir.with_extension("aside");
    fs::rename(data_dir, &aside)?;
    for part in ["spare-space.1", "spare-space.2"] {
        fs::remove_file(aside.join(part)).ok();
    }
    let disk = SmallDisk::mount(data_dir.to_owned())?;
    ensure!(Command::new("cp").arg("--archive").args([&aside.join("."), data_dir]).status()?.success(), "cp");
    Ok(disk)
}
