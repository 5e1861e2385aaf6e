//! Tests of the start and the stop of the program, on which the harness relies.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Options, Pages, Server, Shared, until};
use rustix::process::Signal;
use serde_json::json;

use super::host::{all_of, browser_of};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn sessions_and_their_addresses_outlive_a_server_that_is_stopped() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options::reaching(&pages))?;
    let session = server.headless()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.open(&page, &pages.url("/form"))?;
    let address = server.address();

    assert!(server.stop()?.success(), "a server that is told to stop ends well");
    assert_eq!(client.until_closed()?, Some((1012, "drain".to_owned())));
    server.restart()?;

    assert_eq!(server.address(), address);
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "document.title")?, "A form");
    // `Drop` asserts that nothing is left after the server's end.
    Ok(())
}

#[test]
fn a_session_and_its_page_outlive_a_server_that_is_killed() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let mut server = Server::start(Options::reaching(&pages))?;
    let session = server.headless()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.open(&page, &pages.url("/form"))?;

    server.kill()?;
    server.restart()?;

    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "document.title")?, "A form");
    assert_eq!(server.get(&format!("/browsers/{}", session.id()))?.json()?["cdp_ws_url"], session.0["cdp_ws_url"]);
    Ok(())
}

#[test]
fn a_log_that_cannot_be_written_affects_nothing() -> anyhow::Result<()> {
    let mut server = Server::start(Options { log_is_full: true, ..Options::default() })?;

    let session = server.headless()?;

    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    assert!(server.stop()?.success(), "it ends as it should");
    Ok(())
}

#[test]
fn the_first_key_opens_the_api_and_a_missing_one_does_not() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;

    let with = server.get("/browsers")?;
    let without = Request::new("GET", "/browsers").send(server.address())?;

    assert_eq!((with.status, with.json()?), (200, json!([])));
    assert_eq!((without.status, &without.json()?["code"]), (401, &json!("unauthorized")));
    assert!(!server.log().contains(server.key()), "a key stands in the log");
    Ok(())
}

#[test]
fn a_browser_that_dies_ends_its_session_and_the_pool_starts_another() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    server.post("/browser_pools", &json!({ "name": "mortal", "size": 1, "headless": true }))?.expect(201)?;
    let session = server.acquire("mortal")?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let browser = browser_of(server, &session)?;
    // Until its `exec`, a new process has the command line of its parent.
    let browsers = until("one browser", TEST_TIMEOUT, || {
        let browsers: Vec<_> = all_of(server, &browser).into_iter().filter(|process| process.is_browser()).collect();
        (browsers.len() == 1).then_some(browsers)
    })?;

    server.signal(&browsers[0], Signal::KILL)?;

    assert_eq!(client.until_closed()?, Some((4002, "crashed".to_owned())));
    let path = format!("/browsers/{}", session.id());
    until("its session has ended", TEST_TIMEOUT, || (server.get(&path).ok()?.status == 404).then_some(()))?;
    server.until_available("mortal", 1)?;
    let next = server.acquire("mortal")?;
    assert_ne!(next.id(), session.id());
    server.release("mortal", &next)
}

#[test]
fn a_start_url_is_opened_without_a_call() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let session = server.create(&json!({ "headless": true, "start_url": pages.url("/green?from=start_url") }))?;

    let requested = || pages.requests().iter().any(|line| line == "GET /green?from=start_url").then_some(());
    until("the browser asks for its start page", TEST_TIMEOUT, requested)?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn sessions_that_a_server_left_are_ended_without_one() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    let session = server.headless()?;
    server.kill()?;
    let refused = server.command(&["stop"]).output()?;
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("casement stop --end-sessions"), "{message}");

    let ended = server.command(&["stop", "--end-sessions"]).output()?;

    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(server.processes().is_empty(), "{:#?}", server.processes());
    server.restart()?;
    server.get(&format!("/browsers/{}", session.id()))?.expect(404)?;
    Ok(())
}

#[test]
fn a_data_directory_that_only_its_owner_may_enter_works_with_a_private_database() -> anyhow::Result<()> {
    // As `mktemp -d` makes it.
    let data_dir = tempfile::Builder::new().prefix("casement-closed-").tempdir_in("/tmp")?;
    let options = Options { data_dir: Some(data_dir.path().to_owned()), ..Options::default() };
    Server::start(options)?.get("/browser_pools")?.expect(200)?;
    Ok(())
}

/// The names of everything in a folder.
fn names(folder: &Path) -> anyhow::Result<BTreeSet<OsString>> {
    Ok(fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<_>>()?)
}

/// The database of the server that used the directory is elsewhere, and its URL was in the flags of that server.
#[test]
fn commands_that_end_read_or_seal_things_create_no_database() -> anyhow::Result<()> {
    let data_dir = tempfile::Builder::new().prefix("casement-elsewhere-").tempdir_in("/tmp")?;
    fs::write(data_dir.path().join("node-id"), format!("{}\n", "0".repeat(26)))?;
    let before = names(data_dir.path())?;
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_casement"));
        command.args(words).arg("--data-dir").arg(data_dir.path()).env("CASEMENT_CONFIG", "/dev/null");
        command.env_remove("CASEMENT_DATABASE_URL").output()
    };
    for words in [
        &["stop", "--end-sessions"][..],
        &["drain"],
        &["keys", "list"],
        &["keys", "revoke", &"0".repeat(26)],
        &["secrets", "rotate"],
        &["backup", "/tmp/casement-not-made"],
    ] {
        let refused = run(words)?;
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && message.contains("--data-dir"), "{words:?}: {message}");
        assert_eq!(names(data_dir.path())?, before, "{words:?}");
    }
    let refused = run(&["stop", "--end-sessions", "--database-url", "postgresql://nobody@127.0.0.1:1/none"])?;
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("can't be reached"), "{message}");
    assert_eq!(names(data_dir.path())?, before);
    Ok(())
}
