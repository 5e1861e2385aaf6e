//! Measures the events per second from end to end: logged by pages, reported by the agents, stored durably, and
//! readable through the API.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Options, Server, Session, until};

use super::{a_page, capturing};
use crate::machine::quiet;
use crate::table::{Limit, Row, Table};

const SESSIONS: usize = 2;
/// The number of lines of each page's burst, which is below the buffer of an agent.
const LINES: u64 = 10_000;
const ROUNDS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(120);
/// The pause after which a capture may use its processor time for a burst again: it may use a third of the time, and
/// one second at once.
const REST_INTERVAL: Duration = Duration::from_secs(4);

/// A session and the connection to its page.
struct Speaker {
    session: Session,
    cdp: Cdp,
    page: String,
}

pub(super) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let pages = a_page()?;
    let server = Server::start(Options::reaching(&pages))?;
    let mut speakers = Vec::new();
    for _ in 0..SESSIONS {
        let session = capturing(&server, &["console"])?;
        let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = cdp.page()?;
        cdp.open(&page, &pages.url("/plain"))?;
        speakers.push(Speaker { session, cdp, page });
    }
    let (mut best, mut lost) = (0.0_f64, 0);
    let mut before = 0;
    for round in 1..=ROUNDS as u64 {
        std::thread::sleep(REST_INTERVAL);
        quiet();
        let began = Instant::now();
        for speaker in &mut speakers {
            let say = format!("setTimeout(() => {{ for (let n = 0; n < {LINES}; n++) console.log('line ' + n) }}); 0");
            speaker.cdp.evaluate(&speaker.page, &say)?;
        }
        for speaker in &speakers {
            until("every line is stored", TIMEOUT, || (newest(&server, speaker).ok()? >= round * LINES).then_some(()))?;
        }
        let stored = metric(&server, "casement_telemetry_events_total")?;
        let whole = SESSIONS as u64 * LINES;
        best = best.max((stored - before).min(whole) as f64 / began.elapsed().as_secs_f64());
        lost += whole.saturating_sub(stored - before);
        before = stored;
    }
    let what =
        format!("events stored, from the page to the answer of the API, {SESSIONS} sessions, best of {ROUNDS} bursts");
    table.add(Row::new(what, format!("{best:.0}/s")));
    let what = format!("of {} lines not stored, but counted", SESSIONS as u64 * LINES * ROUNDS as u64);
    table.add(Row::new(what, lost.to_string()).target("none", lost as f64, Limit::Most(0.0)));
    Ok(())
}

/// Returns the number of a session's last event.
fn newest(server: &Server, speaker: &Speaker) -> anyhow::Result<u64> {
    let path = format!("/browsers/{}/telemetry/events?order=desc&limit=1", speaker.session.id());
    let found = server.get(&path)?.expect(200)?.json()?;
    found[0]["seq"].as_u64().context("no event")
}

fn metric(server: &Server, name: &str) -> anyhow::Result<u64> {
    let text = server.get("/metrics")?.expect(200)?.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let value: f64 = line.trim().parse().with_context(|| format!("{name} is {line}"))?;
    ensure!(value >= 0.0, "{name} is {value}");
    Ok(value as u64)
}
