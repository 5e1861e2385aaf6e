//! Tests of crashes of a browser or one of its processes: the session ends with the reason, and the pool fills again.

use std::time::Duration;

use anyhow::Context as _;
use casement_test_support::png_size;
use casement_test_support::program::{Cdp, Process, Server, Shared, processes_of, until};
use rustix::process::Signal;
use serde_json::json;

use super::host::{
    browser_of, chromium, create_pool, delete_pool, end_reason, idle_browsers, kind, remains_of_sandbox, sandbox,
};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_killed_chromium_ends_its_session_and_its_pool_fills_again() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    create_pool(server, "crashing", 1)?;
    let session = server.acquire("crashing")?;
    let browser = browser_of(server, &session)?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    client.page()?;

    server.signal(&chromium(server, &browser)?[0], Signal::KILL)?;

    assert_eq!(client.until_closed()?, Some((4002, "crashed".to_owned())));
    let path = format!("/browsers/{}", session.id());
    until("the session has ended", TEST_TIMEOUT, || (server.get(&path).ok()?.status == 404).then_some(()))?;
    assert_eq!(end_reason(server, session.id())?, "crashed");
    let refused = Cdp::connect(session.text("cdp_ws_url")).err().context("the dead session took a connection")?;
    assert!(refused.to_string().contains("404"), "{refused}");
    let next = server.acquire("crashing")?;
    assert_ne!(browser_of(server, &next)?, browser);
    until("nothing of the sandbox is left", TEST_TIMEOUT, || {
        let dir = sandbox(server, &browser);
        (!dir.exists() && processes_of(&dir).is_empty()).then_some(())
    })?;
    delete_pool(server, "crashing")
}

#[test]
fn a_pool_whose_browsers_are_killed_repeatedly_fills_again_each_time() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    create_pool(server, "mortal", 1)?;
    let mut killed: Vec<String> = Vec::new();
    for _ in 0..3 {
        let browser = filled_anew(server, "mortal", &killed)?;
        server.signal(&chromium(server, &browser)?[0], Signal::KILL)?;
        killed.push(browser);
    }

    let last = filled_anew(server, "mortal", &killed)?;
    let session = server.acquire("mortal")?;
    assert_eq!(browser_of(server, &session)?, last);
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    let mut left: Vec<String> = Vec::new();
    until("nothing of the killed ones is left", TEST_TIMEOUT, || {
        left = killed.iter().flat_map(|id| remains_of_sandbox(server, id)).collect();
        left.is_empty().then_some(())
    })
    .with_context(|| format!("{left:#?}"))?;
    delete_pool(server, "mortal")
}

/// Waits for an idle browser of a pool other than the killed ones: the last of them is listed until its end is
/// detected.
fn filled_anew(server: &Server, pool: &str, killed: &[String]) -> anyhow::Result<String> {
    until("the pool has filled again", 5 * TEST_TIMEOUT, || {
        idle_browsers(server, pool).ok()?.into_iter().find(|id| !killed.contains(id))
    })
}

#[test]
fn a_session_outlives_its_gpu_process() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    for headless in [true, false] {
        let session = server.create(&json!({ "headless": headless, "timeout_seconds": 600 }))?;
        let browser = browser_of(server, &session)?;
        let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = client.page()?;
        client.open(&page, &pages.url("/green"))?;
        client.until_drawn(&page)?;
        client.evaluate(&page, "window.mark = 42")?;
        let shown = picture(&mut client, &page)?;
        let first = until("it has a GPU process", TEST_TIMEOUT, || gpu_process(server, &browser))?;

        server.signal(&first, Signal::KILL)?;

        assert_eq!(client.evaluate(&page, "window.mark")?, 42, "the same page answers on the same connection");
        // Before that, the browser may request the screenshot from the killed process.
        until("another GPU process has taken its place", TEST_TIMEOUT, || {
            gpu_process(server, &browser).filter(|now| now.pid != first.pid)
        })?;
        assert!(picture(&mut client, &page)? == shown, "it is drawn as before: all green");
        let shot = server.post(&format!("/browsers/{}/computer/screenshot", session.id()), &json!({}))?.expect(200)?;
        assert_eq!(png_size(&shot.body), Some((1920, 1080)));
        assert_eq!(end_reason(server, session.id())?, "", "the session goes on");
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}

/// Returns the GPU process of a browser.
fn gpu_process(server: &Server, browser: &str) -> Option<Process> {
    chromium(server, browser).ok()?.into_iter().find(|process| kind(process) == Some("gpu-process"))
}

/// Returns a screenshot of a page.
fn picture(client: &mut Cdp, page: &str) -> anyhow::Result<String> {
    let taken = client.call_in(Some(page), "Page.captureScreenshot", &json!({}))?;
    Ok(taken["data"].as_str().context("no picture")?.to_owned())
}

#[test]
fn every_socket_of_a_session_closes_with_the_end_reason() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let deleted = server.headless()?;
    let live = deleted.text("browser_live_view_url").replacen("http", "ws", 1).replacen('?', "/socket?", 1);
    let mut clients = vec![
        Cdp::connect(deleted.text("cdp_ws_url"))?,
        Cdp::connect(deleted.text("cdp_ws_url"))?,
        Cdp::connect(deleted.text("webdriver_ws_url"))?,
        Cdp::connect(&live)?,
    ];
    server.delete(&format!("/browsers/{}", deleted.id()))?.expect(204)?;
    for client in &mut clients {
        assert_eq!(client.until_closed()?, Some((4000, "deleted".to_owned())));
    }

    create_pool(server, "lending", 1)?;
    let released = server.acquire("lending")?;
    let mut client = Cdp::connect(released.text("cdp_ws_url"))?;
    server.release("lending", &released)?;
    assert_eq!(client.until_closed()?, Some((4003, "released".to_owned())));
    delete_pool(server, "lending")
}
