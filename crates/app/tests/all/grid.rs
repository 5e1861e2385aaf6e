//! Tests of sessions whose browsers a Selenium Grid starts: what they can do, what they refuse, and what they leave.

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_domain::engine::{
    Capability, EngineDescription, EngineName, Support, TABLE_BEGIN, TABLE_END, table as table_of_engines,
};
use casement_test_support::png_size;
use casement_test_support::program::{
    Cdp, Clients, Grid, GridOptions, GridSession, Options, Pages, Server, Session, until,
};
use serde_json::{Value, json};

use super::host::browser_of;

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// The name and the password that the Grid requires. Nothing that Casement writes or answers may have the password.
const CREDENTIALS: (&str, &str) = ("selenium", "swordfish4grid");

/// Returns the Grid with credentials that all tests share which do not break it: its start costs as much as such a test. They
/// count the sessions of their own servers only. Its watchdog ends it when the test program ends.
pub(super) fn shared() -> anyhow::Result<&'static Grid> {
    static SHARED: OnceLock<Result<Grid, String>> = OnceLock::new();
    let credentials = Some((CREDENTIALS.0.to_owned(), CREDENTIALS.1.to_owned()));
    let options = GridOptions { credentials, max_sessions_per_node: 10, ..GridOptions::default() };
    let grid = SHARED.get_or_init(|| Grid::start(options).map_err(|error| format!("{error:#}")));
    grid.as_ref().map_err(|error| anyhow::anyhow!("the Grid of the tests does not start: {error}"))
}

/// Returns the server on that Grid that all tests share which do not count its sessions, and its Grid.
fn on_shared() -> anyhow::Result<(&'static Grid, &'static Server)> {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    let grid = shared()?;
    let start = || Server::start(Options { is_shared: true, ..of_grid(grid) }).map_err(|error| format!("{error:#}"));
    let server = SERVER.get_or_init(start).as_ref();
    Ok((grid, server.map_err(|error| anyhow::anyhow!("the server on the Grid does not start: {error}"))?))
}

/// Returns the options of a server that has no engine but the Grid.
pub(super) fn of_grid(grid: &Grid) -> Options {
    let flags = ["--grid-url", &grid.url(), "--no-local-engine"].map(str::to_owned).to_vec();
    let credentials = grid.options().credentials.as_ref();
    let variable = |(name, password): &(String, String)| ("CASEMENT_GRID_CREDENTIALS", format!("{name}:{password}"));
    let variables = credentials.map(variable).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Options { flags, variables, ..Options::default() }
}

/// Returns the session of the Grid that is the browser of a session.
pub(super) fn on_grid(grid: &Grid, server: &Server, session: &Session) -> anyhow::Result<GridSession> {
    let browser = browser_of(server, session)?;
    let is_its = |one: &GridSession| {
        one.capabilities["casement:browser"].as_str().is_some_and(|mark| mark.eq_ignore_ascii_case(&browser))
    };
    grid.sessions()?.into_iter().find(is_its).with_context(|| format!("the Grid has no session of {browser}"))
}

/// Returns the sessions of a server on the Grid.
pub(super) fn sessions_of(grid: &Grid, server: &Server) -> anyhow::Result<Vec<GridSession>> {
    let owner = fs::read_to_string(server.data_dir().join("node-id")).context("no node-id")?;
    let mut sessions = grid.sessions()?;
    sessions.retain(|one| one.capabilities["casement:owner"] == owner.trim());
    Ok(sessions)
}

/// Returns the answer to a script in a session.
fn script(server: &Server, session: &Session, code: &str) -> anyhow::Result<Value> {
    let path = format!("/browsers/{}/playwright/execute", session.id());
    server.post(&path, &json!({ "code": code, "timeout_sec": 110 }))?.expect(200)?.json()
}

