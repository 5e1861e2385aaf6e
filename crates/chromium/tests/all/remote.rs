//! Tests of sandboxes whose browser is remote.

use std::collections::HashMap;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use anyhow::Context as _;
use casement_chromium::{BrowserExitReason, Channel, Engine, EngineConfig, EngineEvent, RemoteBrowser, RemotePort};
use casement_domain::browser::{BrowserEngine, EngineError, HandOut, Location, Region, Shape, StartUrl, Viewport};
use casement_domain::ids::BrowserId;
use casement_domain::script::{NewScript, ScriptMachine};
use casement_test_support::remote_browser::{Bridge, RemoteChromium, serve_page};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::support::{Fixture, config, hand_out, launch, next, png_size, processes, sized};

/// Serves sandboxes with Chromium on this machine. A record is a port and a path.
#[derive(Default)]
struct FakeRemote(Mutex<HashMap<BrowserId, Bridge>>);

impl RemotePort for FakeRemote {
    fn serve(&self, browser: BrowserId, record: &str, listener: UnixListener) {
        let (port, path) = record.split_once(' ').expect("a record");
        let listener = tokio::net::UnixListener::from_std(listener).expect("a listener");
        let bridge = Bridge::on(listener, port.parse().expect("a port"), path.to_owned());
        self.0.lock().insert(browser, bridge);
    }

    fn close(&self, browser: BrowserId) {
        self.0.lock().remove(&browser);
    }
}

fn record(browser: &RemoteChromium) -> RemoteBrowser {
    RemoteBrowser { record: format!("{} {}", browser.port, browser.path), version: "156.0.1".to_owned() }
}

/// A fixture whose engine has a remote port.
async fn fixture() -> anyhow::Result<(Fixture, Arc<FakeRemote>)> {
    let mut fixture = Fixture::with(add_script_runner).await?;
    let remote = Arc::new(FakeRemote::default());
    fixture.engine = fixture.engine.clone().with_remote(remote.clone());
    Ok((fixture, remote))
}

fn add_script_runner(config: &mut EngineConfig) {
    // `cargo xtask test` has put it beside the folder of this build.
    config.script_runner = config.program.parent().map(|folder| folder.join("../runner"));
}

async fn start(fixture: &Fixture, browser: &RemoteChromium, shape: Shape) -> anyhow::Result<BrowserId> {
    let launch = launch(shape);
    let started = fixture.engine.start_remote(&launch, record(browser)).await?;
    eprintln!("{} up in {:?}", launch.id, started.stages);
    assert_eq!(started.version, "156.0.1");
    Ok(launch.id)
}

