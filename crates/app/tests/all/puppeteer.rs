//! Tests of Puppeteer over `cdp_ws_url`, and over `webdriver_ws_url` with WebDriver BiDi.

use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Clients, Server, Session, Shared};
use serde_json::{Value, json};

use super::selenium::{assert_nothing_evil_runs, size_of_page};

const SCRIPT: &str = "crates/app/tests/scripts/puppeteer_drive.mjs";

fn saw(session: &Session) -> anyhow::Result<Value> {
    Ok(json!({
        "said": "Hello, Ada",
        "computed": { "product": 42, "title": "Pressed", "seen": ["click"] },
        "picture": size_of_page(session)?,
        "title": "Green",
    }))
}

/// Asserts that the browser and the page are unchanged after the client has disconnected, and deletes the session.
fn still_there(server: &Server, session: &Session) -> anyhow::Result<()> {
    let mut later = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = later.page()?;
    assert_eq!(later.evaluate(&page, "document.title")?, "Pressed");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

/// Runs the script with Puppeteer connected to the URL in `field` of a session.
fn puppeteer_drives(headless: bool, field: &str, protocol: &str) -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.create(&json!({ "headless": headless, "timeout_seconds": 600 }))?;

    let arguments = [session.text(field), protocol, &pages.url("")];
    let run = Clients::find()?.run(server, SCRIPT, &arguments)?;

    assert_eq!(run.json()?, saw(&session)?);
    still_there(server, &session)
}

#[test]
fn puppeteer_drives_the_open_page_over_cdp() -> anyhow::Result<()> {
    puppeteer_drives(true, "cdp_ws_url", "cdp")
}

#[test]
fn puppeteer_drives_the_open_page_on_a_display_over_cdp() -> anyhow::Result<()> {
    puppeteer_drives(false, "cdp_ws_url", "cdp")
}

#[test]
fn puppeteer_drives_the_open_page_over_webdriver_bidi() -> anyhow::Result<()> {
    puppeteer_drives(true, "webdriver_ws_url", "webDriverBiDi")
}

#[test]
fn puppeteer_drives_the_open_page_on_a_display_over_webdriver_bidi() -> anyhow::Result<()> {
    puppeteer_drives(false, "webdriver_ws_url", "webDriverBiDi")
}

#[test]
fn capabilities_over_bidi_choose_neither_program_nor_arguments() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.headless()?;
    let evil = json!({
        "goog:chromeOptions": {
            "binary": "/tmp/casement-evil",
            "args": ["--no-sandbox", "--user-data-dir=/tmp/casement-evil", "--load-extension=/tmp/casement-evil"],
            "debuggerAddress": "127.0.0.1:1",
        },
    });

    let arguments = [session.text("webdriver_ws_url"), "webDriverBiDi", &pages.url(""), &evil.to_string()];
    let run = Clients::find()?.run(server, SCRIPT, &arguments)?;

    assert_eq!(run.json()?, saw(&session)?, "the client drives the session's own browser");
    assert_nothing_evil_runs(server, &session)?;
    still_there(server, &session)
}

#[test]
fn a_file_of_the_clients_machine_is_refused_and_one_of_the_session_is_given() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    for (field, protocol) in [("cdp_ws_url", "cdp"), ("webdriver_ws_url", "webDriverBiDi")] {
        let session = server.headless()?;
        let write = format!("/browsers/{}/fs/write_file?path=/tmp/inside.txt", session.id());
        let mut request = Request::new("PUT", &write).bearer(server.key());
        request.body = Some(b"of the session".to_vec());
        request.send(server.address())?.expect(204)?;

        let arguments = [session.text(field), protocol, "/tmp/inside.txt"];
        let script = "crates/app/tests/scripts/puppeteer_files.mjs";
        let saw = Clients::find()?.run(server, script, &arguments)?.json()?;

        let refused = saw["refused"].as_str().unwrap_or_default();
        assert!(
            refused.contains("outside.txt does not exist in the session: upload it with POST"),
            "{protocol}: {saw}"
        );
        assert_eq!((&saw["count"], &saw["text"]), (&json!(0), &json!("of the session")), "{protocol}");
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}
