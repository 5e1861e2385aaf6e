//! Tests of clients that connect by one address and make no call before: unmodified programs of other services, of which
//! only the address and the key are others.

use std::time::Duration;

use anyhow::Context as _;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Clients, Options, Server, Shared, until};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

/// A page with an input for a file and a link that downloads one.
const TRANSFER: &str = "<!doctype html><input type=file id=f>\
    <a id=a download='from the page.txt' href='data:text/plain,downloaded'>x</a>";

/// Returns an address of the server, with this scheme and path.
fn address(server: &Server, scheme: &str, path: &str) -> String {
    format!("{scheme}://{}{path}", server.address())
}

/// Waits until no session has this name or id.
fn until_ended(server: &Server, which: &str) -> anyhow::Result<()> {
    until("ended", LIMIT, || (server.get(&format!("/browsers/{which}")).ok()?.status == 404).then_some(()))
}

/// What a client sees that opens the green page and takes a screenshot of it.
fn green() -> Value {
    json!({ "title": "Green", "screenshot": "PNG" })
}

/// Runs a client of the script at an address, and returns what it saw.
fn run(client: &str, address: &str) -> anyhow::Result<Value> {
    let Shared { server, pages } = Shared::get();
    let arguments = [client, address, &pages.url(""), server.key()];
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/connect.mjs", &arguments)?;
    assert!(!server.log().contains(server.key()), "the log shows no key");
    run.json()
}

/// Runs a client of the script at `/connect`, as a session with the name of the client.
fn runs(client: &str, address: &str, saw: &Value) -> anyhow::Result<()> {
    assert_eq!(run(client, address)?, *saw, "{client}");
    Ok(())
}

/// Checks what a client of `/wd/hub` saw, and that its session has ended.
fn check_hub_client(client: &str, mut saw: Value) -> anyhow::Result<()> {
    let session = saw.as_object_mut().and_then(|saw| saw.remove("session")).context("no session")?;
    let session = session.as_str().context("no id")?;
    assert_eq!(saw, green(), "{client}");
    assert_eq!(Shared::get().server.get(&format!("/browsers/{session}"))?.status, 404, "{client} ends its session");
    Ok(())
}

fn query(server: &Server, name: &str) -> String {
    format!("?token={}&headless=true&name={name}", server.key())
}

#[test]
fn playwright_connects_to_a_websocket_and_to_an_http_address() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    for (scheme, path, name) in [("ws", "/connect", "pw-ws"), ("http", "/connect", "pw-http"), ("http", "/", "pw-root")]
    {
        runs("playwright", &(address(server, scheme, path) + &query(server, name)), &green())?;
        until_ended(server, name)?;
    }
    Ok(())
}

#[test]
fn playwright_connects_to_the_http_address_of_a_session() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = server.headless()?;
    let base = format!("{}?jwt={}", session.text("base_url"), session.token());
    runs("playwright", &base, &green())?;

    let list = format!("/vm/{}/json/list?jwt={}", session.id(), session.token());
    let targets = Request::new("GET", &list).send(server.address())?.expect(200)?.json()?;
    let page = targets.as_array().and_then(|targets| targets.iter().find(|target| target["type"] == "page"));
    let socket = page.context("no page")?["webSocketDebuggerUrl"].as_str().context("no address")?;
    assert_eq!(
        Cdp::connect(socket)?.call("Runtime.evaluate", &json!({ "expression": "6 * 7" }))?["result"]["value"],
        42
    );
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn chrome_remote_interface_connects_with_its_defaults() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = server.headless()?;
    let script = "crates/app/tests/scripts/connect_remote_interface.mjs";
    let seen = Clients::find()?.run(server, script, &[session.text("cdp_ws_url")])?.json()?;
    assert_eq!(seen, json!({ "product": true, "computed": 42 }));
    let at = address(server, "ws", "/connect") + &query(server, "cri");
    assert_eq!(Clients::find()?.run(server, script, &[&at])?.json()?, seen);
    until_ended(server, "cri")?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn pages_are_opened_brought_to_the_front_and_closed_over_http() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.headless()?;
    let send = |method: &str, path: &str, separator: char| {
        let path = format!("/vm/{}/{path}{separator}jwt={}", session.id(), session.token());
        Request::new(method, &path).send(server.address())
    };
    let opened = send("PUT", &format!("json/new?{}", pages.url("/green?a=1")), '&')?.expect(200)?.json()?;
    assert_eq!(opened["url"], pages.url("/green?a=1"));
    let id = opened["id"].as_str().context("no id")?;
    let mut page = Cdp::connect(opened["webSocketDebuggerUrl"].as_str().context("no address")?)?;
    send("GET", &format!("json/activate/{id}"), '?')?.expect(200)?;
    let visible = page.call("Runtime.evaluate", &json!({ "expression": "document.visibilityState" }))?;
    assert_eq!(visible["result"]["value"], "visible");
    assert!(send("GET", "json/protocol", '?')?.expect(200)?.json()?["domains"].is_array());
    send("GET", &format!("json/close/{id}"), '?')?.expect(200)?;
    let has_page = || -> anyhow::Result<bool> {
        let targets = send("GET", "json/list", '?')?.expect(200)?.json()?;
        Ok(targets.as_array().into_iter().flatten().any(|target| target["id"] == id))
    };
    until("closed", LIMIT, || (!has_page().ok()?).then_some(()))?;
    for command in ["activate", "close"] {
        send("GET", &format!("json/{command}/{id}"), '?')?.expect(404)?;
    }
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn puppeteer_connects_over_cdp_and_over_bidi() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    runs("puppeteer", &(address(server, "ws", "/connect") + &query(server, "pp-cdp")), &green())?;
    runs("bidi", &(address(server, "ws", "/connect/webdriver") + &query(server, "pp-bidi")), &green())?;
    until_ended(server, "pp-cdp")?;
    until_ended(server, "pp-bidi")
}

