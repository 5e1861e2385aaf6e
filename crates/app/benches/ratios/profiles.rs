//! Measures the cost of a profile: loading ten megabytes into a new session, and saving them at its end.

use std::time::{Duration, Instant};

use anyhow::ensure;
use casement_test_support::program::{Cdp, Options, Pages, Server, Session, until};
use serde_json::json;

use crate::client::{Client, first_answer};
use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const ROUNDS: usize = 15;
/// The number of shapes with one spare each.
const SHAPES: usize = 2;
const FILL_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that a profile may add to the creation of a session, in milliseconds.
const MAX_MS: f64 = 500.0;

/// Fills a database with incompressible data.
const FILL: &str = "(async () => {
    const open = indexedDB.open('bench', 1);
    open.onupgradeneeded = () => open.result.createObjectStore('store');
    await new Promise(done => { open.onsuccess = done; });
    for (let n = 0; n < 160; n++) {
        const put = open.result.transaction('store', 'readwrite').objectStore('store');
        const request = put.put(crypto.getRandomValues(new Uint8Array(65536)), n);
        await new Promise((done, failed) => { request.onsuccess = done; request.onerror = failed; });
    }
})()";

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let variables = vec![("CASEMENT_LOG".to_owned(), "info,casement::jobs::spares=debug".to_owned())];
    let server = Server::start(Options { spares: 1, variables, ..Options::reaching(&pages) })?;
    server.post("/profiles", &json!({ "name": "bench" }))?.expect(201)?;
    let mut client = Client::of(&server)?;
    let filled = create(&mut client)?;
    let mut cdp = Cdp::connect(filled.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/"))?;
    cdp.evaluate(&page, FILL)?;
    client.delete(&filled)?;
    let size = server.get("/profiles/bench/download")?.expect(200)?.body.len() as f64 / 1e6;
    ensure!((10.0..13.0).contains(&size), "the profile has {size} MB");

    let ready = || server.log().matches("a spare browser is ready").count();
    until("a full reserve", FILL_TIMEOUT, || (ready() >= SHAPES).then_some(()))?;
    let (mut without, mut with, mut saving) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        // Also waits until the spares are complete again, because their starts use the processor.
        quiet();
        let plain = without.time(|| client.create())?;
        first_answer(&plain)?;
        client.delete(&plain)?;
        quiet();
        let began = Instant::now();
        let session = create(&mut client)?;
        with.add(began.elapsed());
        first_answer(&session)?;
        saving.time(|| client.delete(&session))?;
    }
    let what = format!("create headless with a profile of {size:.0} MB, p50 of {}", with.count());
    let added = with.p50() - without.p50();
    let row = Row::new(what, ms(with.p50())).beside(format!("without one, from the reserve, {}", ms(without.p50())));
    table.add(row.target(&format!("adds at most {}", ms(MAX_MS)), added, Limit::Most(MAX_MS)));
    table.add(Row::new("the same, p99", ms(with.p99())).beside(format!("without one, {}", ms(without.p99()))));
    table.add(Row::new("end it and save the profile as another version, p50", ms(saving.p50())));
    Ok(())
}

fn create(client: &mut Client) -> anyhow::Result<Session> {
    let body = json!({ "headless": true, "profile": { "name": "bench", "save_changes": true } });
    Ok(Session(client.call("POST", "/browsers", Some(&body))?.expect(201)?.json()?))
}
