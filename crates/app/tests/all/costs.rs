//! Tests what does not depend on the speed of a machine: the statements of a server without callers, of a session and of a
//! lease, and the processes of a session.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Cdp, Options, Process, Server, Session, until};
use serde_json::json;

use super::host::sql;

/// The statements of an idle server per minute, as docs/scaling.md promises.
const PER_MINUTE: u64 = 60;
/// The time for which statements are counted. The longest regular interval but those of minutes is 30 s.
const COUNTED: Duration = Duration::from_secs(60);

/// The statements of a session on demand from its creation to its end (22 on 2026-11-30), and of a lease after a wait, with
/// the start of the next browser (57). Who needs more writes down why.
const MOST_OF_SESSION: u64 = 24;
const MOST_OF_LEASE: u64 = 62;

/// Returns the statements in a log of the database, each with its number.
fn statements(log: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for line in log.lines() {
        let statement = ["LOG:  execute ", "LOG:  statement: "].iter().find_map(|mark| line.split_once(mark));
        if let Some((_, text)) = statement {
            // The name of a prepared statement.
            let text = text.split_once(": ").map_or(text, |(_, rest)| rest);
            *all.entry(text.chars().take(120).collect()).or_default() += 1;
        }
    }
    all
}

/// The log of the statements of a server's database.
struct StatementLog {
    file: PathBuf,
    length: usize,
    began: Instant,
}

impl StatementLog {
    /// Lets the database log all statements.
    fn enable(server: &Server) -> anyhow::Result<Self> {
        sql(server, "ALTER SYSTEM SET log_statement = 'all'")?;
        sql(server, "SELECT pg_reload_conf()")?;
        Ok(Self { file: server.data_dir().join("postgres.log"), length: 0, began: Instant::now() })
    }

    /// Begins to count.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.length = usize::try_from(fs::metadata(&self.file)?.len())?;
        self.began = Instant::now();
        Ok(())
    }

    /// Returns the statements since then, each with its number, and the time.
    fn counted(&self) -> anyhow::Result<(BTreeMap<String, u64>, Duration)> {
        let (time, text) = (self.began.elapsed(), fs::read(&self.file)?);
        let text = text.get(self.length..).context("the log is shorter")?;
        Ok((statements(&String::from_utf8_lossy(text)), time))
    }
}

#[test]
fn an_idle_server_sends_at_most_one_statement_a_second() -> anyhow::Result<()> {
    let server = Server::start(Options { first_start: true, ..Options::default() })?;
    server.until_available("default", 2)?;
    let mut log = StatementLog::enable(&server)?;
    // What follows the last start of a browser.
    sleep(Duration::from_secs(20));
    log.begin()?;
    sleep(COUNTED);
    let (found, time) = log.counted()?;
    let number: u64 = found.values().sum();
    ensure!(number > 10, "the log has no statements: {found:#?}");
    // One more for the phase.
    ensure!(number as f64 <= PER_MINUTE as f64 * time.as_secs_f64() / 60.0 + 1.0, "{number} in {time:?}: {found:#?}");
    Ok(())
}

/// The cycles of a lease, or of a session on demand, that are counted.
const CYCLES: u64 = 8;

/// Repeats `cycle` and checks that it needs at most so many statements, beside those of an idle server.
fn check_statements(
    log: &mut StatementLog,
    what: &str,
    most: u64,
    mut cycle: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Connections prepare their statements, and credentials are read.
    for _ in 0..CYCLES / 2 {
        cycle()?;
    }
    log.begin()?;
    for _ in 0..CYCLES {
        cycle()?;
    }
    let (found, time) = log.counted()?;
    let number: u64 = found.values().sum();
    let of_idle_server = PER_MINUTE as f64 * time.as_secs_f64() / 60.0;
    let each = (number as f64 - of_idle_server) / CYCLES as f64;
    eprintln!("{what}: {number} statements for {CYCLES} in {time:?}, {each:.1} each beside those of an idle server");
    ensure!(each <= most as f64, "{what}: {each:.1} statements each, at most {most}: {found:#?}");
    Ok(())
}

#[test]
fn a_lease_and_a_session_need_a_known_number_of_statements() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let mut log = StatementLog::enable(&server)?;
    let delete = |session: &Session| server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop);
    check_statements(&mut log, "a session on demand", MOST_OF_SESSION, || delete(&server.headless()?))?;

    server.post("/browser_pools", &json!({ "name": "counted", "size": 1, "headless": true }))?.expect(201)?;
    server.until_available("counted", 1)?;
    check_statements(&mut log, "a lease after a wait", MOST_OF_LEASE, || {
        let leased = server.post("/browser_pools/counted/acquire", &json!({}))?.expect(200)?.json()?;
        let release = json!({ "session_id": leased["session_id"], "reuse": false });
        server.post("/browser_pools/counted/release", &release)?.expect(204).map(drop)
    })
}

/// The processes of an idle session without and with a display, its agent and bubblewrap's included.
const MOST_PROCESSES: [(bool, usize); 2] = [(true, 14), (false, 16)];

#[test]
fn an_idle_session_has_a_known_number_of_processes() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let count = || {
        let is_of_database =
            |process: &Process| process.argv.first().is_some_and(|program| program.contains("postgres"));
        server.processes().iter().filter(|process| !is_of_database(process)).count()
    };
    for (headless, most) in MOST_PROCESSES {
        let before = count();
        let session = server.create(&json!({ "headless": headless, "timeout_seconds": 600 }))?;
        let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = client.page()?;
        client.evaluate(&page, "1")?;
        // Some processes start later.
        sleep(Duration::from_secs(5));
        let mut last = 0;
        let few = until("the processes of the start have ended", Duration::from_secs(60), || {
            last = count().saturating_sub(before);
            (last <= most).then_some(())
        });
        eprintln!("headless {headless}: {last} processes");
        few.with_context(|| format!("headless {headless}: {last} processes, at most {most}"))?;
        ensure!(last > 5, "headless {headless}: only {last} processes were found");
        drop(client);
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}
