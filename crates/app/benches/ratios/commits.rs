//! Measures the minimum time of a write: one durable row, by pgbench, over the socket that the server uses.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use casement_postgres::Cluster;
use casement_postgres::cluster::Binaries;
use casement_test_support::program::Server;
use tempfile::TempDir;

use crate::samples::Samples;

/// The committed statement, with a row as long as that of a session.
const SCRIPT: &str = "INSERT INTO bench_commits (content) VALUES (repeat('x', 300));\n";
/// The number of first commits of a run that are not counted, because the connection is new and the statement is not
/// prepared yet.
const UNCOUNTED: usize = 5;
/// The number of commits per second. The pauses let the disk and the processor become idle, as between calls.
const RATE: usize = 50;

/// The private cluster of a server.
pub(crate) struct Commits {
    programs: PathBuf,
    url: String,
    dir: TempDir,
}

impl Commits {
    pub(crate) fn beside(server: &Server) -> anyhow::Result<Self> {
        let cluster = Cluster::find_running(&server.data_dir().join("postgres")).context("no private cluster runs")?;
        let commits = Self { programs: Binaries::newest()?.dir, url: cluster.url(), dir: tempfile::tempdir()? };
        fs::write(commits.dir.path().join("commit.sql"), SCRIPT)?;
        commits.ask("CREATE TABLE IF NOT EXISTS bench_commits (id bigserial PRIMARY KEY, content text)")?;
        Ok(commits)
    }

    /// Commits this many rows, one after the other.
    pub(crate) fn run(&self, count: usize) -> anyhow::Result<Samples> {
        let mut pgbench = Command::new(self.programs.join("pgbench"));
        pgbench.args(["--no-vacuum", "--protocol=prepared", "--log", "--log-prefix=commit", "--file=commit.sql"]);
        pgbench.arg(format!("--transactions={}", count + UNCOUNTED)).arg(format!("--rate={RATE}"));
        pgbench.arg(&self.url).current_dir(&self.dir);
        let done = pgbench.output().context("cannot start pgbench")?;
        ensure!(done.status.success(), "pgbench: {}", String::from_utf8_lossy(&done.stderr));
        let mut samples = Samples::default();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "sql") {
                continue;
            }
            for line in fs::read_to_string(&path)?.lines().skip(UNCOUNTED) {
                samples.add_ms(took(line).with_context(|| format!("pgbench's log cannot be read: {line}"))?);
            }
            fs::remove_file(&path)?;
        }
        ensure!(samples.count() == count, "pgbench logged {} commits of {count}", samples.count());
        Ok(samples)
    }

    /// Returns the first value of a query's result, as text.
    pub(crate) fn ask(&self, sql: &str) -> anyhow::Result<String> {
        let done = self.psql(sql).output().context("cannot start psql")?;
        ensure!(done.status.success(), "psql: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    /// Returns the command that runs these statements.
    pub(crate) fn psql(&self, sql: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--command", sql]).arg(&self.url);
        psql
    }

    /// Returns the output of pgbench.
    pub(crate) fn pgbench(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut pgbench = Command::new(self.programs.join("pgbench"));
        let done = pgbench.args(arguments).arg(&self.url).output().context("cannot start pgbench")?;
        ensure!(done.status.success(), "pgbench: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

/// Returns the duration of a transaction in milliseconds from a line of pgbench's log: client, number, microseconds
/// since the transaction was due, script, two columns of the clock, and the microseconds before it began.
fn took(line: &str) -> Option<f64> {
    let column = |n: usize| line.split(' ').nth(n)?.parse::<f64>().ok();
    Some((column(2)? - column(6)?) / 1000.0)
}
