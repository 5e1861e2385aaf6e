//! Tests of a headless browser from its caller's side.

use std::time::{Duration, Instant};

use casement_chromium::Channel;
use casement_domain::browser::{
    BrowserEngine, BrowserPolicy, EngineError, EngineFault, HandOut, Region, Shape, StartUrl, Viewport,
};
use casement_domain::ids::BrowserId;
use casement_webdriver::Connect;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::cdp::Cdp;
use super::fake_egress::{REFUSAL, SITE};
use super::support::{Fixture, chromium, hand_out, launch, new_id, png_size, processes, sized};

/// The properties by which a page may detect automation.
const AUTOMATION_SIGNS: &str = "(async () => JSON.stringify({
    webdriver: navigator.webdriver, agent: navigator.userAgent,
    brands: (navigator.userAgentData?.brands ?? []).map(b => b.brand).join(),
    full: JSON.stringify(await navigator.userAgentData?.getHighEntropyValues(['fullVersionList']) ?? {}) }))()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_headless_browser_is_what_its_shape_says() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let policy = json!({ "URLBlocklist": ["blocked.test"], "BookmarkBarEnabled": true });
    let policy = BrowserPolicy::parse(policy.as_object().cloned().unwrap_or_default()).expect("allowed");
    let shape = Shape { headless: true, stealth: true, policy: Some(policy), ..sized(1000, 700) };
    let launch = launch(shape);
    let id = launch.id;
    let started = fixture.engine.start(&launch).await?;
    eprintln!("up in {:?}", started.stages);
    assert!(started.version.starts_with("Chrome/"), "{}", started.version);
    let names: Vec<&str> = started.stages.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["sandbox", "spawn", "devtools_port", "attach", "evaluated", "answer"]);

    let mut page = Cdp::attach(&fixture.engine, id).await?;
    b6_the_command_line_is_ours(&fixture, id).await?;
    let size = "[innerWidth, innerHeight, screen.width, screen.height]";
    page.until_is(size, &json!([1000, 700, 1000, 700])).await?;
    the_start_url_is_opened(&fixture, id, &mut page).await?;
    stealth_holds_in_pages_frames_and_workers(&mut page).await?;
    policies_are_in_force(&fixture, id, &mut page).await?;
    b4_a_page_reaches_nothing_of_the_host(&fixture, id, &mut page).await?;
    pictures_have_the_size_requested_for(&fixture, id).await?;
    webdriver_attaches_and_leaves_the_browser(&fixture, id).await?;
    drop(page);

    fixture.engine.set_viewport(id, Viewport { width: 640, height: 480, refresh_rate: 25 }).await?;
    let mut page = Cdp::attach(&fixture.engine, id).await?;
    page.until_is(size, &json!([640, 480, 640, 480])).await?;
    assert_eq!(png_size(&fixture.engine.screenshot(id, sized(1000, 700).viewport, None).await?)?, (640, 480));
    i5_a_stopped_page_or_agent_is_not_handed_out(&fixture, id).await?;

    let mut events = fixture.engine.events();
    let (first, second) = tokio::join!(fixture.engine.end(id), fixture.engine.end(id));
    assert!(first.is_ok() && second.is_ok(), "whoever ends it at the same time");
    assert_eq!(fixture.remains(id), Vec::<String>::new());
    fixture.engine.end(id).await?;
    assert!(events.try_recv().is_err(), "an end that was asked for is no news");
    assert!(matches!(fixture.engine.hand_out(id, HandOut::default()).await, Err(EngineError::NotRunning(_))));
    Ok(())
}

#[tokio::test]
async fn a_browser_that_is_not_there_is_not_running_and_ends_well() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let id = new_id();
    assert!(matches!(fixture.engine.hand_out(id, HandOut::default()).await, Err(EngineError::NotRunning(_))));
    assert!(matches!(
        fixture.engine.screenshot(id, sized(1000, 700).viewport, None).await,
        Err(EngineError::NotRunning(_))
    ));
    assert!(matches!(fixture.engine.cdp_path(id).await, Err(EngineError::NotRunning(_))));
    Ok(fixture.engine.end(id).await?)
}

async fn b6_the_command_line_is_ours(fixture: &Fixture, id: BrowserId) -> anyhow::Result<()> {
    let argv = fixture.engine.status(id).await?.chromium_argv;
    assert_eq!(argv.first().map(String::as_str), Some("/usr/lib/chromium/chromium"));
    for forbidden in ["--no-sandbox", "--disable-setuid-sandbox", "--enable-automation", "--load-extension", "blocked"]
    {
        assert!(!argv.iter().any(|word| word.contains(forbidden)), "{forbidden} in {argv:?}");
    }
    for wanted in ["--proxy-bypass-list=<-loopback>", "--proxy-server=http://127.0.0.1:3128"] {
        assert!(argv.iter().any(|word| word == wanted), "no {wanted} in {argv:?}");
    }
    Ok(())
}

