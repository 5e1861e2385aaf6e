//! Measures reads of a page of events, of a session with a hundred events and of one with a million.

use casement_test_support::program::{Options, Server, Session};
use serde_json::Value;

use super::capturing;
use crate::client::Client;
use crate::commits::Commits;
use crate::machine::quiet;
use crate::progress;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const FEW: u64 = 100;
const MANY: u64 = 1_000_000;
const ROUNDS: usize = 200;
/// The allowed ratio of the times: 1, plus the difference between rounds.
const MAX_RATIO: f64 = 1.3;

pub(super) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let database = Commits::beside(&server)?;
    // The pages cause no captured events, so there are only the inserted events.
    let (small, large) = (capturing(&server, &["captcha"])?, capturing(&server, &["captcha"])?);
    for (session, count) in [(&small, FEW), (&large, MANY)] {
        database.ask(&fill(session, count))?;
    }
    database.ask("VACUUM ANALYZE telemetry_events")?;
    progress(&format!("filled in {MANY} events"));
    let mut client = Client::of(&server)?;
    for (what, query) in [
        ("the oldest page of 100 events", "since=2000-01-01T00:00:00Z&limit=100"),
        ("the newest", "order=desc&limit=100"),
        ("those of a category that one in fifty has", "since=2000-01-01T00:00:00Z&limit=2&category=network"),
    ] {
        compare(&mut client, what, [&small, &large], [query, query], table)?;
    }
    let query = "since=2000-01-01T00:00:00Z&limit=50";
    let middle = [after(&mut client, &small, query, 0)?, after(&mut client, &large, query, 400)?];
    let queries = middle.map(|offset| format!("limit=50&offset={offset}"));
    compare(&mut client, "a page of 50 where an offset leads", [&small, &large], [&queries[0], &queries[1]], table)
}

fn compare(
    client: &mut Client,
    what: &str,
    [small, large]: [&Session; 2],
    queries: [&str; 2],
    table: &mut Table,
) -> anyhow::Result<()> {
    let (mut few, mut many) = (Samples::default(), Samples::default());
    quiet();
    for round in 0..ROUNDS + 10 {
        for (session, query, samples) in [(small, queries[0], &mut few), (large, queries[1], &mut many)] {
            let path = path(session, query);
            // The first calls prepare statements and fill caches.
            let mut warm = Samples::default();
            let samples = if round < 10 { &mut warm } else { samples };
            samples.time(|| client.call("GET", &path, None))?.expect(200)?;
        }
    }
    let ratio = many.p50() / few.p50();
    let row = Row::new(format!("{what}, of {MANY} in the session, p50 of {ROUNDS}"), ms(many.p50()));
    let row = row.against(format!("of {FEW}, {}", ms(few.p50())), ratio);
    table.add(row.target(&format!("≤ ×{MAX_RATIO}"), ratio, Limit::Most(MAX_RATIO)));
    Ok(())
}

/// Returns the offset after the first page and this many further pages.
fn after(client: &mut Client, session: &Session, query: &str, pages: usize) -> anyhow::Result<String> {
    let mut path = path(session, query);
    for _ in 0..pages {
        let offset = offset(client, &path)?;
        path = self::path(session, &format!("limit=50&offset={offset}"));
    }
    offset(client, &path)
}

fn offset(client: &mut Client, path: &str) -> anyhow::Result<String> {
    let answer = client.call("GET", path, None)?.expect(200)?;
    let found: Value = answer.json()?;
    let count = found.as_array().map_or(0, Vec::len);
    let next = answer.header("x-next-offset").map(str::to_owned);
    next.ok_or_else(|| anyhow::anyhow!("no further page behind {count} events"))
}

fn path(session: &Session, query: &str) -> String {
    format!("/browsers/{}/telemetry/events?{query}", session.id())
}

/// Returns the statement that inserts events of one minute: console lines, and a network event every fifty lines.
fn fill(session: &Session, count: u64) -> String {
    let id = session.id();
    let category = "CASE WHEN n % 50 = 0 THEN 'network' ELSE 'console' END";
    format!(
        "INSERT INTO telemetry_events (session_id, seq, at, category, body)
         SELECT s.id, n, now() - interval '120 s' + n * interval '{step} s', {category},
                json_build_object('type', CASE WHEN n % 50 = 0 THEN 'network_idle' ELSE 'console_log' END,
                    'category', {category}, 'ts', 1796126400000000 + n, 'source', json_build_object('kind', 'cdp'),
                    'data', json_build_object('text', 'line ' || n, 'url', 'https://casement.example/' || repeat('x', 200)))::text
         FROM generate_series(1, {count}) AS n, sessions AS s WHERE s.id = {uuid};",
        step = 60.0 / count as f64,
        uuid = uuid_of(id),
    )
}

/// Returns an id in the form of the database.
fn uuid_of(id: &str) -> String {
    let number = id.bytes().fold(0_u128, |number, sign| {
        let digit = b"0123456789abcdefghjkmnpqrstvwxyz".iter().position(|one| *one == sign.to_ascii_lowercase());
        number << 5 | digit.unwrap_or(0) as u128
    });
    let hex = format!("{number:032x}");
    format!("'{hex}'::uuid")
}