async fn script(engine: &Engine, id: BrowserId, code: &str) -> anyhow::Result<Value> {
    let script = NewScript::parse(Some(code.to_owned()), Some(100), None, None)?;
    let end = engine.execute(id, script).await?;
    anyhow::ensure!(end.success, "{code}: {end:?}");
    Ok(serde_json::from_str(&end.result.context("a result")?)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_browser_is_driven_through_the_port_of_engines() -> anyhow::Result<()> {
    let (fixture, remote) = fixture().await?;
    let browser = RemoteChromium::start(&[])?;
    let (engine, id) = (&fixture.engine, start(&fixture, &browser, sized(800, 600)).await?);
    assert!(!fixture.egress.serves(&id.to_string()), "its sandbox has no egress");
    assert_eq!(processes(engine, id, |line| line.contains("chromium")).await?, Vec::<i32>::new());
    let url = serve_page("<title>the site</title>").await?;
    let to = HandOut { start_url: Some(StartUrl::parse(&url)?), ..HandOut::default() };
    hand_out(engine, id, to).await?;
    let mut cdp = browser.connect().await?;
    let page = cdp.pages().await?.remove(0);
    let page = cdp.attach(&page).await?;
    cdp.until(&page, "document.title", &json!("the site")).await?;

    let whole = Viewport { width: 800, height: 600, refresh_rate: 25 };
    assert_eq!(png_size(&engine.screenshot(id, whole, None).await?)?, (800, 600));
    let region = Region { x: 1, y: 2, width: 30, height: 40 };
    assert_eq!(png_size(&engine.screenshot(id, whole, Some(region)).await?)?, (30, 40));
    for larger in [1300, 1400] {
        let viewport = Viewport { width: larger, height: 900, refresh_rate: 25 };
        match larger {
            1300 => engine.set_viewport(id, viewport).await?,
            _ => engine.restart_with_viewport(id, viewport).await?,
        }
        cdp.until(&page, "innerWidth + ',' + innerHeight", &json!(format!("{larger},900"))).await?;
        assert_eq!(png_size(&engine.screenshot(id, viewport, None).await?)?, (larger, 900));
    }
    assert!(engine.has_location(id, Location::default()).await?);
    let elsewhere = engine.restart_with_location(id, Location::default()).await;
    assert!(matches!(elsewhere, Err(EngineError::Location(_))), "{elsewhere:?}");
    assert!(!engine.is_recording(id).await?);
    let dialled = engine.dial(id, Channel::Cdp).await;
    assert!(matches!(dialled, Err(EngineError::OutOfRange(_))), "{dialled:?}");
    assert!(matches!(engine.cdp_path(id).await, Err(EngineError::OutOfRange(_))));
    assert_eq!(engine.remote_records(), [(id, record(&browser).record)]);

    eprintln!("memory of the sandbox at rest: {} KiB", engine.pss(id).await? / 1024);
    assert_eq!(script(engine, id, "return page.title()").await?, json!("the site"));
    eprintln!("memory of the sandbox after a script: {} KiB", engine.pss(id).await? / 1024);
    let second = start(&fixture, &browser, sized(800, 600)).await?;
    engine.end(second).await?;

    engine.end(id).await?;
    assert_eq!(fixture.remains(id), Vec::<String>::new());
    assert!(remote.0.lock().is_empty() && engine.remote_records().is_empty());
    assert_eq!(cdp.evaluate(&page, "6 * 7").await?, json!(42), "the remote browser goes on");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_adopts_a_remote_browser_and_reports_its_end() -> anyhow::Result<()> {
    let (mut fixture, remote) = fixture().await?;
    let mut browser = RemoteChromium::start(&[])?;
    let id = start(&fixture, &browser, sized(800, 600)).await?;
    fixture.engine.clone().detach().await;
    assert!(remote.0.lock().is_empty(), "a detached engine serves nothing");

    let mut again = config(fixture.dir.path().to_owned())?;
    add_script_runner(&mut again);
    let engine = Engine::new(again, fixture.egress.clone()).await?;
    fixture.engine = engine.with_remote(remote.clone());
    let mut events = fixture.engine.events();
    let found = fixture.engine.find_running().await?;
    assert_eq!(found, [id]);
    assert_eq!(fixture.engine.remote_records(), [(id, record(&browser).record)]);
    assert!(!fixture.egress.serves(&id.to_string()));
    hand_out(&fixture.engine, id, HandOut::default()).await?;
    assert_eq!(script(&fixture.engine, id, "return page.evaluate('6 * 7')").await?, json!(42));

    browser.kill();
    assert_eq!(next(&mut events).await?, EngineEvent { browser: id, reason: BrowserExitReason::Crashed });
    fixture.engine.end(id).await?;
    assert_eq!(fixture.remains(id), Vec::<String>::new());
    Ok(())
}

/// What a script tries to reach: the machine's ports, names, other sockets, the record, and other paths of the browser.
const REACH: &str = r#"
    const net = require('net'), fs = require('fs'), http = require('http');
    const tried = {};
    const connect = (name, where) => new Promise(done => {
        const socket = net.connect(where, () => { socket.destroy(); done(tried[name] = 'open'); });
        socket.on('error', error => done(tried[name] = error.code));
        setTimeout(() => { socket.destroy(); done(tried[name] ??= 'silent'); }, 3000);
    });
    await connect('browser', { host: '127.0.0.1', port: PORT });
    await connect('address', { host: '1.1.1.1', port: 443 });
    await connect('site', { host: '127.0.0.1', port: SITE });
    tried.fetch = await fetch('http://127.0.0.1:SITE/').then(() => 'open', () => 'failed');
    await connect('egress', { path: '/run/casement/egress/egress.sock' });
    const list = path => { try { return fs.readdirSync(path).join() } catch (error) { return error.code } };
    tried.sockets = list('/run/casement/egress');
    tried.run = list('/run/casement');
    const write = path => { try { fs.writeFileSync(path, ''); return 'written' } catch (error) { return error.code } };
    tried.written = write('/run/casement/egress/x');
    // The path and the host of a request change nothing.
    const upgrade = path => new Promise(done => {
        const request = http.request({ socketPath: '/run/casement/egress/browser.sock', path, headers: { Host: 'evil.test',
            Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version': '13' } });
        request.on('upgrade', (response, socket) => { socket.destroy(); done('browser'); });
        request.on('response', response => done(response.statusCode)).on('error', error => done(error.code)).end();
    });
    tried.path = await upgrade('/devtools/page/other');
    return tried;
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_reaches_its_remote_browser_and_nothing_else() -> anyhow::Result<()> {
    let (fixture, _remote) = fixture().await?;
    let browser = RemoteChromium::start(&[])?;
    let id = start(&fixture, &browser, sized(800, 600)).await?;
    let site = serve_page("<title>the site</title>").await?;
    let port = site.trim_end_matches('/').rsplit(':').next().context("a port")?;
    let code = REACH.replace("PORT", &browser.port.to_string()).replace("SITE", port);
    let tried = script(&fixture.engine, id, &code).await?;
    eprintln!("{tried}");
    for name in ["browser", "site"] {
        assert_eq!(tried[name], "ECONNREFUSED", "{tried}");
    }
    assert_eq!(tried["address"], "ENETUNREACH", "{tried}");
    assert_eq!((&tried["fetch"], &tried["egress"]), (&json!("failed"), &json!("ENOENT")), "{tried}");
    assert!(["EACCES", "browser.sock"].contains(&tried["sockets"].as_str().context("a list")?), "{tried}");
    assert!(["EACCES", "EROFS"].contains(&tried["written"].as_str().context("a refusal")?), "{tried}");
    assert_eq!(tried["path"], "browser", "{tried}");
    assert!(!tried["run"].as_str().context("a list")?.contains("engine.json"), "{tried}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_start_that_fails_leaves_nothing() -> anyhow::Result<()> {
    let (fixture, remote) = fixture().await?;
    let mut browser = RemoteChromium::start(&[])?;
    let launch = launch(sized(800, 600));
    let long = RemoteBrowser { record: "x".repeat((64 << 10) + 1), version: String::new() };
    assert!(matches!(fixture.engine.start_remote(&launch, long).await, Err(EngineError::Failed { .. })));
    browser.kill();
    let failed = fixture.engine.start_remote(&launch, record(&browser)).await;
    assert!(matches!(failed, Err(EngineError::Failed { .. } | EngineError::Timeout { .. })), "{failed:?}");
    assert_eq!(fixture.remains(launch.id), Vec::<String>::new());
    assert!(remote.0.lock().is_empty());
    let without = Fixture::new().await?;
    assert!(matches!(without.engine.start_remote(&launch, record(&browser)).await, Err(EngineError::Failed { .. })));
    Ok(())
}
