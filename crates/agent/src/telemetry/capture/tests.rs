//! Tests of the capture, with a fake browser.

use serde_json::value::RawValue;

use super::targets::{MAX_SESSIONS, REMOVE_SCRIPT};
use super::*;
use crate::telemetry::fake_browser::{capture, event_after};
use crate::telemetry::network::IDLE_AFTER;
use crate::telemetry::requests::MAX_REQUESTS;
use casement_agent_protocol::telemetry::Category;

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("JSON")
}

fn attach(capture: &mut Capture, number: usize) {
    let info = json!({ "targetId": format!("t{number}"), "type": "page", "title": "", "url": "about:blank" });
    let message = json!({ "sessionId": format!("s{number}"), "targetInfo": info, "waitingForDebugger": false });
    capture.handle_notice(None, "Target.attachedToTarget", &raw(&message), false);
}

fn ask_for(capture: &mut Capture, id: usize) {
    let request = json!({ "url": "http://x.test/", "method": "GET", "headers": {} });
    let message = json!({ "requestId": id.to_string(), "request": request });
    capture.handle_notice(Some("s0"), "Network.requestWillBeSent", &raw(&message), false);
}

fn finish(capture: &mut Capture, id: usize) {
    capture.handle_notice(Some("s0"), "Network.loadingFinished", &raw(&json!({ "requestId": id.to_string() })), false);
}

/// A capture of one page.
async fn of_a_page(categories: &[Category]) -> (Capture, Arc<UnconfirmedEvents>) {
    let (mut capture, events) = capture(&[]).await;
    capture.set_categories(CapturedCategories::of(categories));
    attach(&mut capture, 0);
    (capture, events)
}

async fn becomes_idle(capture: &mut Capture, events: &Arc<UnconfirmedEvents>, after: u64) {
    tokio::time::sleep(IDLE_AFTER).await;
    capture.idle("s0");
    assert_eq!(event_after(events, after).await["type"], "network_idle");
}

#[tokio::test]
async fn requests_that_are_forgotten_do_not_keep_a_page_from_being_idle() {
    let (mut capture, events) = of_a_page(&[Category::Network]).await;
    ask_for(&mut capture, 1);
    capture.set_categories(CapturedCategories::of(&[Category::Console]));
    capture.set_categories(CapturedCategories::of(&[Category::Network]));
    ask_for(&mut capture, 2);
    finish(&mut capture, 2);
    becomes_idle(&mut capture, &events, 3).await;

    ask_for(&mut capture, 3);
    capture.handle_notice(Some("s0"), "Inspector.targetCrashed", &raw(&json!({})), false);
    becomes_idle(&mut capture, &events, 5).await;
}

#[tokio::test]
async fn the_interaction_script_is_removed_and_never_there_twice() {
    let (mut capture, _events) = of_a_page(&[Category::Interaction]).await;
    let mut names = 0;
    let mut answered = |capture: &mut Capture| {
        for (id, requested) in std::mem::take(&mut capture.pending) {
            capture.pending.insert(id, requested);
            names += 1;
            capture.handle_reply(id, Some(&raw(&json!({ "identifier": names.to_string() }))));
        }
        capture.wire.take_queued()
    };
    let count = |sent: &[Value], method: &str| sent.iter().filter(|one| one["method"] == method).count();
    let first = answered(&mut capture);
    assert_eq!((count(&first, "Runtime.addBinding"), count(&first, REMOVE_SCRIPT)), (1, 0));
    for _ in 0..3 {
        capture.set_categories(CapturedCategories::of(&[Category::Console]));
        let off = answered(&mut capture);
        let rest = capture.wire.take_queued();
        // The script itself, and the script that stops it in the current documents.
        let removed = count(&off, REMOVE_SCRIPT) + count(&rest, REMOVE_SCRIPT);
        assert_eq!((count(&off, "Runtime.removeBinding"), removed), (1, 2));
        assert!(capture.sessions.get("s0").expect("a page").scripts.is_empty());
        capture.set_categories(CapturedCategories::of(&[Category::Interaction]));
        let on = answered(&mut capture);
        assert_eq!((count(&on, "Runtime.addBinding"), count(&on, REMOVE_SCRIPT)), (1, 0));
        assert_eq!(capture.sessions.get("s0").expect("a page").scripts.len(), 1);
    }
    // A reply that arrives after the category was disabled.
    capture.set_categories(CapturedCategories::of(&[Category::Console]));
    capture.set_categories(CapturedCategories::of(&[Category::Interaction]));
    capture.set_categories(CapturedCategories::of(&[Category::Console]));
    answered(&mut capture);
    assert!(capture.sessions.get("s0").expect("a page").scripts.is_empty());
}

#[tokio::test]
async fn whatever_is_not_taken_in_is_counted() {
    let (mut capture, events) = of_a_page(&[Category::Network, Category::Console]).await;
    for id in 0..=MAX_REQUESTS {
        ask_for(&mut capture, id);
    }
    let message = MAX_REQUESTS as u64 + 1;
    for (method, params) in [
        ("Network.requestWillBeSent", json!({ "requestId": 1 })),
        ("Network.responseReceived", json!({})),
        ("Network.loadingFailed", json!([])),
        ("Runtime.consoleAPICalled", json!({ "args": 1 })),
        ("Runtime.exceptionThrown", json!({})),
    ] {
        capture.handle_notice(Some("s0"), method, &raw(&params), false);
    }
    for number in 0..=MAX_SESSIONS {
        attach(&mut capture, number);
    }
    events.settle();
    // Lost: the response of one request, five messages, and one page too many. A page that is known already is no loss.
    assert_eq!(event_after(&events, message).await["seq"], message + 1 + 5 + 1);
}

#[tokio::test]
async fn a_captcha_that_is_open_at_the_end_was_abandoned() {
    let (mut capture, events) = of_a_page(&[Category::Captcha]).await;
    let frame = |id: &str, parent: Value, url: &str| json!({ "frame": { "id": id, "parentId": parent, "loaderId": "l", "url": url } });
    for message in
        [frame("t0", Value::Null, "https://shop.test/pay"), frame("f", json!("t0"), "https://static.geetest.com/x")]
    {
        capture.handle_notice(Some("s0"), "Page.frameNavigated", &raw(&message), false);
    }
    let (_request, mut request) = watch::channel(CaptureRequest { number: 1, ..CaptureRequest::default() });
    capture.run(&mut request, &watch::Sender::new(0)).await.expect("nothing is wanted");
    let message = event_after(&events, 0).await;
    assert_eq!((&message["type"], &message["data"]["status"]), (&json!("captcha_solve_result"), &json!("abandoned")));
}
