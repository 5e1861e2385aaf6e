//! Tests with two servers on one database: a drain ordered through the other one, a server that was away for so long that
//! it was lost, and returns, and the limits of their sessions.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Options, Server, Session, until};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::host::{end_reason, sandboxes, server_process, until_ended_well};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The time until a silent node is lost, with its discovery on a busy machine.
const LOSS_TIMEOUT: Duration = Duration::from_secs(120);

fn id(server: &Server) -> anyhow::Result<String> {
    Ok(fs::read_to_string(server.data_dir().join("node-id"))?.trim().to_owned())
}

/// Returns the record of `node`, as `server` shows it.
fn node(server: &Server, node: &str) -> anyhow::Result<Value> {
    server.get(&format!("/nodes/{node}"))?.expect(200)?.json()
}

fn until_state(server: &Server, id: &str, state: &str) -> anyhow::Result<Value> {
    let shown = || node(server, id).ok().filter(|found| found["state"] == state);
    until(&format!("the node is {state}"), LOSS_TIMEOUT, shown)
}

fn status(server: &Server, path: &str) -> anyhow::Result<u16> {
    Ok(Request::new("GET", path).send(server.address())?.status)
}

fn delete(server: &Server, session: &Session) -> anyhow::Result<()> {
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn a_node_that_another_one_drains_keeps_its_sessions_and_serves_again() -> anyhow::Result<()> {
    let one = Server::start(Options::default())?;
    let other = one.another(Options { spares: 1, ..Options::default() })?;
    // The first server has the file with the key of the first start.
    let started = other.output_lines().join("\n");
    ensure!(started.contains("made by `casement keys create --data-dir"), "{started}");
    let drained = id(&other)?;
    let hosts = one.get("/nodes")?.expect(200)?.json()?;
    assert_eq!(hosts.as_array().map(Vec::len), Some(2), "{hosts}");
    let session = other.headless()?;

    one.post(&format!("/nodes/{drained}/drain"), &json!({ "deadline_seconds": 3600 }))?.expect(200)?;
    let shown = until_state(&one, &drained, "draining")?;
    assert!(shown["drain_ends_at"].is_string() && shown["sessions"] == 1, "{shown}");
    until("the drained server is not ready", TEST_TIMEOUT, || (status(&other, "/readyz").ok()? == 503).then_some(()))?;
    assert_eq!((status(&other, "/healthz")?, status(&one, "/readyz")?), (200, 200));
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42, "the session lives on");
    until("the spares end", TEST_TIMEOUT, || (sandboxes(&other).ok()?.len() == 1).then_some(()))?;

    drop(client);
    delete(&other, &session)?;
    until_state(&one, &drained, "drained")?;
    one.post(&format!("/nodes/{drained}/resume"), &json!({}))?.expect(200)?;
    until("the server is ready again", TEST_TIMEOUT, || (status(&other, "/readyz").ok()? == 200).then_some(()))?;
    delete(&other, &other.headless()?)
}

#[test]
fn a_drain_ends_sessions_at_its_deadline_and_at_sigterm_the_server_ends_with_it() -> anyhow::Result<()> {
    let one = Server::start(Options::default())?;
    let flags = ["--drain-on-term", "--drain-deadline", "2"].map(str::to_owned);
    let mut other = one.another(Options { flags: flags.into(), ..Options::default() })?;
    let session = other.headless()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let waited = other.command(&["drain", "--wait", "--deadline", "1"]).output()?;
    assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
    assert_eq!(client.until_closed()?, Some((4010, "node_drained".to_owned())));
    assert_eq!(end_reason(&one, session.id())?, "node_drained");
    assert_eq!(node(&one, &id(&other)?)?["state"], "drained");

    other.stop()?;
    other.restart()?;
    assert_eq!(node(&one, &id(&other)?)?["state"], "serving", "a restart serves again");
    let with_profile = json!({ "headless": true, "profile": { "name": "saved", "save_changes": true } });
    one.post("/profiles", &json!({ "name": "saved" }))?.expect(201)?;
    let session = other.create(&with_profile)?;
    let cookie = json!({ "name": "a", "value": "b", "domain": "casement.test", "path": "/", "expires": 4e9 });
    Cdp::connect(session.text("cdp_ws_url"))?.call("Storage.setCookies", &json!({ "cookies": [cookie] }))?;
    let process = server_process(&other)?;
    other.signal(&process, Signal::TERM)?;
    until_ended_well(&mut other, &process)?;
    assert_eq!(end_reason(&one, session.id())?, "node_drained");
    assert_eq!(sandboxes(&other)?, Vec::<String>::new());
    let again = one.create(&with_profile)?;
    let stored = Cdp::connect(again.text("cdp_ws_url"))?.call("Storage.getCookies", &json!({}))?;
    assert_eq!(stored["cookies"][0]["value"], "b", "the profile was saved before the server ended: {stored}");
    Ok(())
}