async fn the_start_url_is_opened(fixture: &Fixture, id: BrowserId, page: &mut Cdp) -> anyhow::Result<()> {
    let start_url = Some(StartUrl::parse(&format!("{SITE}/start")).expect("a URL"));
    hand_out(&fixture.engine, id, HandOut { start_url, ..HandOut::default() }).await?;
    page.until("document.title === 'the site' && document.readyState === 'complete'").await?;
    // Without a start URL nothing is opened.
    page.evaluate("window.kept = history.length").await?;
    for _ in 0..50 {
        hand_out(&fixture.engine, id, HandOut::default()).await?;
    }
    page.until("window.kept === history.length").await
}

async fn stealth_holds_in_pages_frames_and_workers(page: &mut Cdp) -> anyhow::Result<()> {
    let frame = format!("frames[0].eval({})", json!(AUTOMATION_SIGNS));
    let worker = format!(
        "new Promise((done, failed) => {{ const w = new Worker('/worker.js');
            w.onmessage = e => done(e.data); w.onerror = e => failed(e.message); w.postMessage({}) }})",
        json!(AUTOMATION_SIGNS)
    );
    for (fixture, look) in [("page", AUTOMATION_SIGNS), ("frame", &frame), ("worker", &worker)] {
        let seen = page.evaluate(look).await?;
        let seen: serde_json::Value = serde_json::from_str(seen.as_str().unwrap_or_default())?;
        assert!(!seen.to_string().contains("Headless"), "{fixture}: {seen}");
        // Workers lack this member.
        assert_ne!(seen["webdriver"], true, "{fixture}: {seen}");
        assert!(seen["brands"].as_str().is_some_and(|brands| brands.contains("Chromium")), "{fixture}: {seen}");
    }
    Ok(())
}

async fn policies_are_in_force(fixture: &Fixture, id: BrowserId, page: &mut Cdp) -> anyhow::Result<()> {
    let error = page.open("http://blocked.test/").await?;
    assert_eq!(error.as_deref(), Some("net::ERR_BLOCKED_BY_ADMINISTRATOR"));
    let requested = fixture.egress.requested_by(&id.to_string());
    assert!(!requested.iter().any(|target| target.contains("blocked.test")), "{requested:?}");
    Ok(())
}

async fn b4_a_page_reaches_nothing_of_the_host(fixture: &Fixture, id: BrowserId, page: &mut Cdp) -> anyhow::Result<()> {
    let outside = std::net::TcpListener::bind("127.0.0.1:0")?;
    outside.set_nonblocking(true)?;
    let port = outside.local_addr()?.port();
    let targets = [
        "127.0.0.1:9222/json/version".to_owned(),
        "localhost:9222/json/list".to_owned(),
        "[::1]:9222/json/version".to_owned(),
        "127.0.0.1:9515/status".to_owned(),
        "127.0.0.1:3128/".to_owned(),
        "169.254.169.254/latest/meta-data/".to_owned(),
        format!("127.0.0.1:{port}/"),
    ];
    for target in &targets {
        page.open(&format!("http://{target}")).await?;
        let body = page.evaluate("document.body?.innerText ?? ''").await?;
        assert_eq!(body, REFUSAL, "http://{target}");
    }
    page.open(SITE).await?;
    for target in ["127.0.0.1:9222", "127.0.0.1:9515", &format!("127.0.0.1:{port}")] {
        let socket = format!(
            "new Promise(done => {{ const s = new WebSocket('ws://{target}/devtools/browser/x');
                s.onopen = () => done('open'); s.onerror = () => done('refused') }})"
        );
        assert_eq!(page.evaluate(&socket).await?, "refused", "ws://{target}");
        let fetched = format!("fetch('http://{target}/').then(r => r.text()).catch(() => 'refused')");
        assert_eq!(page.evaluate(&fetched).await?, "refused", "fetch from {target}");
    }
    let requested = fixture.egress.requested_by(&id.to_string());
    for target in &targets {
        let authority = target.split('/').next().unwrap_or_default();
        assert!(requested.iter().any(|a| a == authority), "{authority} went past the way out: {requested:?}");
    }
    assert!(outside.accept().is_err(), "nobody came to the host's own port");
    Ok(())
}

async fn pictures_have_the_size_requested_for(fixture: &Fixture, id: BrowserId) -> anyhow::Result<()> {
    assert_eq!(png_size(&fixture.engine.screenshot(id, sized(1000, 700).viewport, None).await?)?, (1000, 700));
    let region = Region { x: 10, y: 20, width: 123, height: 45 };
    assert_eq!(png_size(&fixture.engine.screenshot(id, sized(1000, 700).viewport, Some(region)).await?)?, (123, 45));
    let outside = Region { x: 990, y: 0, width: 11, height: 1 };
    let refused = fixture.engine.screenshot(id, sized(1000, 700).viewport, Some(outside)).await;
    assert!(matches!(refused, Err(EngineError::Failed { fault: EngineFault::DisplayError, .. })), "{refused:?}");
    Ok(())
}

