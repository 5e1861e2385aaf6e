//! Measures scripts through the API, against the same script in a Node process that is already connected.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Options, Server};
use serde_json::{Value, json};

use crate::client::Client;
use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const CALLS: usize = 300;
/// The interval between calls, long enough for the next process to be ready.
const CALL_INTERVAL: Duration = Duration::from_millis(500);
const PAUSED_CALLS: usize = 50;

const SCRIPT: &str = "return await page.title()";
/// A script that runs the same code 300 times in one process and returns the median time.
const CONNECTED: &str = "const took = [];
    for (let n = 0; n < 300; n++) {
        const began = performance.now();
        await (async () => { return await page.title() })();
        took.push(performance.now() - began);
    }
    return took.sort((a, b) => a - b)[150]";

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let mut client = Client::of(&server)?;
    let session = client.call("POST", "/browsers", Some(&json!({ "headless": true })))?.expect(201)?.json()?;
    let path = format!("/browsers/{}/playwright/execute", session["session_id"].as_str().unwrap_or_default());
    let mut execute = |code: &str, seconds: u32| -> anyhow::Result<Value> {
        client.call("POST", &path, Some(&json!({ "code": code, "timeout_sec": seconds })))?.expect(200)?.json()
    };
    quiet();
    let mut first = Samples::default();
    let end = first.time(|| execute(SCRIPT, 60))?;
    ensure!(end["success"] == true, "{end}");
    quiet();
    let connected = execute(CONNECTED, 60)?["result"].as_f64().context("no figure from Node")?;
    let mut ours = Samples::default();
    for _ in 0..CALLS {
        let end = ours.time(|| execute(SCRIPT, 60))?;
        ensure!(end["success"] == true, "{end}");
    }
    let mut paused = Samples::default();
    for _ in 0..PAUSED_CALLS {
        std::thread::sleep(CALL_INTERVAL);
        let end = paused.time(|| execute(SCRIPT, 60))?;
        ensure!(end["success"] == true, "{end}");
    }
    let (p50, p99, paused) = (ours.p50(), ours.p99(), paused.p50());
    let node = || format!("in a Node process that is connected, {}", ms(connected));
    let row = Row::new(format!("script, back to back, p50 of {CALLS}"), ms(p50)).against(node(), p50 / connected);
    table.add(row.target("≤ 25 ms more", p50 - connected, Limit::Most(25.0)));
    let row = Row::new(format!("the same, each {} s after the one before", CALL_INTERVAL.as_secs_f64()), ms(paused));
    let row = row.against(node(), paused / connected);
    table.add(row.target("≤ 25 ms more", paused - connected, Limit::Most(25.0)));
    table.add(Row::new("back to back, p99", ms(p99)).against(node(), p99 / connected));
    table.add(Row::new("the first script of a session", ms(first.p50())).against(node(), first.p50() / connected));
    execute("while (true) {}", 3)?;
    let began = Instant::now();
    let end = execute(SCRIPT, 60)?;
    ensure!(end["success"] == true, "{end}");
    let after = began.elapsed().as_secs_f64() * 1000.0;
    table.add(Row::new("the script after an endless one", ms(after)).target("≤ 1 s", after, Limit::Most(1000.0)));
    Ok(())
}