#[test]
fn playwright_for_python_connects() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let at = address(server, "ws", "/connect") + &query(server, "pw-python");
    let script = "crates/app/tests/scripts/connect_playwright.py";
    assert_eq!(Clients::find()?.run(server, script, &[&at, &pages.url("")])?.json()?, green());
    until_ended(server, "pw-python")
}

#[test]
fn a_plain_websocket_and_chromiumoxide_connect() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    runs("ws", &(address(server, "ws", "/connect") + &query(server, "ws")), &green())?;
    until_ended(server, "ws")?;
    let at = address(server, "ws", "/connect") + &query(server, "chromiumoxide");
    assert_eq!(Clients::find()?.run_rust(&["chromiumoxide", &at, &pages.url("")])?.json()?, green());
    until_ended(server, "chromiumoxide")
}

#[test]
fn webdriverio_selenium_for_javascript_and_fantoccini_connect_and_end_their_session() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let with_key = format!("http://anyone:{}@{}/wd/hub", server.key(), server.address());
    check_hub_client("webdriverio", run("webdriverio", &address(server, "http", "/wd/hub"))?)?;
    check_hub_client("selenium", run("selenium", &with_key)?)?;
    // Its last request has no credentials of the address, so a key beside the host would leave the session to its timeout.
    let at = address(server, "http", &format!("/wd/hub/{}/", server.key()));
    check_hub_client("fantoccini", Clients::find()?.run_rust(&["fantoccini", &at, &pages.url("")])?.json()?)
}

#[test]
fn the_browsers_of_the_agents_browser_use_and_stagehand_connect() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    for (scheme, name) in [("ws", "browser-use-ws"), ("http", "browser-use-http")] {
        let at = address(server, scheme, "/connect") + &query(server, name);
        let script = "crates/app/tests/scripts/connect_browser_use.py";
        let saw = json!({ "title": "Pressed", "button": "Press", "said": "Hello, ", "screenshot": "PNG" });
        assert_eq!(Clients::browser_use()?.run(server, script, &[&at, &pages.url("")])?.json()?, saw, "{name}");
        until_ended(server, name)?;
    }
    let saw = json!({ "title": "Pressed", "said": "Hello, Stagehand", "screenshot": "PNG" });
    runs("stagehand", &(address(server, "ws", "/connect") + &query(server, "stagehand")), &saw)?;
    until_ended(server, "stagehand")
}

#[test]
fn selenium_makes_its_session_uploads_downloads_and_ends_it() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    pages.put("/transfer", TRANSFER);
    for address in [
        format!("http://anyone:{}@{}/wd/hub", server.key(), server.address()),
        address(server, "http", &format!("/wd/hub/{}", server.key())),
    ] {
        let run = Clients::find()?.run(server, "crates/app/tests/scripts/connect.py", &[&address, &pages.url("")])?;
        let mut saw = run.json()?;
        let session = saw["session"].take().as_str().context("no session")?.to_owned();
        let expected = json!({
            "session": null,
            "uploaded": "from the client",
            "names": ["from the page.txt"],
            "downloaded": "downloaded",
            "left": [],
            "tree": [pages.url("/transfer")],
        });
        assert_eq!(saw, expected);
        assert_eq!(server.get(&format!("/browsers/{session}"))?.status, 404, "quit() ends the session");
    }
    assert!(!server.log().contains(server.key()), "the log shows no key");
    let secret = server.key().rsplit('_').next().context("an odd key")?;
    let audit =
        server.get("/audit-logs/export/chunk?start=2026-01-01&end=2100-01-01&format=jsonl")?.expect(200)?.text();
    assert!(audit.contains("/wd/hub/session") && !audit.contains(secret), "the export shows the calls and no key");
    Ok(())
}

#[test]
fn a_killed_server_leaves_no_session_of_a_connection() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    let path = format!("/connect{}", query(&server, "left"));
    let open = Cdp::connect(&address(&server, "ws", &path))?;
    server.get("/browsers/left")?.expect(200)?;
    server.kill()?;
    drop(open);
    server.restart()?;
    until_ended(&server, "left")
}
