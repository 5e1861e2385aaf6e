//! Tests of what operators see of a server: its log, and what it reports to systemd.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Options, Server};
use serde_json::{Value, json};

/// Returns the lines of a log in JSON.
fn lines(log: &str) -> anyhow::Result<Vec<Value>> {
    log.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

#[test]
fn a_day_without_failures_warns_of_nothing_and_each_end_of_a_session_is_logged_once() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&socket)?;
    systemd.set_read_timeout(Some(Duration::from_secs(60)))?;
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let variables = vec![
        variable("NOTIFY_SOCKET", &socket.display().to_string()),
        variable("CASEMENT_LOG_FORMAT", "json"),
        variable("CASEMENT_LISTN", "127.0.0.1:1"),
    ];
    let mut server = Server::start(Options { variables, ..Options::default() })?;
    let mut state = [0; 256];
    let mut reported = || {
        let length = systemd.recv(&mut state)?;
        anyhow::Ok(String::from_utf8(state[..length].to_vec())?)
    };
    let ready = reported()?;
    ensure!(ready.starts_with("READY=1\nSTATUS=ready at http://"), "{ready}");

    let named = server.create(&json!({ "headless": true, "name": "one of the day" }))?;
    let mut client = Cdp::connect(named.text("cdp_ws_url"))?;
    client.page()?;
    server.delete(&format!("/browsers/{}", named.id()))?.expect(204)?;
    client.until_closed()?;
    server.post("/browser_pools", &json!({ "name": "daily", "size": 1, "headless": true }))?.expect(201)?;
    let leased = server.acquire("daily")?;
    server.release("daily", &leased)?;
    let left = server.headless()?;
    ensure!(server.stop()?.success(), "a normal stop");
    ensure!(reported()?.starts_with("STOPPING=1\n"), "systemd learns of the stop");

    let log = server.log();
    let (reports, log): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| line.starts_with("casement: "));
    ensure!(
        reports == ["casement: no setting has the variable CASEMENT_LISTN; did you mean CASEMENT_LISTEN?"],
        "{reports:?}"
    );
    let lines = lines(&log.join("\n"))?;
    let is_warning = |line: &&Value| line["level"] == "WARN" || line["level"] == "ERROR";
    // On a busy machine the database may answer late, which is a failure.
    let is_late =
        |line: &&Value| line["error"].as_str().is_some_and(|error| error.contains("the store is not available"));
    let warnings: Vec<&Value> = lines.iter().filter(is_warning).filter(|line| !is_late(line)).collect();
    ensure!(warnings.is_empty(), "{warnings:#?}");
    let ends: Vec<&Value> = lines.iter().filter(|line| line["message"] == "a session ended").collect();
    ensure!(ends.len() == 2, "{} goes on: {ends:#?}", left.id());
    let end = ends.iter().find(|end| end["session"] == named.id()).context("the end of the session with a name")?;
    ensure!(end["name"] == "one of the day" && end["reason"] == "deleted", "{end}");
    ensure!(end["project"].is_string() && end["lasted_seconds"].is_u64(), "{end}");
    ensure!(end["spans"][0]["request_id"].is_string(), "the request that ended it: {end}");
    let end = ends.iter().find(|end| end["session"] == leased.id()).context("the end of the leased session")?;
    ensure!(end["reason"] == "released", "{end}");
    server.restart()
}
