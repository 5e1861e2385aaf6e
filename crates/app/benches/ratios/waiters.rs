//! Measures thousands of callers in the wait queue of a pool without a free browser.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use casement_test_support::program::http::Answer;
use casement_test_support::program::{Options, Server, Session};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::client::request;
use crate::commits::Commits;
use crate::machine::{cpu_ms, open_files, pss_kib, quiet, server_pid};
use crate::progress;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

pub(crate) const POOL: &str = "bench";
/// The size of the pool: one browser, so that the times of the leases show their order.
const SIZE: usize = 1;
const WAITERS: usize = 10_000;
/// The number of callers that enter sequentially, and so have an order.
const ORDERED: usize = 30;
/// The number of further callers that enter concurrently.
const BATCH: usize = 100;
/// The time without leases for which the cost of waiting is measured.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(60);
const IN_LINE: &str = "SELECT count(*) FROM pool_waiters WHERE outcome IS NULL";

/// The response to a waiting caller.
struct Response {
    caller: usize,
    at: Instant,
    clock: OffsetDateTime,
    answer: anyhow::Result<Answer>,
}

/// The callers, each with a connection of its own.
pub(crate) struct Callers {
    runtime: Runtime,
    /// The nodes, which callers use in turn, and the request to each.
    nodes: Vec<(SocketAddr, Arc<[u8]>)>,
    sender: Sender<Response>,
    responses: Receiver<Response>,
    count: usize,
}

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let pid = server_pid(&server.data_dir())?;
    let database = Commits::beside(&server)?;
    server.post("/browser_pools", &json!({ "name": POOL, "size": SIZE, "headless": true }))?.expect(201)?;
    server.until_available(POOL, SIZE as u64)?;
    let leased = (0..SIZE).map(|_| server.acquire(POOL)).collect::<anyhow::Result<Vec<_>>>()?;
    quiet();
    let (memory_before, cpu_before) = (pss_kib(pid)?, cpu_while_still(pid)?);

    let mut callers = Callers::new(&[&server])?;
    let entering = callers.enter_all(&database)?;
    let wanted = callers.count();
    quiet();
    let each = (pss_kib(pid)? as f64 - memory_before as f64) / wanted as f64;
    let cpu = cpu_while_still(pid)?;
    table.add(
        Row::new(format!("each of {wanted} callers in line, PSS of the server"), format!("{each:.1} KiB")).target(
            "≤ 26 KiB",
            each,
            Limit::Most(26.0),
        ),
    );
    table.add(
        Row::new("processor time while all wait", format!("{cpu:.1} ms per second"))
            .beside(format!("with nobody in line, {cpu_before:.1} ms per second")),
    );
    table.add(Row::new("callers that enter the line", format!("{entering:.0}/s")));
    hand_overs(&server, &callers, leased, table)?;
    everybody(&server, &callers, table)
}

/// Returns the processor time in milliseconds per second.
fn cpu_while_still(pid: u32) -> anyhow::Result<f64> {
    let before = cpu_ms(pid)?;
    std::thread::sleep(IDLE_INTERVAL);
    Ok((cpu_ms(pid)? - before) as f64 / IDLE_INTERVAL.as_secs_f64())
}

/// Measures releases one by one: the order of the callers that get the browser, and the delay after the decision.
pub(crate) fn hand_overs(
    server: &Server,
    callers: &Callers,
    leased: Vec<Session>,
    table: &mut Table,
) -> anyhow::Result<()> {
    for session in &leased {
        server.release(POOL, session)?;
    }
    let (mut order, mut delays) = (Vec::new(), Samples::default());
    while order.len() < ORDERED {
        let response = callers.responses.recv_timeout(TIMEOUT).context("nobody was woken")?;
        let session = Session(response.answer?.expect(200)?.json()?);
        let granted = OffsetDateTime::parse(session.text("created_at"), &Rfc3339)?;
        delays.add_ms((response.clock - granted).as_seconds_f64() * 1000.0);
        order.push((granted, response.caller));
        server.release(POOL, &session)?;
    }
    order.sort_unstable();
    let in_order = order.iter().zip(0..).filter(|((_, caller), place)| caller == place).count();
    let what = format!("hand-overs in order of arrival, of {ORDERED} with everybody behind them");
    table.add(Row::new(what, in_order.to_string()).target(
        &format!("{ORDERED}"),
        in_order as f64,
        Limit::Least(ORDERED as f64),
    ));
    table.add(Row::new("from the decision to the caller's answer, p50", ms(delays.p50())));
    table.add(Row::new("the same, the slowest", ms(delays.worst())));
    Ok(())
}