async fn webdriver_attaches_and_leaves_the_browser(fixture: &Fixture, id: BrowserId) -> anyhow::Result<()> {
    let began = Instant::now();
    let engine = fixture.engine.clone();
    let connect = Connect::new(move || {
        let engine = engine.clone();
        async move {
            let stream = engine.dial(id, Channel::WebDriver).await.map_err(std::io::Error::other)?;
            tokio::net::TcpStream::from_std(stream)
        }
    });
    let client = casement_webdriver::attach(connect).await?;
    eprintln!("WebDriver session after {:?}", began.elapsed());
    client.goto(&format!("{SITE}/by-webdriver")).await?;
    assert_eq!(client.title().await?, "the site");
    assert_eq!(png_size(&client.screenshot().await?)?, (1000, 700));
    client.close().await?;
    let mut page = Cdp::attach(&fixture.engine, id).await?;
    assert_eq!(page.evaluate("location.pathname").await?, "/by-webdriver");
    Ok(())
}

async fn i5_a_stopped_page_or_agent_is_not_handed_out(fixture: &Fixture, id: BrowserId) -> anyhow::Result<()> {
    for word in ["--type=renderer", "--utility-sub-type=network.mojom.NetworkService", "--remote-debugging-port"] {
        let deadline = Instant::now() + Duration::from_secs(60);
        let refused = loop {
            let answer = hand_out_while_stopped(fixture, id, word).await?;
            // On a busy machine the agent's response may come after the timeout.
            if !matches!(answer, Err(EngineError::Timeout { .. })) || Instant::now() > deadline {
                break answer;
            }
        };
        let hung = matches!(refused, Err(EngineError::Failed { fault: EngineFault::BrowserHung, .. }));
        assert!(hung, "{word}: {refused:?}");
    }
    let refused = hand_out_while_stopped(fixture, id, "/run/casement/program").await?;
    assert!(matches!(refused, Err(EngineError::Timeout { .. })), "{refused:?}");
    // A continued process may need a moment.
    hand_out(&fixture.engine, id, HandOut::default()).await
}

/// Hands a browser out while the processes are stopped whose command line contains `word`, and returns the result.
async fn hand_out_while_stopped(
    fixture: &Fixture,
    id: BrowserId,
    word: &str,
) -> anyhow::Result<Result<(), EngineError>> {
    // A listed process may have ended with its page.
    let sent = |pid: &i32, signal| Pid::from_raw(*pid).is_some_and(|pid| kill_process(pid, signal).is_ok());
    let mut pids = processes(&fixture.engine, id, |line| line.contains(word)).await?;
    pids.retain(|pid| sent(pid, Signal::STOP));
    assert!(!pids.is_empty(), "{word}");
    let answer = fixture.engine.hand_out(id, HandOut::default()).await;
    for pid in &pids {
        assert!(sent(pid, Signal::CONT), "{pid} of {word} is gone");
    }
    Ok(answer)
}

/// Loopback does not count as a network for Chromium.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_finds_itself_online_in_a_network_that_leads_nowhere() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let id = fixture.start(sized(800, 600)).await?;
    let mut page = Cdp::attach(&fixture.engine, id).await?;
    assert_eq!(page.open(SITE).await?, None);
    page.until_is("[navigator.onLine, navigator.connection.rtt > 0]", &json!([true, true])).await?;
    let pid = chromium(&fixture.engine, id).await?;
    let routes = std::fs::read_to_string(format!("/proc/{pid}/net/route"))?;
    assert_eq!(routes.lines().count(), 1, "no route, only the heading: {routes}");
    fixture.engine.end(id).await?;
    assert_eq!(fixture.remains(id), Vec::<String>::new());
    Ok(())
}

/// All connections of a browser go to one proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_answers_of_250_hosts_leave_room_for_further_requests() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let id = fixture.start(Shape { headless: true, ..sized(800, 600) }).await?;
    let mut page = Cdp::attach(&fixture.engine, id).await?;
    assert_eq!(page.open(SITE).await?, None);
    let open = "window.open_streams = 0; window.streams = Array.from({ length: 250 }, (_, host) => {
        const stream = new EventSource(`http://stream${host}.test/`);
        stream.addEventListener('message', () => window.open_streams++, { once: true });
        return stream;
    }).length";
    assert_eq!(page.evaluate(open).await?, json!(250));
    page.until_is("window.open_streams", &json!(250)).await?;
    let further = "Promise.all([1, 2].map(n => fetch(`/frame?${n}`).then(answer => answer.status)))";
    assert_eq!(page.evaluate(further).await?, json!([200, 200]));
    Ok(fixture.engine.end(id).await?)
}
