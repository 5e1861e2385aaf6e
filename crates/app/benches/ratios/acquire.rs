//! Measures leases of ready browsers of a pool, and the time until the pool is full again.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use casement_test_support::program::{Options, Server, Session};
use serde_json::json;

use crate::client::{Client, first_answer};
use crate::commits::Commits;
use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const POOL: &str = "bench";
const SIZE: usize = 10;
/// The number of rounds, each with as many acquires as the pool has browsers and with commits before them.
const ROUNDS: usize = 10;
const COMMITS: usize = 50;
/// The number of rounds with concurrent callers.
const CONCURRENT_ROUNDS: usize = 5;
const CONCURRENT_CALLERS: usize = 8;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let commits = Commits::beside(&server)?;
    server.post("/browser_pools", &json!({ "name": POOL, "size": SIZE, "headless": true }))?.expect(201)?;
    server.until_available(POOL, SIZE as u64)?;
    let mut found = Found::default();
    for _ in 0..ROUNDS {
        one_after_the_other(&server, &commits, &mut found)?;
    }
    for _ in 0..CONCURRENT_ROUNDS {
        at_once(&server, &mut found)?;
    }
    found.report(table);
    Ok(())
}

#[derive(Default)]
struct Found {
    commit: Samples,
    acquire: Samples,
    first_answer: Samples,
    concurrent: Samples,
    refill: Samples,
}

fn one_after_the_other(server: &Server, commits: &Commits, found: &mut Found) -> anyhow::Result<()> {
    quiet();
    found.commit.extend(&commits.run(COMMITS)?);
    let mut client = Client::of(server)?;
    let mut sessions = Vec::new();
    for _ in 0..SIZE {
        let began = Instant::now();
        let session = client.acquire(POOL)?;
        let acquired = began.elapsed();
        first_answer(&session)?;
        found.acquire.add(acquired);
        found.first_answer.add(began.elapsed());
        sessions.push(session);
    }
    give_back(server, &sessions, found)
}

fn at_once(server: &Server, found: &mut Found) -> anyhow::Result<()> {
    quiet();
    let start = Barrier::new(CONCURRENT_CALLERS);
    let one = || -> anyhow::Result<(Session, Duration)> {
        let client = Client::of(server);
        start.wait();
        let began = Instant::now();
        let session = client?.acquire(POOL)?;
        first_answer(&session)?;
        Ok((session, began.elapsed()))
    };
    let done: Vec<_> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CONCURRENT_CALLERS).map(|_| scope.spawn(one)).collect();
        callers.into_iter().map(|caller| caller.join().map_err(|_| anyhow!("a caller panicked"))).collect()
    });
    let mut sessions = Vec::new();
    for caller in done {
        let (session, took) = caller??;
        found.concurrent.add(took);
        sessions.push(session);
    }
    give_back(server, &sessions, found)
}

/// Releases all sessions, and waits until the pool is full.
fn give_back(server: &Server, sessions: &[Session], found: &mut Found) -> anyhow::Result<()> {
    let began = Instant::now();
    for session in sessions {
        server.release(POOL, session)?;
    }
    server.until_available(POOL, SIZE as u64)?;
    found.refill.add(began.elapsed() / u32::try_from(sessions.len())?);
    Ok(())
}

impl Found {
    fn report(&self, table: &mut Table) {
        let commit = |value: f64| format!("a durable commit, {}", ms(value));
        let (ours, floor) = (self.acquire.p50(), self.commit.p50());
        table.add(
            Row::new(format!("acquire from a warm pool, p50 of {}", self.acquire.count()), ms(ours))
                .against(commit(floor), ours / floor)
                .target("≤ ×3", ours / floor, Limit::Most(3.0))
                .target("< 10 ms", ours, Limit::Most(9.99)),
        );
        let (ours, floor) = (self.acquire.p99(), self.commit.p99());
        table.add(Row::new("the same, p99", ms(ours)).against(commit(floor), ours / floor).target(
            "< 50 ms",
            ours,
            Limit::Most(49.99),
        ));
        let ours = self.first_answer.p50();
        table.add(
            Row::new("acquire, connect, first answer of the page, p50", ms(ours))
                .against(commit(self.commit.p50()), ours / self.commit.p50())
                .target("< 20 ms", ours, Limit::Most(19.99)),
        );
        let ours = self.concurrent.worst();
        table.add(
            Row::new(
                format!("the same, {CONCURRENT_CALLERS} callers at once, the slowest of {CONCURRENT_ROUNDS} rounds"),
                ms(ours),
            )
            .against(format!("one alone, {}", ms(self.first_answer.p50())), ours / self.first_answer.p50())
            .target("< 150 ms", ours, Limit::Most(149.99)),
        );
        let rate = 1000.0 / self.refill.p50();
        table.add(Row::new("refill of a pool", format!("{rate:.2} sessions/s")).target(
            "≥ 2.2 sessions/s",
            rate,
            Limit::Least(2.2),
        ));
    }
}
