//! Tests of Selenium over `{base_url}/wd`: classic WebDriver, and BiDi at the URL in the response to a new session.

use casement_test_support::program::{Cdp, Clients, Server, Session, Shared};
use serde_json::{Value, json};

fn address(session: &Session) -> String {
    format!("{}/wd", session.text("base_url"))
}

/// Returns the size of a page: the whole viewport, or the part of it inside a visible window.
pub(super) fn size_of_page(session: &Session) -> anyhow::Result<Value> {
    if session.0["headless"] == true {
        return Ok(json!([1920, 1080]));
    }
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.evaluate(&page, "[1920, 1080 - (outerHeight - innerHeight)]")
}

fn selenium_drives(headless: bool) -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.create(&json!({ "headless": headless, "timeout_seconds": 600 }))?;

    let arguments = [address(&session), session.token().to_owned(), pages.url("")];
    let display = ["display"].into_iter().filter(|_| !headless);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(display).collect();
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/selenium_drive.py", &arguments)?;

    let mut saw = json!({
        "websocket": session.text("webdriver_ws_url").split('?').next(),
        "unknown name": "unknown error: net::ERR_CONNECTION_RESET",
        "said": "Hello, Ada",
        "seen": ["click"],
        "picture": size_of_page(&session)?,
        "console": "heard over BiDi",
        "tree": [pages.url("/form")],
        "title": "Green",
    });
    if !headless {
        let (part, hidden, whole) = ("50,60,700,500,visible", "50,60,700,500,hidden", "0,0,1920,1080,visible");
        let classic = [json!([50, 60, 700, 500]), json!(part), json!(whole), json!(hidden), json!(whole)];
        let bidi = [part, hidden, part, whole, part, whole, part, "10,20,1900,1000,visible"].map(Value::from);
        saw["windows"] = classic.into_iter().chain(bidi).collect();
    }
    assert_eq!(run.json()?, saw);
    let mut later = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = later.page()?;
    assert_eq!(later.evaluate(&page, "document.title")?, "Green", "quit() leaves the browser and its page");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

#[test]
fn selenium_drives_the_running_browser_with_classic_and_bidi() -> anyhow::Result<()> {
    selenium_drives(true)
}

#[test]
fn selenium_drives_a_browser_on_a_display_with_classic_and_bidi() -> anyhow::Result<()> {
    selenium_drives(false)
}

#[test]
fn selenium_raises_the_class_of_an_error_that_its_users_catch() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let address = format!("http://anyone:{}@{}/wd/hub", server.key(), server.address());
    let saw = Clients::find()?.run(server, "crates/app/tests/scripts/selenium_errors.py", &[&address])?.json()?;
    let expected = json!({
        "a capability": "SessionNotCreatedException",
        "a pool": "InvalidArgumentException",
        "after the end": "InvalidSessionIdException",
    });
    assert_eq!(saw, expected);
    Ok(())
}

#[test]
fn capabilities_of_webdriver_choose_neither_program_nor_arguments() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.headless()?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.open(&page, &pages.url("/green"))?;
    let before = client.command_line()?;

    let arguments = [address(&session), session.token().to_owned()];
    let arguments = arguments.each_ref().map(String::as_str);
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/hostile_selenium.py", &arguments)?;

    // Each request gets a WebDriver session of the running browser, whose page this test has opened.
    let bound = json!({ "status": 200, "title": "Green" });
    let came_of_it = json!({
        "selenium": bound,
        "alwaysMatch": bound,
        "firstMatch": bound,
        "desiredCapabilities": bound,
        "other names": bound,
        "shutdown": 404,
        "sessions": 404,
    });
    assert_eq!(run.json()?, came_of_it);
    assert_eq!(client.command_line()?, before);
    assert_nothing_evil_runs(server, &session)?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

/// Asserts that no command line of the server and its sandboxes has a malicious argument, read on the host and in the
/// report of the browser.
pub(super) fn assert_nothing_evil_runs(server: &Server, session: &Session) -> anyhow::Result<()> {
    let evil = ["casement-evil", "--no-sandbox", "--remote-debugging-port=9999", "127.0.0.1:1 "];
    let lines: Vec<String> = server.processes().iter().map(|process| format!("{} ", process.argv.join(" "))).collect();
    assert!(lines.iter().any(|line| line.contains("/chromium ")), "no browser was found at all: {lines:#?}");
    let own = Cdp::connect(session.text("cdp_ws_url"))?.command_line()?;
    for line in lines.iter().chain([&own]) {
        assert!(!evil.iter().any(|word| line.contains(word)), "{line}");
    }
    Ok(())
}
