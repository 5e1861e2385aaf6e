//! Telemetry reports all events of a session once, in order, and bounded.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casement_agent_protocol::AgentConfig;
use casement_agent_protocol::client::AgentClient;
use casement_agent_protocol::telemetry::{
    Addresses, CONFIGURE, Category, ConfigureRequest, EventLine, FOLLOW, FollowRequest,
};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cdp::{Cdp, EMPTY};
use crate::sandbox::{SLOWLY, Sandbox, TEST_TIMEOUT, config, signal};

/// A timeout that is longer than any operation of these tests.
pub(crate) const WITHIN: Duration = Duration::from_secs(120);

pub(crate) const EVERYTHING: [Category; 7] = [
    Category::Console,
    Category::Network,
    Category::Page,
    Category::Interaction,
    Category::System,
    Category::Screenshot,
    Category::Captcha,
];

/// The received events.
#[derive(Clone, Default)]
pub(crate) struct Received(Arc<Mutex<Vec<EventLine>>>);

impl Received {
    /// Receives the events after a number, in the background.
    pub(crate) async fn after(sandbox: &Sandbox, after: u64) -> Self {
        let received = Self::default();
        let lines = sandbox.client().await.download(FOLLOW, &FollowRequest { after }, WITHIN).await.unwrap();
        let into = received.clone();
        tokio::spawn(async move {
            let mut lines = std::pin::pin!(lines);
            let mut rest = Vec::new();
            while let Some(Ok(part)) = lines.next().await {
                rest.extend_from_slice(&part);
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    into.0.lock().push(serde_json::from_slice(&line).unwrap());
                }
            }
        });
        received
    }

    pub(crate) fn all(&self) -> Vec<EventLine> {
        self.0.lock().clone()
    }

    pub(crate) fn find(&self, wanted: impl Fn(&EventLine) -> bool) -> Option<EventLine> {
        self.0.lock().iter().find(|reported| wanted(reported)).cloned()
    }

    /// Waits for an event that matches, and returns it.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&EventLine) -> bool) -> EventLine {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(reported) = self.find(&wanted) {
                return reported;
            }
            if Instant::now() > deadline {
                for reported in self.all() {
                    let data = serde_json::to_string(&reported.data).unwrap();
                    println!("{} {} {data:.200}", reported.seq, reported.kind);
                }
                panic!("never told: {what}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn kind(&self, kind: &str) -> EventLine {
        self.until(kind, |reported| reported.kind == kind).await
    }
}

pub(crate) fn data(reported: &EventLine) -> Value {
    Value::Object(reported.data.clone().unwrap_or_default())
}

/// A configuration whose browser starts with a loaded page, which no later blank document replaces.
pub(crate) fn begun() -> AgentConfig {
    AgentConfig { start_url: Some(EMPTY.to_owned()), ..config(true) }
}

pub(crate) async fn capture(client: &AgentClient, categories: &[Category]) {
    let requested_state = ConfigureRequest { categories: categories.to_vec(), addresses: Addresses::Full };
    client.command(CONFIGURE, &requested_state, WITHIN).await.unwrap();
}

pub(crate) async fn click(cdp: &mut Cdp, page: &str, x: i64, y: i64) {
    for kind in ["mousePressed", "mouseReleased"] {
        let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
        cdp.call(Some(page), "Input.dispatchMouseEvent", params).await;
    }
}

pub(crate) async fn middle(cdp: &mut Cdp, page: &str, id: &str) -> (i64, i64) {
    let at = format!(
        "(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector('#{id}').getBoundingClientRect())"
    );
    let at = cdp.evaluate(page, &at).await;
    let whole = |at: &Value| at.as_f64().unwrap() as i64;
    (whole(&at[0]), whole(&at[1]))
}

pub(crate) async fn press(cdp: &mut Cdp, page: &str, key: &str) {
    for kind in ["keyDown", "keyUp"] {
        cdp.call(Some(page), "Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": key })).await;
    }
}

