//! Tests of a Selenium Grid that fails, is full or is restarted, and of a server that is killed while it uses one.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Grid, GridOptions, Server, Session, until};
use serde_json::{Value, json};
use ulid::Ulid;

use super::grid::{of_grid, on_grid, sessions_of, shared};
use super::host::{count, end_reason, metric};

/// The time in which the end of a lost browser is noticed: the Grid removes a dead node after some eight seconds.
const LOST_WITHIN: Duration = Duration::from_secs(90);
/// The timeout of what needs a start of Chromium or more.
const TEST_TIMEOUT: Duration = Duration::from_secs(180);
const POOL: &str = "warm";

fn create_pool(server: &Server, size: u64) -> anyhow::Result<()> {
    let pool = json!({ "name": POOL, "size": size, "headless": true, "fill_rate_per_minute": 100 });
    server.post("/browser_pools", &pool)?.expect(201).map(drop)
}

/// Returns why a pool cannot fill, as its record says it.
fn why_blocked(server: &Server) -> Option<String> {
    let pool = server.get(&format!("/browser_pools/{POOL}")).ok()?.expect(200).ok()?.json().ok()?;
    pool.pointer("/blocked_reason").and_then(Value::as_str).map(str::to_owned)
}

fn until_lost(server: &Server, session: &Session) -> anyhow::Result<()> {
    let path = format!("/browsers/{}", session.id());
    until("the session has ended", LOST_WITHIN, || (server.get(&path).ok()?.status == 404).then_some(()))?;
    assert_eq!(end_reason(server, session.id())?, "engine_lost");
    ensure!(Cdp::connect(session.text("cdp_ws_url")).is_err(), "a lost browser serves");
    Ok(())
}

/// Sets a variable in the page of a session, or reads it.
fn mark(session: &Session, expression: &str) -> anyhow::Result<Value> {
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.evaluate(&page, expression)
}

/// Starts a session with the mark of the server that owns this one, of a browser that it does not know: as if the server had
/// been killed after the start and before it was stored.
fn started_and_not_stored(grid: &Grid, ours: &Value) -> anyhow::Result<String> {
    let owner = ours["casement:owner"].as_str().context("no mark of an owner")?;
    let wanted = json!({
        "browserName": "chrome", "goog:chromeOptions": { "args": ["--headless=new"] },
        "casement:owner": owner, "casement:browser": Ulid::from_parts(1, 1).to_string().to_lowercase(),
    });
    let body = json!({ "capabilities": { "alwaysMatch": wanted } });
    let answer = grid.send("POST", "/session", Some(&body))?.expect(200)?.json()?;
    Ok(answer["value"]["sessionId"].as_str().context("no id")?.to_owned())
}

fn has(grid: &Grid, id: &str) -> Option<bool> {
    Some(grid.sessions().ok()?.iter().any(|one| one.id == id))
}

#[test]
fn a_killed_server_finds_its_sessions_on_the_grid_again_and_leaves_strangers() -> anyhow::Result<()> {
    let grid = shared()?;
    let mut server = Server::start(of_grid(grid))?;
    create_pool(&server, 1)?;
    server.until_available(POOL, 1)?;
    let session = server.headless()?;
    mark(&session, "window.before = 'the kill'")?;
    let stranger = grid.new_session()?;
    let ours = on_grid(grid, &server, &session)?;

    server.kill()?;
    let orphan = started_and_not_stored(grid, &ours.capabilities)?;
    server.restart()?;

    until("what was not stored is ended", TEST_TIMEOUT, || (!has(grid, &orphan)?).then_some(()))?;
    assert_eq!(mark(&session, "window.before")?, "the kill", "the session continues");
    server.until_available(POOL, 1)?;
    let leased = server.acquire(POOL)?;
    assert_eq!(mark(&leased, "6 * 7")?, 42);
    ensure!(grid.answers(&stranger), "a stranger's session was ended");

    server.stop_all()?;
    until("only the stranger's session is left", TEST_TIMEOUT, || {
        (sessions_of(grid, &server).ok()?.is_empty() && has(grid, &stranger)?).then_some(())
    })?;
    ensure!(grid.answers(&stranger));
    grid.end_session(&stranger)
}

#[test]
fn a_lost_node_of_a_grid_ends_its_sessions_and_pools_fill_on_another() -> anyhow::Result<()> {
    let mut grid = Grid::start(GridOptions { max_sessions_per_node: 6, ..GridOptions::default() })?;
    let server = Server::start(of_grid(&grid))?;
    create_pool(&server, 2)?;
    server.until_available(POOL, 2)?;
    let session = server.headless()?;
    let lost = on_grid(&grid, &server, &session)?.node;

    grid.kill_node(lost)?;
    until_lost(&server, &session)?;

    server.until_available(POOL, 2)?;
    let leased = server.acquire(POOL)?;
    assert_eq!(mark(&leased, "6 * 7")?, 42);
    ensure!(on_grid(&grid, &server, &leased)?.node != lost, "on the node that does not run");
    Ok(())
}

