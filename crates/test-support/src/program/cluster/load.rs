//! Callers that acquire, drive and release browsers of a pool, and what was answered to them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use serde_json::json;

use crate::program::http::{Answer, Request};
use crate::program::{Cdp, Cluster, Server, Session};

/// The wait of an acquire, and the timeout of a caller for each call, which no call may reach.
const WAIT_SECONDS: u64 = 20;
const CALL_TIMEOUT: Duration = Duration::from_secs(90);
/// The pause after a call that failed, so that callers do not flood a node that refuses.
const PAUSE: Duration = Duration::from_millis(200);

/// A change that was answered.
#[derive(Clone, Debug)]
pub struct AnsweredChange {
    /// The `X-Request-Id` of the call.
    pub request: String,
    /// The session.
    pub session: String,
    /// True for a release, false for an acquire.
    pub is_release: bool,
}

/// What callers saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The changes that were answered with success.
    pub answered: Vec<AnsweredChange>,
    /// The durations of acquires that got a browser, in order of their ends.
    pub acquires: Vec<Duration>,
    /// The times of these ends, and the address to which the caller had sent the request.
    pub acquired_at: Vec<(Instant, SocketAddr)>,
    /// The number of acquires that were told to come again.
    pub timed_out: usize,
    /// The number of sessions whose page answered.
    pub driven: usize,
    /// The number of refusals and broken connections, by what was refused or broken.
    pub failed: BTreeMap<String, usize>,
    /// The longest time until a call of any kind ended.
    pub longest: Duration,
}

impl Report {
    fn fail(&mut self, what: String) {
        *self.failed.entry(what).or_default() += 1;
    }

    /// Returns the number of acquires between two moments, and the longest time without one.
    pub fn service(&self, from: Instant, to: Instant) -> Service {
        self.service_at(|_| true, from, to)
    }

    /// The same for the callers of some addresses.
    pub fn service_at(&self, is_counted: impl Fn(SocketAddr) -> bool, from: Instant, to: Instant) -> Service {
        let counted = self.acquired_at.iter().filter(|(_, address)| is_counted(*address)).map(|(at, _)| *at);
        let during = counted.filter(|at| (from..to).contains(at));
        let moments: Vec<Instant> = [from].into_iter().chain(during).chain([to]).collect();
        let gaps = moments.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0]));
        Service { acquires: moments.len() - 2, time: to - from, longest_gap: gaps.max().unwrap_or_default() }
    }

    /// Returns the number of answered releases.
    pub fn released(&self) -> usize {
        self.answered.iter().filter(|change| change.is_release).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.acquires.clone();
        sorted.sort_unstable();
        let part = |share: usize| sorted.get(sorted.len() * share / 100).copied().unwrap_or_default();
        writeln!(
            f,
            "{} browsers acquired (p50 {:?}, p99 {:?}), {} driven, {} released; {} waits without a browser; the longest call {:?}",
            sorted.len(),
            part(50),
            part(99),
            self.driven,
            self.released(),
            self.timed_out,
            self.longest
        )?;
        self.failed.iter().try_for_each(|(what, count)| writeln!(f, "  {count} × {what}"))
    }
}

/// What the service did in a time.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The number of browsers that were acquired.
    pub acquires: usize,
    /// The time.
    pub time: Duration,
    /// The longest time without an acquire.
    pub longest_gap: Duration,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.acquires as f64 / self.time.as_secs_f64();
        write!(f, "{rate:.1} acquires a second, at most {:.1} s without one", self.longest_gap.as_secs_f64())
    }
}