/// One browser serves all these checks, because its start takes most of the time.
#[tokio::test]
async fn everything_that_happens_on_a_page_is_reported() {
    let (sandbox, status, client) = Sandbox::with_browser(&begun(), "telemetry").await;
    // The page is loaded before the capture, so that the next document is its first captured navigation.
    let (mut cdp, page) = Cdp::at_first_page(&sandbox, &status).await;
    let target = cdp.pages().await.remove(0);
    let received = Received::after(&sandbox, 0).await;
    let began = Instant::now();
    capture(&client, &EVERYTHING).await;
    println!("configured after {:?}", began.elapsed());
    client.handout(Some("http://site.test/telemetry/".to_owned()), None, SLOWLY).await.unwrap();

    its_console_and_errors(&received, &target).await;
    its_requests(&received, &target).await;
    its_rendering(&received, &target).await;
    what_its_user_does(&received, &mut cdp, &page).await;
    what_it_opens(&received, &mut cdp, &page).await;
    a_captcha(&received, &client).await;
    a_picture(&received).await;

    let all = received.all();
    let numbers: Vec<u64> = all.iter().map(|reported| reported.seq).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "no gap, none twice");
    let now = all.last().unwrap().ts;
    assert!(all.iter().all(|reported| reported.ts.abs_diff(now) < 600_000_000), "in microseconds");
    println!("{} events", all.len());
    a_crash(&received, &sandbox).await;
}

async fn its_console_and_errors(received: &Received, target: &str) {
    let hello = received.until("hello", |reported| data(reported)["text"] == "hello").await;
    let hello_data = data(&hello);
    assert_eq!((hello.kind.as_str(), hello.category), ("console_log", Category::Console));
    assert_eq!(hello.source.event.as_deref(), Some("Runtime.consoleAPICalled"));
    assert_eq!(hello_data["args"], json!(["hello", "42", "{a: 'x', b: (...)}", "[1, 2]"]));
    assert_eq!((&hello_data["level"], &hello_data["target_type"]), (&json!("log"), &json!("page")));
    assert_eq!((&hello_data["target_id"], &hello_data["frame_id"]), (&json!(target), &json!(target)));
    assert_eq!(hello_data["url"], "http://site.test/telemetry/");
    assert_eq!(hello_data["nav_seq"], 1);
    assert!(hello_data["session_id"].is_string() && hello_data["loader_id"].is_string());
    assert!(hello_data["stack_trace"]["callFrames"][0]["url"].is_string(), "{hello_data}");
    received
        .until("a warning", |reported| data(reported)["level"] == "warning" && reported.kind == "console_log")
        .await;
    let failed = received.until("an error", |reported| data(reported)["text"] == "it failed").await;
    assert_eq!((failed.kind.as_str(), &data(&failed)["level"]), ("console_error", &json!("error")));
    assert!(data(&failed)["args"][1].as_str().unwrap().starts_with("Error: inner\n    at "), "{failed:?}");
    let thrown =
        received.until("a throw", |reported| data(reported)["text"] == "Uncaught TypeError: nobody catches this").await;
    assert_eq!(thrown.source.event.as_deref(), Some("Runtime.exceptionThrown"));
    assert!(data(&thrown)["line"].is_u64() && data(&thrown)["column"].is_u64());
    assert_eq!(data(&thrown)["source_url"], "http://site.test/telemetry/");
    received.until("a rejection", |reported| data(reported)["text"] == "Uncaught (in promise) Error: nor this").await;
    let framed = received.until("the frame", |reported| data(reported)["text"] == "from the frame").await;
    assert_eq!(data(&framed)["url"], "http://site.test/telemetry/frame");
    assert_ne!(data(&framed)["frame_id"], target);
    let worker = received.until("the worker", |reported| data(reported)["text"] == "from the worker").await;
    assert_eq!(data(&worker)["target_type"], "other");
}