#[test]
fn a_test_that_is_left_out_with_a_grid_needs_what_its_engine_lacks() -> anyhow::Result<()> {
    let grid = EngineDescription::webdriver(EngineName::parse("grid").unwrap(), None);
    let lacking: BTreeMap<String, Vec<String>> = toml::from_str(include_str!("../lacking.toml"))?;
    for (name, tests) in lacking {
        let capability = Capability::ALL.into_iter().find(|capability| capability.as_str() == name);
        let capability = capability.with_context(|| format!("{name} is no capability"))?;
        // Of a partial capability a test may need the part that is missing; its note says which.
        let support = grid.support(capability);
        ensure!(*support != Support::Full, "the engine supports {name}, so these tests must run: {tests:?}");
    }
    Ok(())
}

#[test]
fn the_page_of_the_grid_has_the_table_of_what_engines_can_do() {
    let page = include_str!("../../../../docs/selenium-grid.md");
    let table = page.split_once(TABLE_BEGIN).and_then(|(_, rest)| rest.split_once(TABLE_END));
    let (found, _) = table.expect("the lines around the table");
    assert_eq!(found.trim(), table_of_engines().trim(), "docs/selenium-grid.md: run `cargo xtask openapi`");
}

#[test]
fn a_session_on_a_grid_does_what_its_engine_can() -> anyhow::Result<()> {
    let ((grid, server), pages) = (on_shared()?, Pages::start()?);
    let body = json!({
        "headless": true, "timeout_seconds": 600, "viewport": { "width": 1000, "height": 700 },
        "start_url": pages.url("/form"), "telemetry": { "browser": { "console": { "enabled": true } } },
    });
    let session = server.create(&body)?;
    assert_eq!(session.0["engine"], "grid", "{}", session.0);
    let path = format!("/browsers/{}", session.id());
    assert_eq!(server.get(&path)?.expect(200)?.json()?["engine"], "grid");

    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    let title = "document.readyState == 'complete' && document.title";
    until("the start URL is open", TEST_TIMEOUT, || (client.evaluate(&page, title).ok()? == "A form").then_some(()))?;
    client.until_drawn(&page)?;
    let screenshot = server.post(&format!("{path}/computer/screenshot"), &json!({}))?.expect(200)?;
    assert_eq!(png_size(&screenshot.body), Some((1000, 700)));

    let computer = |call: &str, body: Value| server.post(&format!("{path}/computer/{call}"), &body)?.expect(204);
    computer("click_mouse", json!({ "x": 100, "y": 70 }))?;
    computer("type", json!({ "text": "Ada" }))?;
    computer("click_mouse", json!({ "x": 100, "y": 180 }))?;
    let result = script(server, &session, "return [await page.title(), await page.locator('#said').innerText()]")?;
    assert_eq!(result["result"], json!(["Pressed", "Hello, Ada"]), "{result}");

    client.evaluate(&page, "console.log('heard from the Grid')")?;
    until("the console is in the telemetry", TEST_TIMEOUT, || {
        let events = server.get(&format!("{path}/telemetry/events?since=1h&limit=100")).ok()?;
        events.text().contains("heard from the Grid").then_some(())
    })?;
    drop(client);
    let mark = on_grid(grid, server, &session)?.capabilities["casement:browser"].take();
    server.delete(&path)?.expect(204)?;
    until("the Grid has no session of its browser", TEST_TIMEOUT, || {
        grid.sessions().ok()?.iter().all(|one| one.capabilities["casement:browser"] != mark).then_some(())
    })
}

