//! The bounds of a capture.

use std::time::{Duration, Instant};

use casement_agent_protocol::telemetry::{CONFIRM, Category, ConfirmRequest, MAX_EVENT_BYTES};
use serde_json::json;

use crate::cdp::Cdp;
use crate::sandbox::{SLOWLY, Sandbox, TEST_TIMEOUT, config, field};
use crate::telemetry::*;

#[tokio::test]
async fn whatever_a_page_says_is_bounded_and_nothing_of_the_page_is_run() {
    let (sandbox, status, client) = Sandbox::with_browser(&config(true), "hostile").await;
    let received = Received::after(&sandbox, 0).await;
    capture(&client, &EVERYTHING).await;
    client.handout(Some("http://site.test/telemetry/hostile".to_owned()), None, SLOWLY).await.unwrap();
    received.until("the end", |reported| data(reported)["text"] == "the end").await;
    let long = received
        .until("a long text", |reported| data(reported)["text"].as_str().is_some_and(|text| text.len() > 10_000))
        .await;
    let args = data(&long)["args"].clone();
    assert!(long.truncated);
    assert!(args[1].as_str().unwrap().contains("self: Object"), "{:.300}", args[1]);
    assert_eq!(args[2], "{bad: (...)}");
    received.until("half a pair", |reported| data(reported)["text"] == "\u{fffd} half \u{0} \u{1b}[31m<script>").await;
    received.until("thousands of arguments", |reported| reported.truncated && data(reported)["text"] == "0").await;
    let url = received.until("a long address", |reported| {
        reported.kind == "network_request"
            && data(reported)["url"].as_str().unwrap().starts_with("http://site.test/telemetry/empty?uuu")
    });
    assert!(url.await.truncated);
    for reported in received.all().iter().filter(|reported| reported.kind != "monitor_screenshot") {
        let length = serde_json::to_vec(reported).unwrap().len();
        assert!(length <= MAX_EVENT_BYTES + 100, "{}: {length}", reported.kind);
    }
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    assert_eq!(cdp.evaluate(&page, "document.title").await, "hostile");

    // Many workers at once, of which no first message is missed.
    let many = "for (let i = 0; i < 60; i++) new Worker(URL.createObjectURL(new Blob([`console.log('worker ${i}')`])))";
    cdp.evaluate(&page, many).await;
    for i in [0, 30, 59] {
        received.until("a worker", |reported| data(reported)["text"] == format!("worker {i}")).await;
    }
}

/// The number of tabs that a page opens, each with a worker and a console message.
const TABS: u64 = 190;

#[tokio::test]
async fn a_page_that_opens_hundreds_of_tabs_and_workers_is_captured_within_bounds() {
    let (sandbox, status, client) = Sandbox::with_browser(&begun(), "tabs").await;
    let (mut cdp, page) = Cdp::at_first_page(&sandbox, &status).await;
    let received = Received::after(&sandbox, 0).await;
    let everything = EVERYTHING.into_iter().filter(|category| *category != Category::Screenshot);
    capture(&client, &everything.collect::<Vec<_>>()).await;
    let before = resident(&sandbox);
    let began = Instant::now();
    cdp.evaluate(&page, "globalThis.tabs = []; globalThis.work = URL.createObjectURL(new Blob(['1'])); 0").await;
    for n in 0..TABS {
        let open = format!(
            "(tab => {{ tab.console.log('tab {n}'); tabs.push(tab); new Worker(work) }})(open('about:blank')); tabs.length"
        );
        // A page opens no tab without a user gesture.
        let params = json!({ "expression": open, "userGesture": true, "returnByValue": true });
        let answer = cdp.call(Some(&page), "Runtime.evaluate", params).await;
        assert_eq!(answer["result"]["value"], n + 1, "{answer}");
    }
    received.until("the last tab", |reported| data(reported)["text"] == format!("tab {}", TABS - 1)).await;
    println!("{TABS} tabs after {:?}", began.elapsed());
    let opened = || received.all().iter().filter(|reported| reported.kind == "page_tab_opened").count() as u64;
    let deadline = Instant::now() + TEST_TIMEOUT;
    while opened() < TABS && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(opened(), TABS);
    let grown = resident(&sandbox).saturating_sub(before);
    println!("the agent's memory: {before} KiB and {grown} more");
    assert!(grown < 60 << 10, "{grown} KiB");
    // The capture continues after the tabs are closed.
    cdp.evaluate(&page, "tabs.forEach(tab => tab.close()); console.log('all closed')").await;
    received.until("the end", |reported| data(reported)["text"] == "all closed").await;
}

/// The number of console messages of a page, and the number of batches in which it logs them.
const BURST: u64 = 100_000;

const BREATHS: u64 = 5;

#[tokio::test]
async fn a_burst_stays_bounded_and_its_losses_are_counted() {
    let (sandbox, status, client) = Sandbox::with_browser(&begun(), "burst").await;
    let (mut cdp, page) = Cdp::at_first_page(&sandbox, &status).await;
    capture(&client, &[Category::Console]).await;
    let before = resident(&sandbox);
    let began = Instant::now();
    for _ in 0..BREATHS {
        let lines = BURST / BREATHS;
        cdp.evaluate(&page, &format!("for (let i = 0; i < {lines}; i++) console.log('line ' + i)")).await;
    }
    cdp.evaluate(&page, "console.log('the end')").await;
    println!("said after {:?}", began.elapsed());
    // Without a reader, some events are buffered and the others are a gap in the numbers. The last number is reported.
    Received::after(&sandbox, 0).await.until("the last number", |reported| reported.seq > BURST).await;
    println!("told after {:?}", began.elapsed());
    // The first reader may have received more, because on a busy machine events arrive while it reads.
    let received = Received::after(&sandbox, 0).await;
    let end = received.until("the last number", |reported| reported.seq > BURST).await;
    let buffered = received.all();
    assert!(buffered.len() <= 21_000 && buffered.len() > 1000, "{}", buffered.len());
    assert!(buffered.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let grown = resident(&sandbox).saturating_sub(before);
    println!("the agent's memory: {before} KiB and {grown} more");
    assert!(grown < 60 << 10, "{grown} KiB");

    // Confirmed events are not sent again, and the numbers continue.
    client.command(CONFIRM, &ConfirmRequest { through: end.seq }, WITHIN).await.unwrap();
    let again = Received::after(&sandbox, end.seq).await;
    let deadline = Instant::now() + TEST_TIMEOUT;
    // While the capture is throttled, a message is counted and not read.
    while again.find(|reported| data(reported)["text"] == "one more").is_none() {
        assert!(Instant::now() < deadline, "it is never heard again");
        cdp.evaluate(&page, "console.log('one more')").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(again.all().iter().all(|reported| reported.seq > end.seq));
    // Messages of a disabled category are not captured.
    capture(&client, &[]).await;
    cdp.evaluate(&page, "console.log('unheard')").await;
    capture(&client, &[Category::Console]).await;
    cdp.evaluate(&page, "console.log('heard')").await;
    again.until("heard", |reported| data(reported)["text"] == "heard").await;
    assert!(again.find(|reported| data(reported)["text"] == "unheard").is_none());
}

/// Returns the anonymous memory of the agent, in KiB.
fn resident(sandbox: &Sandbox) -> u64 {
    field(sandbox.agent(), "RssAnon:").unwrap().trim_end_matches(" kB").trim().parse().unwrap()
}