async fn its_requests(received: &Received, target: &str) {
    let of = |kind: &'static str, path: &'static str| {
        move |reported: &EventLine| reported.kind == kind && data(reported)["url"] == format!("http://site.test{path}")
    };
    let document = data(&received.until("the document", of("network_request", "/telemetry/")).await);
    assert_eq!((&document["resource_type"], &document["method"]), (&json!("Document"), &json!("GET")));
    assert_eq!(document["frame_id"], target);
    let answered = data(&received.until("its answer", of("network_response", "/telemetry/")).await);
    assert_eq!((&answered["status"], &answered["mime_type"]), (&json!(200), &json!("text/html")));
    assert_eq!(answered["request_id"], document["request_id"]);
    assert_eq!(answered["body"].as_str().unwrap().len().min(4096), answered["body"].as_str().unwrap().len());
    assert!(answered["body"].as_str().unwrap().starts_with("<!doctype html>"));

    let posted = data(&received.until("a post", of("network_request", "/telemetry/data.json")).await);
    assert_eq!((&posted["method"], &posted["post_data"]), (&json!("POST"), &json!("asked=1")));
    assert_eq!((&posted["initiator_type"], &posted["resource_type"]), (&json!("script"), &json!("Fetch")));
    assert_eq!(
        (&posted["is_redirect"], &posted["document_url"]),
        (&json!(false), &json!("http://site.test/telemetry/"))
    );
    let headers = posted["headers"].as_object().unwrap();
    let header =
        |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value);
    for name in ["authorization", "x-auth-token", "x-csrf-token"] {
        assert_eq!(header(name), Some(&json!("[redacted]")), "{name}");
    }
    assert_eq!(header("x-plain"), Some(&json!("plain")));
    let graphql = data(&received.until("a query", of("network_request", "/telemetry/empty?graphql")).await);
    let body: Value = serde_json::from_str(graphql["post_data"].as_str().unwrap()).unwrap();
    let query = "mutation { login(user: \"[redacted]\", password: \"[redacted]\") { id } }";
    assert_eq!(body, json!({ "query": query, "variables": { "password": "[redacted]" } }));
    let response = received.until("the data", of("network_response", "/telemetry/data.json")).await;
    assert_eq!((data(&response)["body"].as_str().unwrap().len(), response.truncated), (8192, true));

    let moved = data(&received.until("a redirect", |reported| data(reported)["is_redirect"] == true).await);
    assert_eq!(moved["redirect_url"], "http://site.test/telemetry/moved");
    assert_eq!(moved["url"], "http://site.test/telemetry/empty");
    let first = data(&received.until("what redirects", of("network_response", "/telemetry/moved")).await);
    assert_eq!((&first["status"], &first["request_id"]), (&json!(302), &moved["request_id"]));
    let failed = data(&received.kind("network_loading_failed").await);
    assert_eq!((&failed["url"], &failed["canceled"]), (&json!("http://refused.test/x.png"), &json!(false)));
    assert_eq!((&failed["resource_type"], &failed["error_text"]), (&json!("Image"), &json!("blocked: csp")));
}

/// The test causes all events that may contain the address of a page, a request, a script or a frame.
#[tokio::test]
async fn no_event_shows_a_query_of_an_address_if_that_is_requested() {
    let (sandbox, status, client) = Sandbox::with_browser(&begun(), "addresses").await;
    let (mut cdp, page) = Cdp::at_first_page(&sandbox, &status).await;
    for (addresses, reported) in [(Addresses::Full, true), (Addresses::WithoutQuery, false)] {
        let before = Received::after(&sandbox, 0).await;
        let requested_state = ConfigureRequest { categories: EVERYTHING.to_vec(), addresses };
        client.command(CONFIGURE, &requested_state, WITHIN).await.unwrap();
        // The events so far have the addresses that were requested before.
        let after = before.all().last().map_or(0, |last| last.seq);
        let address = "http://site.test/telemetry/addresses?hidden=1";
        client.handout(Some(address.to_owned()), None, SLOWLY).await.unwrap();
        let received = Received::after(&sandbox, after).await;
        received.until("its requests", |reported| data(reported)["text"] == "all asked").await;
        for kind in ["page_navigation_settled", "network_loading_failed"] {
            received.kind(kind).await;
        }
        cdp.call(Some(&page), "Page.bringToFront", json!({})).await;
        click(&mut cdp, &page, 50, 50).await;
        received.kind("interaction_click").await;
        received.until("what it opens", |reported| data(reported)["text"] == "opened").await;
        client.handout(Some("http://site.test/telemetry/plain".to_owned()), None, SLOWLY).await.unwrap();
        received.kind("captcha_solve_result").await;
        let with_it = |one: &&EventLine| {
            let mut fields = data(one);
            // The body of a response is content, which may contain addresses.
            ["body", "png"].iter().for_each(|content| drop(fields.as_object_mut().unwrap().remove(*content)));
            fields.to_string().contains("hidden")
        };
        let kinds: std::collections::BTreeSet<String> =
            received.all().iter().filter(with_it).map(|one| one.kind.clone()).collect();
        assert_eq!(kinds.is_empty(), !reported, "{addresses:?}: {kinds:?}");
        assert!(!reported || kinds.len() >= 10, "{kinds:?}");
    }
}

async fn its_rendering(received: &Received, target: &str) {
    let navigated = data(&received.kind("page_navigation").await);
    assert_eq!((&navigated["url"], &navigated["frame_id"]), (&json!("http://site.test/telemetry/"), &json!(target)));
    assert!(navigated["nav_seq"].is_null() && navigated["loader_id"].is_string());
    let inner = received.until("the frame", |reported| {
        reported.kind == "page_navigation" && reported.data.as_ref().unwrap().contains_key("parent_frame_id")
    });
    assert_eq!(data(&inner.await)["parent_frame_id"], target);
    for kind in ["page_dom_content_loaded", "page_load"] {
        assert!(data(&received.kind(kind).await)["cdp_timestamp"].as_f64().unwrap() > 0.0);
    }
    let shift = data(&received.kind("page_layout_shift").await);
    assert!(shift["layout_shift_details"]["value"].as_f64().unwrap() > 0.0, "{shift}");
    assert_eq!((&shift["duration"], &shift["source_frame_id"]), (&json!(0.0), &json!(target)));
    let paint = data(&received.kind("page_lcp").await);
    assert!(paint["lcp_details"]["size"].as_f64().unwrap() > 0.0, "{paint}");
    assert!(paint["time"].as_f64().unwrap() > 1.0e12);
    received.kind("network_idle").await;
    let settled = received.kind("page_layout_settled").await;
    let whole = received.kind("page_navigation_settled").await;
    assert!(settled.seq < whole.seq && settled.seq > received.kind("page_load").await.seq);
}

