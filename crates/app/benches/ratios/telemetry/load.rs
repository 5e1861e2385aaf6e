//! Measures page loads and API calls, with full telemetry and without telemetry.

use casement_test_support::program::{Cdp, Options, Pages, Server, Session};
use serde_json::json;

use super::{CATEGORIES, capturing};
use crate::client::Client;
use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const ROUNDS: usize = 40;
/// The number of parts of a page.
const PARTS: usize = 40;
/// The allowed ratio of the load time with all nine categories.
const MAX_RATIO: f64 = 1.10;
/// The number of calls per round, and of rounds.
const CALLS: usize = 200;
const CALL_ROUNDS: usize = 10;
/// The calls: one with the same response on both sides, and one that also returns the capture settings.
const CALLED: [(&str, &str); 2] = [
    ("GET /browsers/{id}/fs/file_info", "/fs/file_info?path=/tmp"),
    ("GET /browsers/{id}, which names nine categories more", ""),
];
/// The allowed ratio of the call time: only the difference between rounds.
const MAX_CALL_RATIO: f64 = 1.05;

pub(super) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let pages = page()?;
    let server = Server::start(Options::reaching(&pages))?;
    let off = server.create(&json!({ "headless": true, "timeout_seconds": 3600 }))?;
    let on = capturing(&server, &CATEGORIES)?;
    let (mut without, mut with) = (Samples::default(), Samples::default());
    let (mut plain, mut captured) = (Cdp::connect(off.text("cdp_ws_url"))?, Cdp::connect(on.text("cdp_ws_url"))?);
    let sessions = [plain.page()?, captured.page()?];
    let address = pages.url("/whole");
    for round in 0..ROUNDS + 3 {
        quiet();
        // The first calls fill caches.
        let mut warm = (Samples::default(), Samples::default());
        let (off, on) = if round < 3 { (&mut warm.0, &mut warm.1) } else { (&mut without, &mut with) };
        off.time(|| plain.open(&sessions[0], &address))?;
        quiet();
        on.time(|| captured.open(&sessions[1], &address))?;
    }
    let what = format!("load a page of {PARTS} parts with all telemetry, p50 of {}", with.count());
    let ratio = with.p50() / without.p50();
    let row = Row::new(what, ms(with.p50())).against(format!("with none, {}", ms(without.p50())), ratio);
    table.add(row.target(&format!("≤ ×{MAX_RATIO:.2}"), ratio, Limit::Most(MAX_RATIO)));
    calls(&server, &off, &on, table)
}

/// Measures the same calls on both sessions, in turn.
fn calls(server: &Server, off: &Session, on: &Session, table: &mut Table) -> anyhow::Result<()> {
    let mut client = Client::of(server)?;
    for (call, inside) in CALLED {
        let (mut without, mut with) = (Samples::default(), Samples::default());
        for _ in 0..CALL_ROUNDS {
            for (session, samples) in [(off, &mut without), (on, &mut with)] {
                let path = format!("/browsers/{}{inside}", session.id());
                quiet();
                for _ in 0..CALLS {
                    samples.time(|| client.call("GET", &path, None))?.expect(200)?;
                }
            }
        }
        let what = format!("{call}, of a session with all telemetry, p50 of {}", with.count());
        let ratio = with.p50() / without.p50();
        let row = Row::new(what, ms(with.p50())).against(format!("with none, {}", ms(without.p50())), ratio);
        table.add(row.target(&format!("≤ ×{MAX_CALL_RATIO:.2}"), ratio, Limit::Most(MAX_CALL_RATIO)));
    }
    Ok(())
}

/// Serves a page with a typical number of scripts and styles, each a few kilobytes long.
fn page() -> anyhow::Result<Pages> {
    let pages = Pages::start()?;
    let mut html = "<!doctype html><title>whole</title>".to_owned();
    for part in 0..PARTS {
        if part % 2 == 0 {
            html.push_str(&format!("<script src=/part{part}.js></script><p>{}</p>", "words ".repeat(200)));
            let script = format!("console.log('part', {{ part: {part} }}); // {}", "x".repeat(8000));
            pages.put_as(&format!("/part{part}.js"), "Content-Type: text/javascript", &script);
        } else {
            html.push_str(&format!("<link rel=stylesheet href=/part{part}.css>"));
            let style = format!(".part{part} {{ color: red }} /* {} */", "x".repeat(8000));
            pages.put_as(&format!("/part{part}.css"), "Content-Type: text/css", &style);
        }
    }
    pages.put("/whole", &html);
    Ok(pages)
}
