//! A browser that runs outside of the sandbox.

use std::time::Duration;

use casement_agent_protocol::client::{AgentClient, dial};
use casement_agent_protocol::computer::{Action, Button, ClickKind, Perform, Point};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::fs::LIST as LIST_FILES;
use casement_agent_protocol::telemetry::{Addresses, CONFIGURE, ConfigureRequest};
use casement_agent_protocol::view::{ANSWER, DialogAnswer};
use casement_agent_protocol::{AgentConfig, Channel, ErrorCode, REMOTE_PATH, Region, Status, Viewport};
use casement_test_support::cdp::Cdp;
use casement_test_support::png_size;
use casement_test_support::remote_browser::{Bridge, RemoteChromium, serve_page, socket_in};
use serde_json::{Value, json};

use crate::dialogs::until_open;
use crate::headless::refusal;
use crate::repl::written;
use crate::sandbox::{RUNNER, SLOWLY, Sandbox, TEST_TIMEOUT, config};
use crate::script::{error, result};
use crate::telemetry::{EVERYTHING, Received};
use crate::{curl, replay, webmcp};

const PAGE: &str = "<!doctype html><title>remote</title><style>body{margin:0;background:red}</style>\
    <input id=line style='position:absolute;left:10px;top:10px;width:200px'>\
    <button style='position:absolute;left:10px;top:60px;width:100px;height:30px' onclick='window.clicked=event.detail'>b</button>\
    <div style='height:5000px'></div><script>document.modelContext?.registerTool(\
    { name: 'sum', description: 'adds', execute: async ({ a, b }) => ({ sum: a + b }) });\
    fetch('/data').then(() => console.log('fetched'))</script>";
pub(crate) const SIZE: &str = "[innerWidth, innerHeight, devicePixelRatio].join()";

pub(crate) fn remote() -> AgentConfig {
    AgentConfig { remote: Some(REMOTE_PATH.into()), script_runner: Some(RUNNER.into()), ..config(true) }
}

/// A remote browser and the sandbox that drives it.
pub(crate) struct Stage {
    pub(crate) config: AgentConfig,
    pub(crate) sandbox: Sandbox,
    pub(crate) client: AgentClient,
    pub(crate) status: Status,
    pub(crate) browser: RemoteChromium,
    pub(crate) bridge: Option<Bridge>,
    /// A client of the browser beside the sandbox, and its session with the first page.
    pub(crate) cdp: Cdp,
    pub(crate) page: String,
}

impl Stage {
    pub(crate) async fn with(config: AgentConfig, args: &[&str]) -> Self {
        let browser = RemoteChromium::start(args).unwrap();
        let sandbox = Sandbox::start(&config);
        let bridge = Bridge::at(&socket_in(&sandbox.socket("egress")), &browser).unwrap();
        let status = sandbox.ready("remote").await;
        let client = sandbox.client().await;
        let mut cdp = browser.connect().await.unwrap();
        let target = cdp.pages().await.unwrap().remove(0);
        let page = cdp.attach(&target).await.unwrap();
        Self { config, sandbox, client, status, browser, bridge: Some(bridge), cdp, page }
    }

    pub(crate) async fn at_page(args: &[&str]) -> Self {
        let url = serve_page(PAGE).await.unwrap();
        let mut stage = Self::with(AgentConfig { start_url: Some(url), ..remote() }, args).await;
        stage.until("document.title + document.readyState", json!("remotecomplete")).await;
        stage
    }

    pub(crate) async fn until(&mut self, expression: &str, wanted: Value) {
        self.cdp.until(&self.page, expression, &wanted).await.unwrap();
    }

    async fn perform(&self, actions: Vec<Action>) {
        self.client.command("/v1/computer/perform", &Perform { actions }, TEST_TIMEOUT).await.unwrap();
    }
}

fn click(x: u32, y: u32, times: u32) -> Action {
    let at = Point { x, y };
    Action::Click { at, button: Button::Left, kind: ClickKind::Click, times, hold: vec![] }
}

async fn has_exact_sizes(stage: &mut Stage) {
    assert_eq!(stage.cdp.evaluate(&stage.page, SIZE).await.unwrap(), json!("900,700,1"));
    let whole = stage.client.screenshot(None, (900, 700)).await.unwrap();
    assert_eq!(png_size(&whole), Some((900, 700)));
    let region = Region { x: 880, y: 10, width: 20, height: 690 };
    let part = stage.client.screenshot(Some(region), (20, 690)).await.unwrap();
    assert_eq!(png_size(&part), Some((20, 690)));
    for (width, height) in [(1600, 1000), (640, 480), (900, 700)] {
        stage.client.viewport(Viewport { width, height, refresh_rate: 60 }).await.unwrap();
        stage.until(SIZE, json!(format!("{width},{height},1"))).await;
        let picture = stage.client.screenshot(None, (width, height)).await.unwrap();
        assert_eq!(png_size(&picture), Some((width, height)));
    }
    for new_window in [false, true] {
        let new = json!({ "url": "data:text/html,new", "newWindow": new_window });
        let made = stage.cdp.call(None, "Target.createTarget", &new).await.unwrap();
        let session = stage.cdp.attach(made["targetId"].as_str().unwrap()).await.unwrap();
        stage.cdp.until(&session, SIZE, &json!("900,700,1")).await.unwrap();
    }
}