async fn what_its_user_does(received: &Received, cdp: &mut Cdp, page: &str) {
    let (x, y) = middle(cdp, page, "button").await;
    click(cdp, page, x, y).await;
    let clicked = data(&received.kind("interaction_click").await);
    assert_eq!((&clicked["x"], &clicked["y"]), (&json!(x), &json!(y)));
    assert!(clicked["selector"].as_str().unwrap().starts_with("#button"), "{clicked}");
    assert!(["press me", "me"].contains(&clicked["text"].as_str().unwrap()), "{clicked}");
    let secrets = ["word", "card", "code", "f1", "cc_number", "f2", "f3", "f4", "f5", "f6"].map(|field| (field, "S1"));
    for (field, keys) in [("plain", "a")].into_iter().chain(secrets).chain([("shown", "b")]) {
        cdp.evaluate(page, &format!("document.querySelector('#{field}').focus()")).await;
        for key in keys.chars() {
            press(cdp, page, &key.to_string()).await;
        }
    }
    cdp.evaluate(page, "show('m3'); show('m7')").await;
    for (field, key) in
        ["m1", "m2", "m3", "m4", "m5", "m6", "m7"].map(|field| (field, "M")).into_iter().chain([("edited", "e")])
    {
        cdp.evaluate(page, &format!("enter('{field}')")).await;
        press(cdp, page, key).await;
    }
    cdp.evaluate(page, "reveal(); document.querySelector('#word').focus()").await;
    press(cdp, page, "T").await;
    cdp.evaluate(page, "focusHidden()").await;
    press(cdp, page, "H").await;
    cdp.evaluate(page, "focusDeep()").await;
    press(cdp, page, "S").await;
    for host in ["site.test", "apart.test"] {
        let source = format!("http://{host}/telemetry/frame?typed");
        let style = "position:fixed;left:0;top:0;width:300px;height:120px";
        let frame = format!(
            "(frame => {{ frame.src = '{source}'; frame.style = '{style}'; document.body.append(frame); globalThis.framed = frame }})
             (document.createElement('iframe'))"
        );
        cdp.evaluate(page, &frame).await;
        received.until("the frame", |reported| reported.kind == "console_log" && data(reported)["url"] == source).await;
        let clicked = |reported: &EventLine| reported.kind == "interaction_click" && data(reported)["url"] == source;
        let deadline = Instant::now() + TEST_TIMEOUT;
        while received.find(clicked).is_none() {
            assert!(Instant::now() < deadline, "the frame takes no click");
            // The frame takes no click before it is drawn.
            click(cdp, page, 150, 60).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        press(cdp, page, "P").await;
        cdp.evaluate(page, "framed.remove()").await;
    }
    cdp.evaluate(page, "document.querySelector('#shown').focus()").await;
    // The browser process receives the keys, and learns of the focus from the page.
    cdp.drawn(page).await;
    press(cdp, page, "Z").await;
    let last = received.until("the last key", |reported| data(reported)["key"] == "Z").await.seq;
    let keys: Vec<Value> =
        received.all().iter().filter(|reported| reported.kind == "interaction_key").map(data).collect();
    assert_eq!(keys.iter().map(|key| key["key"].as_str().unwrap()).collect::<String>(), "abeZ", "{keys:?}");
    assert_eq!((&keys[0]["selector"], &keys[0]["tag"]), (&json!("#plain"), &json!("INPUT")));

    cdp.evaluate(page, "scrollTo(0, 40)").await;
    let wheel = json!({ "type": "mouseWheel", "x": 100, "y": 100, "deltaX": 0, "deltaY": 400 });
    cdp.call(Some(page), "Input.dispatchMouseEvent", wheel).await;
    // The scrolling of an earlier focus does not count: a wheel that still turns would move the next click's target.
    let by_the_wheel = |reported: &EventLine| {
        reported.seq > last
            && reported.kind == "interaction_scroll_settled"
            && data(reported)["to_y"].as_i64() >= Some(400)
    };
    let scrolled = data(&received.until("the wheel's scrolling", by_the_wheel).await);
    assert_eq!(
        (&scrolled["from_x"], &scrolled["to_x"], &scrolled["target_selector"]),
        (&json!(0), &json!(0), &json!("html"))
    );
    assert!(scrolled["to_y"].as_i64() > scrolled["from_y"].as_i64(), "{scrolled}");
    cdp.evaluate(page, "document.querySelector('#button').click(); scrollTo(0, 0)").await;
}

async fn what_it_opens(received: &Received, cdp: &mut Cdp, page: &str) {
    cdp.until(page, "scrollY", &json!(0)).await;
    let (x, y) = middle(cdp, page, "popup").await;
    click(cdp, page, x, y).await;
    let opened = data(&received.kind("page_tab_opened").await);
    assert_eq!(opened["target_type"], "page");
    assert!(opened["opener_id"].is_string() && opened["session_id"].is_null(), "{opened}");
    let first = received.until("its first word", |reported| data(reported)["text"] == "the first word").await;
    assert_eq!(data(&first)["target_id"], opened["target_id"]);
}

async fn a_captcha(received: &Received, client: &AgentClient) {
    client.handout(Some("http://site.test/telemetry/guarded".to_owned()), None, SLOWLY).await.unwrap();
    let solved = data(&received.kind("captcha_solve_result").await);
    assert_eq!((&solved["captcha_type"], &solved["status"]), (&json!("geetest"), &json!("success")), "{solved}");
    assert_eq!((&solved["website_host"], &solved["website_path"]), (&json!("site.test"), &json!("/telemetry/guarded")));
    assert!(solved["duration_ms"].as_u64().is_some());

    client.handout(Some("http://site.test/telemetry/unsolved".to_owned()), None, SLOWLY).await.unwrap();
    let ended = |status: &'static str| {
        move |reported: &EventLine| reported.kind == "captcha_solve_result" && data(reported)["status"] == status
    };
    let failed = data(&received.until("one that is not loaded", ended("failure")).await);
    assert_eq!(
        (&failed["captcha_type"], &failed["error_code"]),
        (&json!("hcaptcha"), &json!("frame_not_loaded")),
        "{failed}"
    );
    assert_eq!(failed["website_path"], "/telemetry/unsolved");
    let left = data(&received.until("one that goes away", ended("abandoned")).await);
    assert_eq!((&left["captcha_type"], &left["error_code"]), (&json!("geetest"), &Value::Null), "{left}");
}