#[test]
fn sessions_of_a_restarted_hub_end_and_new_ones_work() -> anyhow::Result<()> {
    // Browsers that the hub has forgotten keep their places until the node's timeout.
    let session_timeout = Duration::from_secs(30);
    let mut grid = Grid::start(GridOptions { max_sessions_per_node: 6, session_timeout, ..GridOptions::default() })?;
    let server = Server::start(of_grid(&grid))?;
    create_pool(&server, 1)?;
    server.until_available(POOL, 1)?;
    let session = server.headless()?;

    grid.stop_hub()?;
    let refused = server.post("/browsers", &json!({ "headless": true }))?;
    ensure!(refused.status >= 500, "a session of a Grid that is away: {} {}", refused.status, refused.text());
    grid.start_hub()?;

    until_lost(&server, &session)?;
    let new = server.headless()?;
    assert_eq!(mark(&new, "6 * 7")?, 42);
    let leased = until("the pool fills", TEST_TIMEOUT, || {
        let leased = server.acquire(POOL).ok()?;
        mark(&leased, "6 * 7").is_ok().then_some(leased)
    })?;
    server.release(POOL, &leased)
}

#[test]
fn a_grid_that_is_away_for_a_minute_loses_no_session() -> anyhow::Result<()> {
    let grid = Grid::start(GridOptions { nodes: 1, ..GridOptions::default() })?;
    let server = Server::start(of_grid(&grid))?;
    let session = server.headless()?;
    mark(&session, "window.before = 'the pause'")?;

    grid.pause_hub(true)?;
    thread::sleep(Duration::from_secs(60));
    let path = format!("/browsers/{}", session.id());
    assert_eq!(server.get(&path)?.status, 200, "silence of the Grid ends no session");
    // The browser did not crash. A connection to a silent hub may be open still, which looks like a browser that hangs.
    let away = server.post(&format!("{path}/computer/screenshot"), &json!({}))?.expect(503)?.json()?;
    let inner = away["inner_error"]["code"].as_str().unwrap_or_default();
    ensure!(away["code"] == "browser_unavailable" && ["engine_error", "browser_hung"].contains(&inner), "{away}");
    grid.pause_hub(false)?;

    until("its browser answers", TEST_TIMEOUT, || {
        (mark(&session, "window.before").ok()? == "the pause").then_some(())
    })?;
    server.delete(&path)?.expect(204)?;
    grid.until_sessions(0)
}

#[test]
fn a_session_without_use_outlives_the_timeout_of_the_grid() -> anyhow::Result<()> {
    let session_timeout = Duration::from_secs(10);
    let grid_options = GridOptions { nodes: 1, max_sessions_per_node: 3, session_timeout, ..GridOptions::default() };
    let grid = Grid::start(grid_options)?;
    let mut options = of_grid(&grid);
    options.flags.extend(["--grid-session-timeout", "10"].map(str::to_owned));
    let server = Server::start(options)?;
    create_pool(&server, 1)?;
    server.until_available(POOL, 1)?;
    let warm = grid.sessions()?.first().context("no warm browser")?.id.clone();
    let session = server.headless()?;
    mark(&session, "window.before = 'the silence'")?;
    for _ in 0..2 {
        let stranger = grid.new_session()?;
        until("the Grid has ended a session without use", TEST_TIMEOUT, || (!has(&grid, &stranger)?).then_some(()))?;
    }

    assert_eq!(mark(&session, "window.before")?, "the silence");
    ensure!(has(&grid, &warm) == Some(true), "the warm browser was ended by the Grid");
    Ok(())
}

#[test]
fn a_pool_larger_than_the_grid_gives_says_why_and_fills_when_there_is_room() -> anyhow::Result<()> {
    let request_timeout = Duration::from_secs(5);
    let options = GridOptions { nodes: 2, max_sessions_per_node: 1, request_timeout, ..GridOptions::default() };
    let mut grid = Grid::start(options)?;
    grid.kill_node(1)?;
    let mut options = of_grid(&grid);
    options.flags.extend(["--grid-start-timeout", "60"].map(str::to_owned));
    let server = Server::start(options)?;
    create_pool(&server, 2)?;

    let why = until("the pool says why it is not full", TEST_TIMEOUT, || why_blocked(&server))?;
    ensure!(!why.trim().is_empty(), "it says nothing");
    let leased = server.acquire(POOL)?;
    assert_eq!(mark(&leased, "6 * 7")?, 42, "what there is works");
    server.release(POOL, &leased)?;

    grid.start_node(1)?;
    server.until_available(POOL, 2)?;
    until("it says nothing more", TEST_TIMEOUT, || why_blocked(&server).is_none().then_some(()))
}

#[test]
fn an_end_that_does_not_reach_the_grid_is_tried_again() -> anyhow::Result<()> {
    let grid = Grid::start(GridOptions { nodes: 1, ..GridOptions::default() })?;
    let server = Server::start(of_grid(&grid))?;
    let session = server.headless()?;
    let id = on_grid(&grid, &server, &session)?.id;

    grid.pause_hub(true)?;
    let path = format!("/browsers/{}", session.id());
    let deleting = server.delete(&path)?.status;
    ensure!(deleting == 204, "the end of a session waits for no Grid: {deleting}");
    until("its browser waits for its end", TEST_TIMEOUT, || {
        (metric(&server, "casement_browsers_pending_removal ").ok()?? >= 1.0).then_some(())
    })?;
    ensure!(count(&server, "select count(*) from browsers where state = 'ending'")? == 1, "it is not to be ended");
    grid.pause_hub(false)?;
    until("the Grid has ended it", TEST_TIMEOUT, || (!has(&grid, &id)?).then_some(()))
}