#[tokio::test]
async fn pages_and_pictures_of_a_remote_browser_have_the_exact_size() {
    let mut stage = Stage::at_page(&[]).await;
    assert!(stage.status.browser_version.starts_with("Chrome/"), "{:?}", stage.status);
    assert_eq!(stage.status.browser_ws_path, "");
    for program in ["chromium", "Xvfb", "chromedriver"] {
        assert_eq!(stage.sandbox.processes(program), Vec::<u32>::new(), "{program}");
    }
    has_exact_sizes(&mut stage).await;
    let requests = stage.bridge.as_ref().unwrap().requests.lock().clone();
    assert!(requests.iter().all(|(first, host)| first == "GET / HTTP/1.1" && host == "localhost"), "{requests:?}");
}

#[tokio::test]
async fn a_size_that_the_window_does_not_give_is_emulated() {
    let mut stage = Stage::at_page(&["--force-device-scale-factor=2"]).await;
    has_exact_sizes(&mut stage).await;
}

#[tokio::test]
async fn clicks_and_text_arrive_in_the_page_of_a_remote_browser() {
    let mut stage = Stage::at_page(&[]).await;
    let text = "Grüße, 漢字 😀".to_owned();
    stage.perform(vec![click(50, 75, 2), click(50, 20, 1), Action::Type { text, delay_ms: 0 }]).await;
    stage.until("[window.clicked, line.value].join()", json!("2,Grüße, 漢字 😀")).await;
    let scroll = Action::Scroll { at: Point { x: 300, y: 300 }, right: 0, down: 3, hold: vec![] };
    stage.perform(vec![scroll]).await;
    stage.until("scrollY > 0", json!(true)).await;
}

#[tokio::test]
async fn scripts_and_the_repl_drive_a_remote_browser() {
    let stage = Stage::at_page(&[]).await;
    assert_eq!(result(&stage.client, "return page.title()").await, json!("remote"));
    let several = "for (const n of [1, 2, 3]) await (await context.newPage()).goto(`data:text/html,<title>${n}</title>`);
        for (const p of context.pages()) if (await p.title() === '2') await p.bringToFront(); return context.pages().length";
    assert_eq!(result(&stage.client, several).await, json!(4));
    assert_eq!(result(&stage.client, "return page.title()").await, json!("2"), "the page in front");
    assert_eq!(written(&stage.client, "repl.write(await page.title(), 6 * 7)").await, "2 42");
    let refused = error(&stage.client, "return (await fetch('http://localhost:1/')).status").await;
    assert!(refused.contains("fetch failed"), "{refused}");
    stage.sandbox.memory("node");
    stage.sandbox.memory("casement-agent");
}

#[tokio::test]
async fn telemetry_of_a_remote_browser_arrives() {
    let mut stage = Stage::at_page(&[]).await;
    let request = ConfigureRequest { categories: EVERYTHING.to_vec(), addresses: Addresses::Full };
    stage.client.command(CONFIGURE, &request, TEST_TIMEOUT).await.unwrap();
    let received = Received::after(&stage.sandbox, 0).await;
    stage.cdp.evaluate(&stage.page, "location.reload()").await.unwrap();
    for kind in ["console_log", "network_request", "network_response", "page_navigation"] {
        received.until(kind, |event| event.kind == kind).await;
    }
}

#[tokio::test]
async fn a_recording_of_a_remote_browser_is_a_video() {
    let stage = Stage::at_page(&[]).await;
    replay::start(&stage.client, "one", 60).await.unwrap();
    stage.perform(vec![click(50, 75, 1)]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.sandbox.memory("ffmpeg");
    let stopped = replay::stop(&stage.client, "one").await;
    let video = replay::read(&stage.client, "one", 0, None).await.unwrap();
    assert!(video.len() > 1000 && &video[4..8] == b"ftyp", "{stopped:?}");
}

#[tokio::test]
async fn dialogs_tools_and_requests_work_with_a_remote_browser() {
    let mut stage = Stage::at_page(&[]).await;
    stage.client.handout(None, None, SLOWLY).await.unwrap();
    let tools = webmcp::tools(&stage.client, 1).await;
    let called = webmcp::invoke(&stage.client, &tools[0].tool_ref, json!({ "a": 1, "b": 2 }), 60_000).await.unwrap();
    assert_eq!(called.output, Some(json!({ "sum": 3 })));
    let url = serve_page("<p>an answer").await.unwrap();
    let (head, body) = curl::send(&stage.client, &curl::get(&url)).await.unwrap();
    assert_eq!((head.status, body.as_str()), (200, "<p>an answer"));

    stage.cdp.evaluate(&stage.page, "void setTimeout(() => { window.said = prompt('Name?') }, 0)").await.unwrap();
    let open = until_open(&stage.client, 1).await.dialogs.remove(0);
    let answer = DialogAnswer { page: open.page, accept: true, text: "Zoë".to_owned() };
    stage.client.command(ANSWER, &answer, TEST_TIMEOUT).await.unwrap();
    stage.until("window.said", json!("Zoë")).await;
}

#[tokio::test]
async fn what_a_remote_browser_does_not_have_is_refused() {
    let stage = Stage::with(remote(), &[]).await;
    let list = stage.client.call::<Value>(LIST_FILES, &json!({ "path": "/tmp" }), TEST_TIMEOUT).await;
    assert_eq!(refusal(list.map(drop)), ErrorCode::NotSupported);
    let exec = stage.client.call::<Value>("/v1/process/status", &json!({}), TEST_TIMEOUT).await;
    assert_eq!(refusal(exec.map(drop)), ErrorCode::NotSupported);
    let restarted = stage.client.restart(&RestartRequest::default()).await;
    assert_eq!(refusal(restarted.map(drop)), ErrorCode::NotSupported);
    for channel in [Channel::Cdp, Channel::WebDriver] {
        let dialled = dial(stage.sandbox.socket("dial"), channel).await.unwrap_err();
        assert!(dialled.to_string().contains("remote_browser"), "{dialled}");
    }
}
