//! A session without a display.

use std::time::{Duration, Instant};

use casement_agent_protocol::client::{ClientError, dial};
use casement_agent_protocol::computer::{Action, Perform};
use casement_agent_protocol::{Channel, ErrorCode, Event, ExitReason, Region, State, Status, Viewport};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cdp::Cdp;
use crate::sandbox::{NONCE, SLOWLY, Sandbox, TEST_TIMEOUT, config, field, news, signal, try_signal};

/// One browser serves all these checks, because its start takes most of the time.
#[tokio::test]
async fn a_headless_session_from_its_start_to_its_crash() {
    let mut config = config(true);
    config.stealth = true;
    config.start_url = Some("http://localhost/".to_owned());
    let mut sandbox = Sandbox::start(&config);
    let mut events = sandbox.client().await.events().await.unwrap();
    assert_eq!(news(&mut events).await, Some(Event::Hello { version: 1, nonce: NONCE.to_owned() }));
    let status = tokio::time::timeout(Duration::from_secs(60), sandbox.ready("headless, stealth")).await.unwrap();
    assert_eq!((&status.state, status.nonce.as_str()), (&State::Ready, NONCE));
    assert_eq!(news(&mut events).await, Some(Event::Ready));

    chromium_is_sandboxed(&sandbox, &status).await;
    sandbox.memory("casement-agent");
    sandbox.memory("chromium");
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    automation_does_not_show(&mut cdp, &page, &status).await;
    nothing_gets_out_past_the_proxy(&mut cdp, &page, &sandbox).await;
    a_hand_out_begins_to_open_an_address(&sandbox, &mut cdp, &page).await;
    pictures_are_exact(&sandbox, &mut cdp, &page).await;
    every_page_has_the_size_of_the_viewport(&sandbox, &mut cdp, &page).await;
    a_webdriver_client_can_attach(&sandbox).await;
    a_page_that_does_not_answer_is_not_handed_out(&sandbox).await;

    signal(sandbox.browser(), "KILL");
    let ended = news(&mut events).await;
    assert!(
        matches!(&ended, Some(Event::Exited { reason: ExitReason::Crashed, detail }) if detail.contains('9')),
        "{ended:?}"
    );
    assert_eq!(news(&mut events).await, None);
    assert_eq!(sandbox.ended().await, Some(1));
}

#[tokio::test]
async fn a_page_that_a_client_has_sized_keeps_its_size_when_the_viewport_changes() {
    let (sandbox, status, client) = Sandbox::with_browser(&config(true), "sized by a client").await;
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let target = cdp.pages().await.remove(0);
    let first = cdp.attach(&target).await;
    let size = "innerWidth + 'x' + innerHeight";
    cdp.until(&first, size, &json!("900x700")).await;
    let sized = json!({ "width": 500, "height": 400, "deviceScaleFactor": 1, "mobile": false });
    let larger = Viewport { width: 1100, height: 800, refresh_rate: 60 };

    // It is the only page: no page can follow the viewport, and nothing is changed.
    cdp.call(Some(&first), "Emulation.setDeviceMetricsOverride", sized.clone()).await;
    cdp.until(&first, size, &json!("500x400")).await;
    client.viewport(larger).await.unwrap_err();
    assert_eq!(client.status().await.unwrap().viewport, status.viewport);
    cdp.call(Some(&first), "Emulation.clearDeviceMetricsOverride", json!({})).await;
    cdp.until(&first, size, &json!("900x700")).await;
    cdp.until(&first, "screen.width + 'x' + screen.height", &json!("900x700")).await;

    // The other pages follow.
    let second = cdp.page("about:blank#new", true).await;
    cdp.until(&second, size, &json!("900x700")).await;
    cdp.call(Some(&first), "Emulation.setDeviceMetricsOverride", sized).await;
    cdp.until(&first, size, &json!("500x400")).await;
    client.viewport(larger).await.unwrap();
    assert_eq!(client.status().await.unwrap().viewport, larger);
    cdp.until(&second, size, &json!("1100x800")).await;
    assert_eq!(cdp.evaluate(&first, size).await, json!("500x400"));
}