#[test]
fn playwright_puppeteer_and_selenium_drive_a_session_on_a_grid() -> anyhow::Result<()> {
    let ((_, server), pages) = (on_shared()?, Pages::start()?);
    let clients = Clients::find()?;
    let run = |script: &str, arguments: &[&str]| -> anyhow::Result<Value> {
        clients.run(server, &format!("crates/app/tests/scripts/{script}"), arguments)?.json()
    };

    let session = server.headless()?;
    let saw = run("playwright_drive.mjs", &[session.text("cdp_ws_url"), &pages.url("")])?;
    assert_eq!((&saw["said"], &saw["picture"]), (&json!("Hello, Ada"), &json!([1920, 1080])), "{saw}");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;

    for (field, protocol) in [("cdp_ws_url", "cdp"), ("webdriver_ws_url", "webDriverBiDi")] {
        let session = server.headless()?;
        let saw = run("puppeteer_drive.mjs", &[session.text(field), protocol, &pages.url("")])?;
        assert_eq!((&saw["said"], &saw["title"]), (&json!("Hello, Ada"), &json!("Green")), "{protocol}: {saw}");
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }

    let session = server.headless()?;
    let wd = format!("{}/wd", session.text("base_url"));
    let saw = run("selenium_drive.py", &[&wd, session.token(), &pages.url("")])?;
    assert_eq!((&saw["said"], &saw["console"]), (&json!("Hello, Ada"), &json!("heard over BiDi")), "{saw}");
    let websocket = saw["websocket"].as_str().context("no address")?;
    ensure!(websocket.starts_with(&server.url().replacen("http", "ws", 1)), "{websocket} is the Grid's");
    Ok(())
}

#[test]
fn a_selenium_test_of_a_grid_passes_with_another_url() -> anyhow::Result<()> {
    let (grid, pages) = (shared()?, Pages::start()?);
    let server = Server::start(of_grid(grid))?;
    let ours = format!("http://anyone:{}@{}/wd/hub", server.key(), server.address());
    let mut seen = Vec::new();
    for address in [grid.url_with_credentials(), ours] {
        let script = "crates/app/tests/scripts/selenium_plain.py";
        let mut saw = Clients::find()?.run(&server, script, &[&address, &pages.url("")])?.json()?;
        let id = saw["session"].take();
        until(&format!("quit() at {address} has ended the session"), TEST_TIMEOUT, || {
            let is_gone = grid.sessions().ok()?.iter().all(|one| id != *one.id);
            (is_gone && sessions_of(grid, &server).ok()?.is_empty()).then_some(())
        })?;
        seen.push(saw);
    }
    let expected = json!({
        "title": "Pressed", "said": "Hello, Ada", "seen": ["click"], "cookies": ["plain"], "windows": 2,
        "missing": "NoSuchElementException", "back": "Green", "browserName": "chrome", "pageLoadStrategy": "eager",
        "unhandledPromptBehavior": "accept", "acceptInsecureCerts": true, "timeout": 40.0, "console": ["SEVERE"],
        "session": null,
    });
    assert_eq!(seen, [expected.clone(), expected]);
    Ok(())
}