#[test]
fn a_node_that_was_away_ends_what_others_have_ended_and_serves_again() -> anyhow::Result<()> {
    let one = Server::start(Options::default())?;
    let other = one.another(Options::default())?;
    let lost = id(&other)?;
    let before = node(&one, &lost)?["epoch"].as_i64().context("no epoch")?;
    let session = other.headless()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let process = server_process(&other)?;
    other.signal(&process, Signal::STOP)?;
    until("the session ends with its node", LOSS_TIMEOUT, || {
        (end_reason(&one, session.id()).ok()? == "node_lost").then_some(())
    })?;
    let shown = node(&one, &lost)?;
    assert_eq!((&shown["state"], &shown["sessions"]), (&json!("lost"), &json!(0)), "{shown}");
    let refused = one.post(&format!("/nodes/{lost}/drain"), &json!({}))?;
    assert_eq!((refused.status, &refused.json()?["code"]), (409, &json!("invalid_state")));
    assert_eq!(sandboxes(&other)?.len(), 1, "only the node itself ends its sandboxes");

    other.signal(&process, Signal::CONT)?;
    assert_eq!(client.until_closed()?, Some((4002, "crashed".to_owned())));
    let shown = until_state(&one, &lost, "serving")?;
    assert!(shown["epoch"].as_i64().context("no epoch")? > before + 1, "{shown}");
    until("the browser of the lost session ends", TEST_TIMEOUT, || sandboxes(&other).ok()?.is_empty().then_some(()))?;
    let gone = other.get(&format!("/browsers/{}", session.id()))?;
    assert_eq!(gone.status, 404, "{}", gone.text());
    let again = other.headless()?;
    let mut client = Cdp::connect(again.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    delete(&other, &again)
}

/// The callers that want a session at the same time.
const CALLERS: usize = 8;

/// Returns the options of a node that others reach and that has at most one session.
fn with_one_place() -> Options {
    let flags = ["--cluster-listen", "127.0.0.1:0", "--max-sessions", "1"].map(str::to_owned);
    Options { flags: flags.into(), ..Options::default() }
}

/// Returns the numbers of sessions of these servers.
fn sessions_of(servers: [&Server; 2]) -> anyhow::Result<[Value; 2]> {
    let [one, other] = servers.map(|server| Ok::<_, anyhow::Error>(node(server, &id(server)?)?["sessions"].clone()));
    Ok([one?, other?])
}

#[test]
fn two_nodes_with_one_place_each_have_one_session_each_and_refuse_more() -> anyhow::Result<()> {
    let one = Server::start(with_one_place())?;
    let other = one.another(with_one_place())?;
    let (first, second) = (one.headless()?, one.headless()?);
    assert_eq!(sessions_of([&one, &other])?, [1, 1], "the second one was made by the other node");
    let mut client = Cdp::connect(second.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    for server in [&one, &other] {
        let refused = server.post("/browsers", &json!({ "headless": true }))?;
        let expected = json!({
            "code": "limit_exceeded",
            "message": "max_sessions of all nodes together is 2, 2 in use, 1 more requested",
        });
        assert_eq!((refused.status, refused.json()?), (429, expected));
    }
    delete(&one, &second)?;
    let third = one.headless()?;
    assert_eq!(sessions_of([&one, &other])?, [1, 1]);
    for session in [&first, &third] {
        delete(&other, session)?;
    }

    let at_once = thread::scope(|scope| {
        let create = |server: &Server| Ok(server.post("/browsers", &json!({ "headless": true }))?.status);
        let servers = [&one, &other].into_iter().cycle().take(CALLERS);
        let callers: Vec<_> = servers.map(|server| scope.spawn(move || create(server))).collect();
        let joined = callers.into_iter().map(|caller| caller.join().expect("no panic"));
        joined.collect::<anyhow::Result<Vec<u16>>>()
    })?;
    let count = |status| at_once.iter().filter(|answered| **answered == status).count();
    assert_eq!((count(201), count(429)), (2, CALLERS - 2), "{at_once:?}");
    assert_eq!(sessions_of([&one, &other])?, [1, 1]);
    Ok(())
}