#[tokio::test]
async fn a_headless_session_that_hides_nothing_has_exact_pages_and_pictures_too() {
    let sandbox = Sandbox::start(&config(true));
    let status = tokio::time::timeout(Duration::from_secs(60), sandbox.ready("headless")).await.unwrap();
    assert_eq!(status.state, State::Ready, "{status:?}");
    sandbox.memory("chromium");
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    a_hand_out_begins_to_open_an_address(&sandbox, &mut cdp, &page).await;
    pictures_are_exact(&sandbox, &mut cdp, &page).await;
    every_page_has_the_size_of_the_viewport(&sandbox, &mut cdp, &page).await;
}

/// The browser's own services send requests right after the start, and again after a failure that looks temporary.
#[tokio::test]
async fn an_idle_browser_asks_for_nothing_and_sends_a_form_to_no_one() {
    let displays = [(true, false), (true, true), (false, false)];
    let sandboxes = displays.map(|(headless, stealth)| {
        let mut config = config(headless);
        config.stealth = stealth;
        Sandbox::start(&config)
    });
    for sandbox in &sandboxes {
        assert_eq!(sandbox.ready("idle").await.state, State::Ready);
    }
    let watched_until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < watched_until {
        for (sandbox, display) in sandboxes.iter().zip(displays) {
            let seen = sandbox.seen.lock().clone();
            assert!(seen.is_empty(), "headless, stealth: {display:?}: {seen:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for sandbox in &sandboxes {
        sandbox.client().await.handout(Some("http://form.test/".to_owned()), None, SLOWLY).await.unwrap();
    }
    for sandbox in &sandboxes {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while sandbox.seen.lock().is_empty() {
            assert!(Instant::now() < deadline, "the form is not opened");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Types words that no dictionary contains into the focused field: with a display, the address bar.
        let typed = Action::Type { text: "mispeled wrods are tolled to nobuddy ".to_owned(), delay_ms: 0 };
        let within = Duration::from_secs(60);
        let client = sandbox.client().await;
        client.command("/v1/computer/perform", &Perform { actions: vec![typed] }, within).await.unwrap();
    }
    // The absence of a request has no event to wait for. Without the switch the request came after 30 ms.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for sandbox in &sandboxes {
        let seen = sandbox.seen.lock().clone();
        assert!(seen.iter().all(|address| address.starts_with("http://form.test/")), "{seen:?}");
        assert_eq!(seen.first().map(String::as_str), Some("http://form.test/"));
    }
}

async fn chromium_is_sandboxed(sandbox: &Sandbox, status: &Status) {
    assert!(status.chromium_argv.iter().any(|arg| arg.starts_with("--user-data-dir=")), "{:?}", status.chromium_argv);
    for pid in sandbox.processes("chromium") {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!line.contains("--no-sandbox"), "{line}");
    }
    // A renderer that was just started for future pages enters its sandbox before it does anything else.
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let renderers = sandbox.processes("--type=renderer");
        let locked: Vec<_> = renderers.iter().map(|pid| (field(*pid, "Seccomp:"), field(*pid, "CapEff:"))).collect();
        let whole = (Some("2".to_owned()), Some("0000000000000000".to_owned()));
        if !locked.is_empty() && locked.iter().all(|one| *one == whole) {
            break;
        }
        assert!(Instant::now() < deadline, "{renderers:?}: {locked:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn automation_does_not_show(cdp: &mut Cdp, page: &str, status: &Status) {
    assert!(!status.user_agent.contains("Headless"), "{}", status.user_agent);
    cdp.until(page, "typeof window.result", &json!("object")).await;
    let seen = cdp.evaluate(page, "window.result").await;
    for place in ["page", "worker", "frame", "service"] {
        let agent = seen[place]["agent"].as_str().unwrap();
        let major = agent.split("Chrome/").nth(1).and_then(|rest| rest.split('.').next()).unwrap();
        assert!(!agent.contains("Headless") && status.browser_version.contains(major), "{place}: {agent}");
        assert!(!seen[place]["brands"].as_str().unwrap().contains("Headless"), "{place}: {seen}");
        assert!(seen[place]["full"].as_str().unwrap().contains(&format!("{major}.0.")), "{place}: {seen}");
        assert_ne!(seen[place]["webdriver"], true, "{place}: {seen}");
    }
    assert_eq!((&seen["page"]["webdriver"], &seen["frame"]["webdriver"]), (&json!(false), &json!(false)));
    let headers = seen["headers"].as_str().unwrap().to_lowercase();
    assert!(headers.contains("sec-ch-ua:") && !headers.contains("headless"), "{headers}");
}

async fn nothing_gets_out_past_the_proxy(cdp: &mut Cdp, page: &str, sandbox: &Sandbox) {
    for address in ["http://127.0.0.1:9222/json/version", "http://[::1]:9222/json", "http://localhost:9222/json"] {
        let read = format!("fetch('{address}', {{ mode: 'no-cors' }}).then(() => 0, () => 1)");
        cdp.evaluate(page, &read).await;
        assert!(sandbox.seen.lock().iter().any(|seen| seen == address), "{address} did not go to the proxy");
    }
    let socket = "new Promise(done => { const s = new WebSocket('ws://127.0.0.1:9222/devtools/browser/x');\
                  s.onopen = () => done('open'); s.onerror = () => done('refused'); })";
    assert_eq!(cdp.evaluate(page, socket).await, "refused");
    // The gathering may not complete if nothing answers. The candidates that were found by then count.
    let gather = "new Promise(async done => {\
        const c = window.kept = new RTCPeerConnection(); const found = []; setTimeout(() => done(found), 2000);\
        c.onicecandidate = e => e.candidate ? found.push(e.candidate.candidate) : done(found);\
        c.createDataChannel('x'); await c.setLocalDescription(await c.createOffer()); })";
    assert_eq!(cdp.evaluate(page, gather).await, json!([]));
}

async fn a_hand_out_begins_to_open_an_address(sandbox: &Sandbox, cdp: &mut Cdp, page: &str) {
    let client = sandbox.client().await;
    client.handout(Some("http://page.test/".to_owned()), None, SLOWLY).await.unwrap();
    cdp.until(page, "document.readyState + ' ' + document.title", &json!("complete coloured")).await;
    let mut times = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        client.handout(None, None, SLOWLY).await.unwrap();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!("hand-out: median {:?}, slowest {:?}", times[10], times[19]);
}

async fn pictures_are_exact(sandbox: &Sandbox, cdp: &mut Cdp, page: &str) {
    let client = sandbox.client().await;
    let whole = decode(&client.screenshot(None, LARGE).await.unwrap());
    assert_eq!(whole.size, (900, 700));
    assert_eq!((whole.at(50, 50), whole.at(50, 150)), ([255, 0, 0], [0, 0, 255]));
    let region = Region { x: 90, y: 95, width: 31, height: 17 };
    let part = decode(&client.screenshot(Some(region), LARGE).await.unwrap());
    assert_eq!(part.size, (31, 17));
    assert_eq!((part.at(5, 3), part.at(5, 10)), ([255, 0, 0], [0, 0, 255]));
    cdp.evaluate(page, "scrollTo(0, 40)").await;
    let scrolled = decode(&client.screenshot(Some(region), LARGE).await.unwrap());
    assert_eq!((scrolled.size, scrolled.at(5, 3)), ((31, 17), [0, 0, 255]));
    for outside in [Region { x: 890, ..region }, Region { width: 0, ..region }, Region { y: u32::MAX, ..region }] {
        assert_eq!(refusal(client.screenshot(Some(outside), LARGE).await), ErrorCode::OutOfRange);
    }
}

async fn every_page_has_the_size_of_the_viewport(sandbox: &Sandbox, cdp: &mut Cdp, page: &str) {
    let size = "innerWidth + 'x' + innerHeight";
    let screen = "[screenX, screenY, screen.width, screen.height, screen.availWidth, screen.availHeight].join()";
    assert_eq!(cdp.evaluate(page, screen).await, "0,0,900,700,900,700");
    let tab = cdp.page("about:blank#new", false).await;
    let window = cdp.page("about:blank#new", true).await;
    // A new window gets its size a moment after it was opened.
    for session in [page, &tab, &window] {
        cdp.until(session, size, &json!("900x700")).await;
    }
    let smaller = Viewport { width: 640, height: 480, refresh_rate: 30 };
    let larger = Viewport { width: 1280, height: 960, refresh_rate: 60 };
    let client = sandbox.client().await;
    for viewport in [smaller, larger] {
        let began = Instant::now();
        client.viewport(viewport).await.unwrap();
        println!("viewport of {} pages: {:?}", cdp.pages().await.len(), began.elapsed());
        let wanted = format!("{}x{}", viewport.width, viewport.height);
        for session in [page, &tab, &window] {
            cdp.until(session, size, &json!(wanted)).await;
            let (width, height) = (viewport.width, viewport.height);
            cdp.until(session, "[screen.width, screen.height].join()", &json!(format!("{width},{height}"))).await;
        }
        let later = cdp.page("about:blank#new", true).await;
        cdp.until(&later, size, &json!(wanted)).await;
        assert_eq!(client.status().await.unwrap().viewport, viewport);
        let picture = decode(&client.screenshot(None, LARGE).await.unwrap());
        assert_eq!(picture.size, (viewport.width, viewport.height));
    }
    assert_eq!(refusal(client.viewport(Viewport { width: 0, ..smaller }).await), ErrorCode::OutOfRange);
}

async fn a_webdriver_client_can_attach(sandbox: &Sandbox) {
    let began = Instant::now();
    let options = json!({ "debuggerAddress": "127.0.0.1:9222" });
    let body = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
    let session = webdriver(sandbox, "POST", "/session", &body).await.unwrap();
    println!("webdriver: first session after {:?}", began.elapsed());
    let id = session["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{session}")).to_owned();
    let script = json!({ "script": "return navigator.webdriver", "args": [] });
    let answer = webdriver(sandbox, "POST", &format!("/session/{id}/execute/sync"), &script).await;
    assert_eq!(answer.unwrap()["value"], false);
    webdriver(sandbox, "DELETE", &format!("/session/{id}"), &json!({})).await.unwrap();
    let driver = sandbox.processes("/usr/bin/chromedriver")[0];
    signal(driver, "KILL");
    // A process that is ending still accepts connections for a moment.
    let deadline = Instant::now() + TEST_TIMEOUT;
    while webdriver(sandbox, "GET", "/status", &json!({})).await.is_none_or(|status| status["value"]["ready"] != true) {
        assert!(Instant::now() < deadline, "chromedriver is not started again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!sandbox.processes("/usr/bin/chromedriver").contains(&driver));
}

pub(crate) async fn webdriver(sandbox: &Sandbox, method: &str, path: &str, body: &Value) -> Option<Value> {
    let socket = dial(sandbox.socket("dial"), Channel::WebDriver).await.ok()?;
    let mut stream = TcpStream::from_std(socket).unwrap();
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:9515\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    loop {
        // The driver keeps the connection open: the response is complete once its JSON is.
        let text = String::from_utf8_lossy(&answer);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(value) = serde_json::from_str(body)
        {
            return Some(value);
        }
        let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_buf(&mut answer)).await.unwrap();
        if read.ok()? == 0 {
            return None;
        }
    }
}

async fn a_page_that_does_not_answer_is_not_handed_out(sandbox: &Sandbox) {
    let client = sandbox.client().await;
    // The processes of pages that were just closed are ending, so a listed process may not exist any more.
    let mut renderers = sandbox.processes("--type=renderer");
    renderers.retain(|pid| try_signal(*pid, "STOP"));
    let refused = client.handout(None, None, Some(Duration::from_millis(300))).await;
    renderers.iter().for_each(|pid| signal(*pid, "CONT"));
    assert_eq!(refusal(refused), ErrorCode::BrowserHung);
    client.handout(None, None, SLOWLY).await.unwrap();
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> ErrorCode {
    match result {
        Err(ClientError::Refused(body)) => body.code,
        other => panic!("expected a refusal: {other:?}"),
    }
}

pub(crate) struct Picture {
    pub(crate) size: (u32, u32),
    channels: usize,
    pixels: Vec<u8>,
}

impl Picture {
    pub(crate) fn at(&self, x: usize, y: usize) -> [u8; 3] {
        let start = (y * self.size.0 as usize + x) * self.channels;
        self.pixels[start..start + 3].try_into().unwrap()
    }
}

/// A maximum size of pictures that no picture of a test reaches.
pub(crate) const LARGE: (u32, u32) = (8192, 8192);

pub(crate) fn decode(png: &[u8]) -> Picture {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    Picture { size: (info.width, info.height), channels: info.color_type.samples(), pixels }
}