#[test]
fn a_login_moves_between_a_grid_and_local_browsers_by_its_profile() -> anyhow::Result<()> {
    let (grid, pages) = (shared()?, Pages::start()?);
    pages.put("/login", "<!doctype html><title>Login</title>");
    let mut options = of_grid(grid);
    options.flags.retain(|flag| flag != "--no-local-engine");
    options.flags.extend(["--egress-allow".to_owned(), pages.allow()]);
    let server = Server::start(options)?;
    server.post("/profiles", &json!({ "name": "moves" }))?.expect(201)?;

    let (mut expected, mut used) = (json!([]), Value::Null);
    for (round, engine) in ["grid", "local", "grid", "grid", "local"].into_iter().enumerate() {
        let profile = json!({ "name": "moves", "save_changes": true });
        let body = json!({ "headless": true, "timeout_seconds": 600, "engine": engine, "profile": profile });
        let session = server.create(&body)?;
        let last_used = server.get("/profiles/moves")?.expect(200)?.json()?["last_used_at"].take();
        ensure!(last_used.is_string() && last_used != used, "round {round}: used {last_used}, before {used}");
        used = last_used;
        let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = client.page()?;
        client.open(&page, &pages.url("/login"))?;
        let look = "[document.cookie, localStorage.who]";
        let seen = client.evaluate(&page, look)?;
        if round > 0 {
            assert_eq!(seen, expected, "round {round}, on {engine}");
        }
        let change = format!("(document.cookie = 'who={round}; max-age=9999', localStorage.who = '{round}', {look})");
        expected = client.evaluate(&page, &change)?;
        drop(client);
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}

#[test]
fn an_operation_that_the_engine_lacks_is_refused_with_its_name() -> anyhow::Result<()> {
    let grid = shared()?;
    let server = Server::start(of_grid(grid))?;
    let session = server.headless()?;
    let of_session = |rest: &str| format!("/browsers/{}{rest}", session.id());
    let file = "/home/casement/x";
    for (method, path, body, what) in [
        ("POST", of_session("/process/exec"), Some(json!({ "command": "true" })), Capability::Processes),
        ("POST", of_session("/process/spawn"), Some(json!({ "command": "true" })), Capability::Processes),
        ("POST", of_session("/computer/clipboard/read"), Some(json!({})), Capability::Clipboard),
        ("GET", of_session(&format!("/fs/download_dir_zip?path={file}")), None, Capability::Files),
        ("PUT", of_session("/fs/create_directory"), Some(json!({ "path": file })), Capability::Files),
        ("GET", of_session("/logs/stream?source=path&path=/var/log/x"), None, Capability::Logs),
        ("POST", "/browsers".to_owned(), Some(json!({ "headless": false })), Capability::Display),
        ("POST", "/browsers".to_owned(), Some(json!({ "headless": true, "stealth": true })), Capability::Stealth),
        ("POST", "/browsers".to_owned(), Some(json!({ "headless": true, "kiosk_mode": true })), Capability::KioskMode),
        ("POST", "/browsers".to_owned(), Some(json!({ "headless": true, "memory": "1GiB" })), Capability::Memory),
        (
            "POST",
            "/browser_pools".to_owned(),
            Some(json!({ "name": "refused", "size": 1, "headless": true, "stealth": true })),
            Capability::Stealth,
        ),
    ] {
        let answer = server.send(method, &path, body.as_ref())?;
        let text = answer.text();
        ensure!(answer.status == 400 && text.contains("\"not_supported\""), "{path}: {} {text}", answer.status);
        ensure!(text.contains("grid") && text.contains(what.title()), "{path} names engine and operation: {text}");
    }
    assert_eq!(sessions_of(grid, &server)?.len(), 1, "nothing was started before it was refused");
    Ok(())
}

#[test]
fn several_engines_have_names_and_say_what_they_can() -> anyhow::Result<()> {
    let grid = shared()?;
    let flags = ["--grid-url".to_owned(), format!("qa={}", grid.url())].to_vec();
    let variables = vec![("CASEMENT_GRID_CREDENTIALS".to_owned(), format!("qa={}:{}", CREDENTIALS.0, CREDENTIALS.1))];
    let server = Server::start(Options { flags, variables, ..Options::default() })?;
    let engines = server.get("/engines")?.expect(200)?.text();
    ensure!(engines.contains("\"qa\"") && engines.contains("\"local\""), "{engines}");

    let here = server.headless()?;
    let there = server.create(&json!({ "headless": true, "engine": "qa" }))?;
    assert_eq!((&here.0["engine"], &there.0["engine"]), (&json!("local"), &json!("qa")));
    assert_eq!(sessions_of(grid, &server)?.len(), 1);
    let unknown = server.post("/browsers", &json!({ "headless": true, "engine": "nowhere" }))?;
    ensure!(unknown.status == 400 && unknown.text().contains("must be one of local, qa"), "{}", unknown.text());
    assert_eq!(sessions_of(grid, &server)?.len(), 1);
    Ok(())
}

#[test]
fn the_credentials_of_a_grid_are_in_no_answer_log_or_process_list() -> anyhow::Result<()> {
    let ((grid, server), pages) = (on_shared()?, Pages::start()?);
    server.post("/browser_pools", &json!({ "name": "locked", "size": 1, "headless": true }))?.expect(201)?;
    let session = server.acquire("locked")?;
    let ours = format!("http://anyone:{}@{}/wd/hub", server.key(), server.address());
    let plain = "crates/app/tests/scripts/selenium_plain.py";
    let client = Clients::find()?.run(server, plain, &[&ours, &pages.url("")])?;
    let wd = format!("/vm/{}/wd/session?jwt={}", session.id(), session.token());
    let capabilities = server.post(&wd, &json!({ "capabilities": {} }))?.expect(200)?.text();
    ensure!(!capabilities.contains(&grid.url()["http://".len()..]), "the Grid's address: {capabilities}");

    let sees = script(server, &session, "return [process.env, process.argv]")?;
    let list: Vec<String> = server.processes().iter().map(|process| process.argv.join(" ")).collect();
    let path = format!("/browsers/{}", session.id());
    let mut all = vec![capabilities, client.stdout, sees.to_string(), list.join("\n"), session.0.to_string()];
    for path in [&path, "/engines", "/browser_pools", "/browser_pools/locked", "/metrics", "/nodes"] {
        all.push(server.get(path)?.text());
    }
    server.delete(&path)?.expect(204)?;
    all.push(server.log());
    let basic = "c2VsZW5pdW06c3dvcmRmaXNoNGdyaWQ";
    for text in &all {
        ensure!(!text.contains(CREDENTIALS.1) && !text.contains(basic), "the password is in: {text}");
    }
    Ok(())
}

#[test]
fn a_script_beside_a_grid_connects_only_to_its_own_browser() -> anyhow::Result<()> {
    let ((grid, server), pages) = (on_shared()?, Pages::start()?);
    let (session, other) = (server.headless()?, server.headless()?);
    let target = on_grid(grid, server, &other)?;
    let hub = grid.url();
    let (hub_port, own_port) = (hub.rsplit(':').next().context("no port")?, server.address().port());
    let foreign = format!("{hub}/session/{}/se/cdp", target.id);
    let code = format!(
        "const net = require('net');
        const dial = (port: any, host: any) => new Promise(done => net.connect({{ port, host, timeout: 3000 }})
            .on('connect', () => done('open')).on('timeout', () => done('late')).on('error', (e: any) => done(e.code)));
        const get = (url: string) => fetch(url, {{ signal: AbortSignal.timeout(3000) }}).then(r => r.status, () => 'none');
        return [await dial({own_port}, '127.0.0.1'), await dial({hub_port}, '127.0.0.1'), await dial(80, '169.254.169.254'),
            await dial(5432, '127.0.0.1'), await get({hub:?} + '/status'), await get({foreign:?}), await get({page:?}),
            await page.evaluate(() => 6 * 7)]",
        page = pages.url("/"),
    );
    let seen = script(server, &session, &code)?;
    let result = seen["result"].as_array().with_context(|| format!("{seen}"))?;
    let (own, others) = result.split_last().context("no result")?;
    assert_eq!(*own, 42, "{seen}");
    for other in others {
        ensure!(*other != "open" && !other.is_number(), "a script has another way out: {seen}");
    }
    Ok(())
}

#[test]
fn a_page_on_a_grid_reaches_nothing_of_its_session_by_what_casement_adds() -> anyhow::Result<()> {
    let ((_, server), pages) = (on_shared()?, Pages::start()?);
    let session =
        server.create(&json!({ "headless": true, "timeout_seconds": 600, "start_url": pages.url("/green") }))?;
    script(server, &session, "return page.title()")?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    // A page asks for what belongs to its session, without the key.
    let calls = format!(
        "Promise.all([{base:?}, {base:?} + '/wd/status', {server:?} + '/browsers', {server:?} + '/engines'].map(url =>
            fetch(url).then(r => r.text()).then(text => text.slice(0, 100), () => 'none')))",
        base = session.text("base_url"),
        server = server.url(),
    );
    for text in client.evaluate(&page, &calls)?.as_array().context("no list")? {
        assert_eq!(*text, "none", "a page reads an answer of Casement");
    }
    let globals = "Object.getOwnPropertyNames(window).filter(name => /casement|playwright|^_.*binding/i.test(name))";
    assert_eq!(client.evaluate(&page, globals)?, json!([]), "nothing in the page speaks to Casement");
    Ok(())
}
