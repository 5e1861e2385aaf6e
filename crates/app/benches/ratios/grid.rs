//! Measures browsers of a Selenium Grid through Casement, against the same Grid without it.

use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Grid, GridOptions, Options, Server};
use serde_json::json;

use crate::client::Client;
use crate::machine::quiet;
use crate::relay::PathClient;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const POOL: &str = "bench";
/// The size of the pool, and the number of sessions that are measured in each round.
const SIZE: usize = 3;
const ROUNDS: usize = 10;
const ROUND_TRIPS: usize = 2000;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let grid = Grid::start(GridOptions { max_sessions_per_node: 4, ..GridOptions::default() })?;
    let flags = ["--grid-url", &grid.url(), "--no-local-engine"].map(str::to_owned).to_vec();
    let server = Server::start(Options { flags, ..Options::default() })?;
    // First, because a Grid answers several times faster once Java has compiled what answers.
    round_trips(&grid, &server, table)?;
    grid.until_sessions(0)?;
    starts(&grid, &server, table)
}

/// Measures the time until a browser of a warm pool answers a CDP command, then its page, and until the Grid has started one.
fn starts(grid: &Grid, server: &Server, table: &mut Table) -> anyhow::Result<()> {
    let pool = json!({ "name": POOL, "size": SIZE, "headless": true, "fill_rate_per_minute": 100 });
    server.post("/browser_pools", &pool)?.expect(201)?;
    let (mut browser, mut page, mut theirs) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        server.until_available(POOL, SIZE as u64)?;
        quiet();
        let mut client = Client::of(server)?;
        let mut leased = Vec::new();
        for _ in 0..SIZE {
            let began = Instant::now();
            let session = client.acquire(POOL)?;
            let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
            cdp.call("Browser.getVersion", &json!({}))?;
            browser.add(began.elapsed());
            let target = cdp.page()?;
            cdp.evaluate(&target, "6 * 7")?;
            page.add(began.elapsed());
            leased.push(session);
        }
        for session in &leased {
            server.release(POOL, session)?;
        }
        // The pool fills again before, so that both do not start browsers at the same time.
        server.until_available(POOL, SIZE as u64)?;
        quiet();
        for _ in 0..SIZE {
            let id = theirs.time(|| grid.new_session())?;
            grid.end_session(&id)?;
        }
    }
    let cold = theirs.p50();
    let alone = || format!("POST /session of the Grid alone, {}", ms(cold));
    let count = browser.count();
    table.add(
        Row::new(format!("acquire from a warm pool on a Grid, first CDP answer, p50 of {count}"), ms(browser.p50()))
            .against(alone(), browser.p50() / cold)
            .target("≤ 20 ms", browser.p50(), Limit::Most(20.0)),
    );
    table.add(
        Row::new("the same, and the first answer of the page".to_owned(), ms(page.p50()))
            .against(alone(), page.p50() / cold),
    );
    Ok(())
}

/// Measures a command to the page through Casement, and at the Grid's own address of the same browser.
fn round_trips(grid: &Grid, server: &Server, table: &mut Table) -> anyhow::Result<()> {
    let session = Client::of(server)?.create()?;
    let sessions = grid.sessions()?;
    ensure!(sessions.len() == 1, "the Grid has other sessions: {sessions:?}");
    let id = &sessions.first().context("no session")?.id;
    let url = grid.url().replacen("http", "ws", 1) + &format!("/session/{id}/se/cdp");
    let to_hub = TcpStream::connect(grid.address())?;
    let mut straight = PathClient::open(to_hub, &url)?;
    let mut ours = PathClient::open(TcpStream::connect(server.address())?, session.text("cdp_ws_url"))?;
    quiet();
    let (mut through, mut without) = (Samples::default(), Samples::default());
    for _ in 0..ROUND_TRIPS {
        without.time(|| straight.ask_page())?;
        through.time(|| ours.ask_page())?;
    }
    let (ours, theirs) = (through.p50(), without.p50());
    table.add(
        Row::new(format!("CDP round trip to the page of a Grid, p50 of {ROUND_TRIPS}"), ms(ours))
            .against(format!("se:cdp of the Grid alone, {}", ms(theirs)), ours / theirs)
            .target("≤ ×1.10", ours / theirs, Limit::Most(1.10)),
    );
    let (ours, theirs) = (through.p99(), without.p99());
    table.add(Row::new("the same, p99", ms(ours)).against(format!("alone, {}", ms(theirs)), ours / theirs));
    Client::of(server)?.delete(&session)
}