/// Measures the deletion of the pool: every waiting caller gets a response.
pub(crate) fn everybody(server: &Server, callers: &Callers, table: &mut Table) -> anyhow::Result<()> {
    let (began, wanted) = (Instant::now(), callers.count());
    let deleted = server.send("DELETE", &format!("/browser_pools/{POOL}"), Some(&json!({ "force": true })))?;
    deleted.expect(204)?;
    let (mut times, mut gone) = (Samples::default(), 0);
    for _ in ORDERED..wanted {
        let one = callers.responses.recv_timeout(TIMEOUT).context("not everybody was told")?;
        let status = one.answer?.status;
        // One more caller may have received a browser before the deletion.
        if status != 200 {
            times.add(one.at - began);
        }
        gone += usize::from(status == 404);
    }
    let what = format!("a pool with {} callers in line is deleted: the last is told after", times.count());
    table.add(Row::new(what, ms(times.worst())));
    table.add(Row::new("the same, half of them", ms(times.p50())));
    let rightly = format!("of them told that the pool is gone ({} before)", wanted - ORDERED - times.count());
    table.add(Row::new(rightly, gone.to_string()).target("all", gone as f64, Limit::Least(times.count() as f64)));
    Ok(())
}

impl Callers {
    pub(crate) fn new(servers: &[&Server]) -> anyhow::Result<Self> {
        let body = json!({ "acquire_timeout_seconds": 1800 });
        let path = format!("/browser_pools/{POOL}/acquire");
        let of = |server: &&Server| {
            let request = request(server.address(), server.key(), "POST", &path, Some(&body));
            (server.address(), request.into())
        };
        let nodes = servers.iter().map(of).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (sender, responses) = mpsc::channel();
        Ok(Self { runtime, nodes, sender, responses, count: 0 })
    }

    /// Returns the number of callers.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Starts all callers, the first ones sequentially. Returns how many enter in a second.
    pub(crate) fn enter_all(&mut self, database: &Commits) -> anyhow::Result<f64> {
        let wanted = WAITERS.min(open_files().saturating_sub(500));
        let began = Instant::now();
        while self.count < wanted {
            let more = if self.count < ORDERED { 1 } else { BATCH.min(wanted - self.count) };
            self.enter(more, database)?;
            if self.count % 2000 < more {
                progress(&format!("{} in line", self.count));
            }
        }
        Ok(wanted as f64 / began.elapsed().as_secs_f64())
    }

    /// Starts concurrent callers. Returns when all of them are in the queue.
    fn enter(&mut self, more: usize, database: &Commits) -> anyhow::Result<()> {
        for caller in self.count..self.count + more {
            let (address, request) = &self.nodes[caller % self.nodes.len()];
            let (address, request, sender) = (*address, Arc::clone(request), self.sender.clone());
            self.runtime.spawn(async move {
                let answer = wait(address, &request).await;
                let (at, clock) = (Instant::now(), now());
                drop(sender.send(Response { caller, at, clock, answer }));
            });
        }
        self.count += more;
        let deadline = Instant::now() + TIMEOUT;
        while database.ask(IN_LINE)?.parse::<usize>()? < self.count {
            if let Ok(early) = self.responses.try_recv() {
                bail!("a caller is not in line: {:?}", early.answer);
            }
            ensure!(Instant::now() < deadline, "not all of {} callers are in line", self.count);
        }
        Ok(())
    }
}

/// Runs one caller, from the connect to the last byte of the response.
async fn wait(address: SocketAddr, request: &[u8]) -> anyhow::Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut bytes = Vec::new();
    loop {
        ensure!(stream.read_buf(&mut bytes).await? > 0, "the connection was closed");
        // An incomplete response cannot be parsed, so more is read. That is rare, because responses are small.
        if let Ok(answer) = Answer::read(&bytes, false) {
            return Ok(answer);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "compared with the moment that the server noted, on the same machine")]
fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
