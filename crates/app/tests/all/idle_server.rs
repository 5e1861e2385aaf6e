//! Tests what a server without callers costs its database.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Options, Server};

use super::host::sql;

/// The statements of an idle server per minute, as docs/scaling.md promises.
const PER_MINUTE: u64 = 60;
/// The time for which statements are counted. The longest regular interval but those of minutes is 30 s.
const COUNTED: Duration = Duration::from_secs(60);

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

#[test]
fn an_idle_server_sends_at_most_one_statement_a_second() -> anyhow::Result<()> {
    let server = Server::start(Options { first_start: true, ..Options::default() })?;
    server.until_available("default", 2)?;
    sql(&server, "ALTER SYSTEM SET log_statement = 'all'")?;
    sql(&server, "SELECT pg_reload_conf()")?;
    let log = server.data_dir().join("postgres.log");
    let length = || anyhow::Ok(fs::metadata(&log)?.len());
    // What follows the last start of a browser.
    sleep(Duration::from_secs(20));
    let (before, began) = (length()?, Instant::now());
    sleep(COUNTED);
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let text = fs::read(&log)?;
    let text = text.get(usize::try_from(before)?..).context("the log is shorter")?;
    let found = statements(&String::from_utf8_lossy(text));
    let number: u64 = found.values().sum();
    ensure!(number > 10, "the log has no statements: {found:#?}");
    // One more for the phase.
    ensure!(number as f64 <= PER_MINUTE as f64 * minutes + 1.0, "{number} statements in {minutes} minutes: {found:#?}");
    Ok(())
}