async fn a_picture(received: &Received) {
    let shown = data(&received.kind("monitor_screenshot").await);
    assert!(shown["png"].as_str().unwrap().starts_with("iVBORw0KGgo"));
}

async fn a_crash(received: &Received, sandbox: &Sandbox) {
    let browser = sandbox.browser();
    // The processes of frames that were just removed are ending, so a listed process may not exist any more.
    let kill = |renderer: &u32| Command::new("kill").args(["-s", "KILL", &renderer.to_string()]).status().unwrap();
    let killed = sandbox.processes("--type=renderer").iter().filter(|renderer| kill(renderer).success()).count();
    assert!(killed > 0, "no page has a process");
    let crashed = |name: &'static str| move |reported: &EventLine| data(reported)["service_name"] == name;
    let page = received.until("a page's crash", crashed("chromium-renderer")).await;
    assert_eq!((page.kind.as_str(), page.category), ("service_crashed", Category::System));
    // The other processes that were killed may be reported first.
    let of_the_site = |reported: &EventLine| {
        let data = data(reported);
        data["url"].as_str().is_some_and(|url| url.starts_with("http://site.test/telemetry/"))
    };
    let crashed_page = |reported: &EventLine| reported.kind == "page_crashed" && of_the_site(reported);
    let page = received.until("the crashed page", crashed_page).await;
    assert_eq!((page.category, page.source.event.as_deref()), (Category::Page, Some("Inspector.targetCrashed")));
    let page = data(&page);
    let members: Vec<&String> = page.as_object().unwrap().keys().collect();
    assert_eq!(members, ["target_id", "target_type", "url"], "{page}");
    assert!(["page", "iframe"].contains(&page["target_type"].as_str().unwrap()), "{page}");
    assert!(page["url"].as_str().unwrap().starts_with("http://site.test/telemetry/"), "{page}");
    signal(browser, "KILL");
    let whole = data(&received.until("the browser's crash", crashed("chromium")).await);
    assert_eq!(whole["phase"], "running");
    assert!(whole["pid"].is_u64(), "{whole}");
}