/// Callers that go on until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    report: Arc<Mutex<Report>>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts callers of a pool, through the load balancer.
    pub fn start(cluster: &Cluster, pool: &str, callers: usize) -> Self {
        Self::through(cluster, pool, callers, &[cluster.address()])
    }

    /// Starts callers of a pool, each at one of the nodes: those at a node that lives see what the nodes do, without the time in
    /// which a load balancer gives calls to one that is stopped.
    pub fn at_nodes(cluster: &Cluster, pool: &str, callers: usize) -> Self {
        let entrances: Vec<_> = cluster.nodes().iter().map(Server::address).collect();
        Self::through(cluster, pool, callers, &entrances)
    }

    fn through(cluster: &Cluster, pool: &str, callers: usize, entrances: &[SocketAddr]) -> Self {
        let (stop, report) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Report>>::default());
        let start = |number: usize| {
            let (stop, report) = (Arc::clone(&stop), Arc::clone(&report));
            let caller = Caller {
                service: cluster.address(),
                entrance: entrances[number % entrances.len()],
                key: cluster.key().to_owned(),
                pool: pool.to_owned(),
            };
            thread::spawn(move || {
                for call in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    if let Err(failure) = caller.lease(&format!("load-{number}-{call}"), &report) {
                        report.lock().fail(format!("{failure:#}"));
                        thread::sleep(PAUSE);
                    }
                }
            })
        };
        let callers = (0..callers).map(start).collect();
        Self { stop, report, callers }
    }

    /// Returns what the callers have seen so far.
    pub fn so_far(&self) -> Report {
        self.report.lock().clone()
    }

    /// Lets the callers finish what they do, and returns what they have seen.
    pub fn finish(self) -> anyhow::Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.join().ok().context("a caller panicked")?;
        }
        Ok(self.report.lock().clone())
    }
}

struct Caller {
    /// The address in the URLs of sessions.
    service: SocketAddr,
    /// The address to which the caller sends everything.
    entrance: SocketAddr,
    key: String,
    pool: String,
}

impl Caller {
    /// Acquires, drives and releases a browser.
    fn lease(&self, name: &str, report: &Mutex<Report>) -> anyhow::Result<()> {
        let began = Instant::now();
        let body = json!({ "acquire_timeout_seconds": WAIT_SECONDS });
        let (request, answer) = self.post("acquire", name, &body, report)?;
        if answer.status == 204 {
            report.lock().timed_out += 1;
            return Ok(());
        }
        let session = Session(succeeded("an acquire", answer, 200)?.json()?);
        let mut seen = report.lock();
        seen.acquires.push(began.elapsed());
        seen.acquired_at.push((Instant::now(), self.entrance));
        seen.answered.push(AnsweredChange { request, session: session.id().to_owned(), is_release: false });
        drop(seen);
        let driven = self.drive(&session);
        let (request, answer) = self.post("release", name, &json!({ "session_id": session.id() }), report)?;
        driven.context("driving")?;
        report.lock().driven += 1;
        succeeded("a release", answer, 204)?;
        let session = session.id().to_owned();
        report.lock().answered.push(AnsweredChange { request, session, is_release: true });
        Ok(())
    }

    /// Evaluates an expression in the page of a session.
    fn drive(&self, session: &Session) -> anyhow::Result<()> {
        let url = session.text("cdp_ws_url").replacen(&self.service.to_string(), &self.entrance.to_string(), 1);
        // Details of failures differ in each call.
        let mut client = Cdp::connect(&url).map_err(|_| anyhow::anyhow!("no connection"))?;
        let evaluated = client.page().and_then(|page| client.evaluate(&page, "6 * 7"));
        ensure!(evaluated.map_err(|_| anyhow::anyhow!("the connection broke"))? == 42, "a wrong answer of the page");
        Ok(())
    }

    /// Returns the name of the request, and its response.
    fn post(
        &self,
        what: &str,
        name: &str,
        body: &serde_json::Value,
        report: &Mutex<Report>,
    ) -> anyhow::Result<(String, Answer)> {
        let (began, name) = (Instant::now(), format!("{name}-{what}"));
        let request = Request::new("POST", &format!("/browser_pools/{}/{what}", self.pool)).bearer(&self.key);
        let answer = request.header("X-Request-Id", &name).json(body).send_within(self.entrance, CALL_TIMEOUT);
        let mut seen = report.lock();
        seen.longest = seen.longest.max(began.elapsed());
        // Without the details, which differ in each call.
        Ok((name, answer.map_err(|_| anyhow::anyhow!("{what}: the connection broke"))?))
    }
}

fn succeeded(what: &str, answer: Answer, status: u16) -> anyhow::Result<Answer> {
    let code = || answer.json().ok().and_then(|body| Some(body["code"].as_str()?.to_owned())).unwrap_or_default();
    ensure!(answer.status == status, "{what}: {} {}", answer.status, code());
    Ok(answer)
}
