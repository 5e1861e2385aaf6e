//! Captures that change, browsers that restart, and other clients.

use std::path::Path;
use std::time::{Duration, Instant};

use casement_agent_protocol::AgentConfig;
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::replay::{Replay, START, StartReplay};
use casement_agent_protocol::telemetry::{Category, EventLine};
use serde_json::json;

use crate::cdp::{Cdp, EMPTY};
use crate::sandbox::{RUNNER, Sandbox, TEST_TIMEOUT, config, signal};
use crate::script::{execute, result};
use crate::telemetry::*;

/// Returns the number of open connections to the browser's debugging port.
fn connections(sandbox: &Sandbox) -> usize {
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", sandbox.browser())).unwrap();
    let port = format!(":{:04X}", config(true).debugging_port);
    let open = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&port) && fields[3] == "01"
    };
    table.lines().skip(1).filter(open).count()
}

async fn until_connections(sandbox: &Sandbox, wanted: impl Fn(usize) -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !wanted(connections(sandbox)) {
        assert!(Instant::now() < deadline, "{} connections", connections(sandbox));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A configuration whose browser starts with a loaded page, which no later blank document replaces.
fn begun() -> AgentConfig {
    AgentConfig { start_url: Some(EMPTY.to_owned()), ..config(true) }
}

#[tokio::test]
async fn disabled_categories_are_not_captured_and_without_any_there_is_no_connection() {
    let (sandbox, status, client) = Sandbox::with_browser(&begun(), "turned off").await;
    let received = Received::after(&sandbox, 0).await;
    let (mut cdp, page) = Cdp::at_first_page(&sandbox, &status).await;
    cdp.evaluate(&page, "document.body.style = 'margin: 0; height: 100vh'").await;
    cdp.drawn(&page).await;
    let before = connections(&sandbox);
    capture(&client, &[Category::Console, Category::Interaction]).await;
    until_connections(&sandbox, |count| count > before).await;
    let clicks = || received.all().iter().filter(|reported| reported.kind == "interaction_click").count();
    let given = async |cdp: &mut Cdp, word: &str| {
        cdp.evaluate(&page, &format!("console.log('{word}')")).await;
        received.until(word, |reported| data(reported)["text"] == word).await;
    };
    for round in 1..=3 {
        click(&mut cdp, &page, 50, 50).await;
        given(&mut cdp, &format!("on {round}")).await;
        assert_eq!(clicks(), round, "each click is told of once");
        capture(&client, &[Category::Console]).await;
        click(&mut cdp, &page, 50, 50).await;
        given(&mut cdp, &format!("off {round}")).await;
        assert_eq!(clicks(), round);
        capture(&client, &[Category::Console, Category::Interaction]).await;
    }
    capture(&client, &[]).await;
    until_connections(&sandbox, |count| count == before).await;
}

#[tokio::test]
async fn crashes_of_programs_beside_the_browser_are_reported() {
    let sandbox = Sandbox::start(&AgentConfig { script_runner: Some(Path::new(RUNNER).to_owned()), ..config(false) });
    sandbox.ready("with a display").await;
    let client = sandbox.client().await;
    let received = Received::after(&sandbox, 0).await;
    capture(&client, &[Category::System]).await;
    let crashed = |name: &'static str| move |reported: &EventLine| data(reported)["service_name"] == name;

    // A script runner that exits by itself has not crashed.
    for code in ["process.exit(3)", "process.abort()"] {
        assert!(!execute(&client, code).await.success);
    }
    let runner = data(&received.until("the script runner's crash", crashed("script-runner")).await);
    assert!(runner["phase"] == "running" && runner["pid"].is_u64(), "{runner}");

    let video = StartReplay { replay_id: "film".to_owned(), framerate: 10, max_duration_seconds: 600 };
    client.call::<Replay>(START, &video, TEST_TIMEOUT).await.unwrap();
    signal(sandbox.processes("x11grab").into_iter().max().expect("it is filmed"), "KILL");
    received.until("ffmpeg's crash", crashed("ffmpeg")).await;

    signal(sandbox.processes("Xvfb").into_iter().max().expect("a display"), "KILL");
    let display = received.until("the display's crash", crashed("xvfb")).await;
    let browser = received.until("the browser's, which goes with it", crashed("chromium")).await;
    assert!(display.seq < browser.seq);
    assert_eq!(received.all().iter().filter(|reported| reported.kind == "service_crashed").count(), 4);
}

#[tokio::test]
async fn a_browser_that_is_started_anew_is_captured_again() {
    let (sandbox, _, client) = Sandbox::with_browser(&config(true), "before a restart").await;
    let received = Received::after(&sandbox, 0).await;
    capture(&client, &[Category::Page, Category::Console]).await;
    let status = client.restart(&RestartRequest::default()).await.unwrap();
    let lost = received.kind("monitor_disconnected").await;
    assert_eq!((lost.category, &data(&lost)["reason"]), (Category::Monitor, &json!("chrome_restarted")));
    let back = received.kind("monitor_reconnected").await;
    assert!(data(&back)["reconnect_duration_ms"].is_u64() && back.seq > lost.seq);
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let page = cdp.page("http://site.test/telemetry/popup", false).await;
    received.until("its word", |reported| data(reported)["text"] == "the first word").await;
    received.kind("page_tab_opened").await;
    cdp.until(&page, "document.title", &json!("popup")).await;
}

#[tokio::test]
async fn a_browser_that_does_not_come_back_is_reported() {
    let (sandbox, _, client) = Sandbox::with_browser(&config(true), "for the last time").await;
    let received = Received::after(&sandbox, 0).await;
    capture(&client, &[Category::Page, Category::System]).await;
    let requested_state = RestartRequest::default();
    let mut restarting = std::pin::pin!(client.restart(&requested_state));
    let first = sandbox.browser();
    // Every new browser is killed at once.
    let refused = loop {
        tokio::select! {
            answer = &mut restarting => break answer,
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        for pid in sandbox.browsers().into_iter().filter(|pid| *pid != first) {
            // The process may have ended by itself meanwhile.
            let pid = rustix::process::Pid::from_raw(pid.cast_signed());
            let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
    };
    assert!(refused.is_err(), "{refused:?}");
    let ended = data(&received.until("its end", |reported| data(reported)["phase"] == "startup").await);
    assert_eq!(ended["service_name"], "chromium");
    let over = received.kind("monitor_reconnect_failed").await;
    assert_eq!((over.category, &data(&over)["reason"]), (Category::Monitor, &json!("reconnect_exhausted")));
}

/// A script that uses the browser with Playwright, over a connection of its own.
const PLAYWRIGHT: &str = r#"
    const said = [];
    const fresh = await context.newPage();
    fresh.on('console', message => said.push(message.text()));
    fresh.on('dialog', dialog => dialog.accept('an answer'));
    await fresh.route('**/data.json', route => route.fulfill({ json: { mocked: true } }));
    await fresh.goto('http://localhost/telemetry/plain');
    const mocked = await fresh.evaluate(async () => (await (await fetch('/telemetry/data.json')).json()).mocked);
    const answer = await fresh.evaluate(() => prompt('a question'));
    const [popup] = await Promise.all([
        context.waitForEvent('page'), fresh.evaluate(() => void open('/telemetry/popup')),
    ]);
    await popup.waitForLoadState();
    const [worker] = await Promise.all([
        fresh.waitForEvent('worker'), fresh.evaluate(() => { window.kept = new Worker('/telemetry/worker.js'); }),
    ]);
    const inWorker = await worker.evaluate(() => 6 * 7);
    await fresh.evaluate(async () => { await navigator.serviceWorker.register('/telemetry/service.js'); await navigator.serviceWorker.ready; });
    const other = await browser.newContext();
    const apart = await other.newPage();
    await apart.goto('http://site.test/telemetry/guarded');
    const frames = apart.frames().length;
    await other.close();
    await fresh.close();
    return { mocked, answer, title: await popup.title(), inWorker, frames, said };
"#;

#[tokio::test]
async fn other_clients_of_the_browser_are_not_disturbed_and_what_they_do_is_reported() {
    let config = AgentConfig { script_runner: Some(Path::new(RUNNER).to_owned()), ..config(true) };
    let (sandbox, _, client) = Sandbox::with_browser(&config, "with Playwright").await;
    let received = Received::after(&sandbox, 0).await;
    capture(&client, &EVERYTHING).await;
    for _ in 0..2 {
        let began = Instant::now();
        let result = result(&client, PLAYWRIGHT).await;
        println!("Playwright took {:?}", began.elapsed());
        let expected = json!({
            "mocked": true, "answer": "an answer", "title": "popup", "inWorker": 42, "frames": 2, "said": ["from the worker"],
        });
        assert_eq!(result, expected);
    }
    received
        .until("the service worker", |reported| {
            data(reported)["text"] == "the service" && data(reported)["target_type"] == "service_worker"
        })
        .await;
    received
        .until("what a client answered", |reported| {
            reported.kind == "network_response"
                && data(reported)["body"].as_str().is_some_and(|body| body.contains("mocked"))
        })
        .await;
    let services = received.all().iter().filter(|reported| data(reported)["text"] == "the service").count();
    assert_eq!(services, 1, "a service worker belongs to no page and is told of once");
}
