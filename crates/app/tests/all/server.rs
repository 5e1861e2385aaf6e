//! The life of the program, as the harness relies on it.

use serde_json::json;

use super::support::http::Request;
use super::support::{Cdp, Options, Pages, Server};

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
    // What `Drop` asserts: with the server's end nothing of it is left.
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
fn the_first_key_opens_the_api_and_none_does_not() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;

    let with = server.get("/browsers")?;
    let without = Request::new("GET", "/browsers").send(server.address())?;

    assert_eq!((with.status, with.json()?), (200, json!([])));
    assert_eq!((without.status, &without.json()?["code"]), (401, &json!("unauthorized")));
    assert!(!server.log().contains(server.key()), "a key stands in the log");
    Ok(())
}
