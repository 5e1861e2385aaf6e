//! What telemetry costs: loading a page while all of it is captured, and while nothing is.

use serde_json::{Map, Value, json};

use crate::machine::quiet;
use crate::samples::Samples;
use crate::support::{Cdp, Options, Pages, Server};
use crate::table::{Limit, Row, Table, ms};

const ROUNDS: usize = 40;
/// What a page is made of.
const PARTS: usize = 40;
/// What capturing all nine categories may make of the time of a load.
const MOST: f64 = 1.10;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let pages = page()?;
    let server = Server::start(Options::reaching(&pages))?;
    let categories =
        ["console", "page", "interaction", "network", "control", "connection", "system", "screenshot", "captcha"];
    let all: Map<String, Value> =
        categories.map(|name| (name.to_owned(), json!({ "enabled": true }))).into_iter().collect();
    let off = server.create(&json!({ "headless": true }))?;
    let on = server.create(&json!({ "headless": true, "telemetry": { "enabled": true, "browser": all } }))?;
    let (mut without, mut with) = (Samples::default(), Samples::default());
    let (mut plain, mut captured) = (Cdp::connect(off.text("cdp_ws_url"))?, Cdp::connect(on.text("cdp_ws_url"))?);
    let sessions = [plain.page()?, captured.page()?];
    let address = pages.url("/whole");
    for round in 0..ROUNDS + 3 {
        quiet();
        // The first ones fill caches.
        let mut warm = (Samples::default(), Samples::default());
        let (off, on) = if round < 3 { (&mut warm.0, &mut warm.1) } else { (&mut without, &mut with) };
        off.time(|| plain.open(&sessions[0], &address))?;
        quiet();
        on.time(|| captured.open(&sessions[1], &address))?;
    }
    let what = format!("load a page of {PARTS} parts with all telemetry, p50 of {}", with.count());
    let row = Row::new(what, ms(with.p50())).beside(format!("with none {}", ms(without.p50())));
    table.add(row.target(&format!("at most {MOST} times"), with.p50() / without.p50(), Limit::Most(MOST)));
    Ok(())
}

/// Scripts, styles and data, as many as on a page of today, each a few kilobytes long.
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
