//! Measures CDP through `cdp_ws_url`, against a direct socket in the sandbox, against a socket whose bytes are
//! forwarded there, and against a relay that only copies bytes.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_agent_protocol::Channel;
use casement_agent_protocol::client::{AgentClient, dial};
use casement_test_support::program::{Options, Server};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::runtime::Runtime;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use crate::client::Client;
use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const ROUND_TRIPS: usize = 4000;
/// The number of messages of one run, and the number of them in flight.
const PIPELINED: usize = 10_000;
const IN_FLIGHT: usize = 200;
const RUNS: usize = 9;
const BIG: usize = 10_000_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// One value for each path to the browser.
#[derive(Default)]
struct Paths<T> {
    ours: T,
    /// Through a descriptor from the sandbox, with nothing between the client and the browser.
    direct: T,
    /// Through a unix socket whose bytes are copied into the sandbox.
    forwarded: T,
    plain: T,
}

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let session = Client::of(&server)?.create()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut paths = connect(&server, session.text("cdp_ws_url"), &runtime)?;
    quiet();
    report_round_trips(&mut paths, table)?;
    let runs =
        |paths: &mut Paths<PathClient>, work: fn(&mut PathClient) -> anyhow::Result<Duration>| -> anyhow::Result<_> {
            let mut took = Paths::<Samples>::default();
            for _ in 0..RUNS {
                took.direct.add(work(&mut paths.direct)?);
                took.ours.add(work(&mut paths.ours)?);
                took.plain.add(work(&mut paths.plain)?);
            }
            Ok(took)
        };
    let took = runs(&mut paths, PathClient::pipelined)?;
    let rate = |samples: &Samples| PIPELINED as f64 * 1000.0 / samples.p50();
    let (ours, plain, direct) = (rate(&took.ours), rate(&took.plain), rate(&took.direct));
    table.add(
        Row::new(format!("CDP, {IN_FLIGHT} messages under way, median of {RUNS}"), format!("{ours:.0}/s"))
            .against(format!("plain relay, {plain:.0}/s"), ours / plain)
            .target("≥ ×1", ours / plain, Limit::Least(1.0)),
    );
    table.add(Row::new("the same", format!("{ours:.0}/s")).against(format!("direct, {direct:.0}/s"), ours / direct));
    for (what, work) in [
        ("10 MB from the browser", PathClient::big_answer as fn(&mut PathClient) -> anyhow::Result<Duration>),
        ("10 MB to the browser", PathClient::big_question),
    ] {
        let took = runs(&mut paths, work)?;
        let (ours, plain, direct) = (took.ours.p50(), took.plain.p50(), took.direct.p50());
        table.add(
            Row::new(format!("{what}, median of {RUNS}"), ms(ours))
                .against(format!("plain relay, {}", ms(plain)), ours / plain)
                .target("≤ ×1", ours / plain, Limit::Most(1.0)),
        );
        table.add(Row::new("the same", ms(ours)).against(format!("direct, {}", ms(direct)), ours / direct));
    }
    Ok(())
}

/// Sends messages on each path in turn, so that the load of the machine is the same for all.
fn round_trips(
    paths: &mut Paths<PathClient>,
    ask: fn(&mut PathClient) -> anyhow::Result<()>,
) -> anyhow::Result<Paths<Samples>> {
    let mut took = Paths::<Samples>::default();
    for _ in 0..ROUND_TRIPS {
        took.direct.time(|| ask(&mut paths.direct))?;
        took.ours.time(|| ask(&mut paths.ours))?;
        took.forwarded.time(|| ask(&mut paths.forwarded))?;
        took.plain.time(|| ask(&mut paths.plain))?;
    }
    Ok(took)
}

fn report_round_trips(paths: &mut Paths<PathClient>, table: &mut Table) -> anyhow::Result<()> {
    let took = round_trips(paths, PathClient::ask_page)?;
    let (ours, direct, plain) = (took.ours.p50(), took.direct.p50(), took.plain.p50());
    let forwarded = took.forwarded.p50();
    table.add(
        Row::new(format!("CDP round trip to the page, p50 of {ROUND_TRIPS}"), ms(ours))
            .against(format!("direct, {}", ms(direct)), ours / direct)
            .target("≤ ×1.15", ours / direct, Limit::Most(1.15)),
    );
    table.add(
        Row::new("the same", ms(ours)).against(format!("direct, but forwarded, {}", ms(forwarded)), ours / forwarded),
    );
    table.add(Row::new("the same", ms(ours)).against(format!("plain relay, {}", ms(plain)), ours / plain));
    let (ours, direct, plain) = (took.ours.p99(), took.direct.p99(), took.plain.p99());
    table.add(Row::new("the same, p99", ms(ours)).against(format!("direct, {}", ms(direct)), ours / direct));
    table.add(Row::new("the same, p99", ms(ours)).against(format!("plain relay, {}", ms(plain)), ours / plain));
    let took = round_trips(paths, PathClient::ask)?;
    let (ours, direct, plain) = (took.ours.p50(), took.direct.p50(), took.plain.p50());
    let what = "CDP round trip to the browser alone, p50";
    table.add(Row::new(what, ms(ours)).against(format!("direct, {}", ms(direct)), ours / direct));
    table.add(Row::new("the same", ms(ours)).against(format!("plain relay, {}", ms(plain)), ours / plain));
    Ok(())
}

/// Opens all paths to the only session of the server.
fn connect(server: &Server, cdp_ws_url: &str, runtime: &Runtime) -> anyhow::Result<Paths<PathClient>> {
    let sockets = only_sandbox(&server.data_dir().join("sandboxes"))?.join("sockets");
    let inside = sockets.join("1");
    let status = runtime.block_on(async { AgentClient::connect(sockets.join("0")).await?.status().await })?;
    let straight = runtime.block_on(dial(&inside, Channel::Cdp))?;
    let folder = tempfile::tempdir()?;
    let forwarded = forwarder(runtime, &folder, inside.clone())?;
    let relay = plain_relay(runtime, inside)?;
    let url = format!("ws://127.0.0.1{}", status.browser_ws_path);
    Ok(Paths {
        ours: PathClient::open(TcpStream::connect(server.address())?, cdp_ws_url)?,
        direct: PathClient::open(straight, &url)?,
        forwarded: PathClient::over(forwarded, &url)?,
        plain: PathClient::open(TcpStream::connect(relay)?, &url)?,
    })
}

/// Returns the only sandbox of the server. The directory has other entries too.
fn only_sandbox(dir: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let mut sandboxes = entries.into_iter().filter(|entry| entry.join("sockets").is_dir());
    let found = sandboxes.next().context("there is no sandbox")?;
    ensure!(sandboxes.next().is_none(), "{} holds several sandboxes", dir.display());
    Ok(found)
}

/// Starts a task that copies bytes between a unix socket and the sandbox. Returns a connection to the socket.
fn forwarder(runtime: &Runtime, folder: &TempDir, inside: PathBuf) -> anyhow::Result<UnixStream> {
    let path = folder.path().join("cdp");
    let _entered = runtime.enter();
    let listener = tokio::net::UnixListener::bind(&path)?;
    runtime.spawn(async move {
        let (mut client, _) = listener.accept().await?;
        let mut browser = tokio::net::TcpStream::from_std(dial(&inside, Channel::Cdp).await?)?;
        browser.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut browser).await?;
        anyhow::Ok(())
    });
    let stream = UnixStream::connect(&path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Starts a relay that only copies bytes, which is the minimum cost of a relay.
fn plain_relay(runtime: &Runtime, inside: PathBuf) -> anyhow::Result<SocketAddr> {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let inside = inside.clone();
            tokio::spawn(async move {
                let browser = dial(&inside, Channel::Cdp).await?;
                let mut browser = tokio::net::TcpStream::from_std(browser)?;
                client.set_nodelay(true)?;
                browser.set_nodelay(true)?;
                copy_bidirectional(&mut client, &mut browser).await?;
                anyhow::Ok(())
            });
        }
    });
    Ok(address)
}

trait Wire: Read + Write + Debug + Send + Sync {}

impl<T: Read + Write + Debug + Send + Sync> Wire for T {}

/// A blocking client of the browser.
pub(crate) struct PathClient {
    socket: WebSocket<Box<dyn Wire>>,
    page: String,
    last: usize,
}

impl PathClient {
    /// Connects directly to the only sandbox of the server.
    pub(crate) fn straight(server: &Server, runtime: &Runtime) -> anyhow::Result<Self> {
        let sockets = only_sandbox(&server.data_dir().join("sandboxes"))?.join("sockets");
        let status = runtime.block_on(async { AgentClient::connect(sockets.join("0")).await?.status().await })?;
        let socket = runtime.block_on(dial(sockets.join("1"), Channel::Cdp))?;
        Self::open(socket, &format!("ws://127.0.0.1{}", status.browser_ws_path))
    }

    /// Sends a command to the page.
    pub(crate) fn in_page(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.call(json!({ "method": method, "sessionId": self.page, "params": params }))
    }

    pub(crate) fn open(stream: TcpStream, url: &str) -> anyhow::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Self::over(stream, url)
    }

    fn over(stream: impl Wire + 'static, url: &str) -> anyhow::Result<Self> {
        let stream: Box<dyn Wire> = Box::new(stream);
        let (socket, _) = tungstenite::client(url, stream).context("the handshake")?;
        let mut path = Self { socket, page: String::new(), last: 0 };
        let targets = path.call(json!({ "method": "Target.getTargets" }))?;
        let all = targets["result"]["targetInfos"].as_array().context("no targets")?;
        let target = &all.iter().find(|one| one["type"] == "page").context("no page")?["targetId"];
        let params = json!({ "targetId": target, "flatten": true });
        let attached = path.call(json!({ "method": "Target.attachToTarget", "params": params }))?;
        path.page = attached["result"]["sessionId"].as_str().context("not attached")?.to_owned();
        for _ in 0..100 {
            path.ask()?;
        }
        Ok(path)
    }

    fn send(&mut self, mut message: Value) -> anyhow::Result<()> {
        self.last += 1;
        message["id"] = self.last.into();
        Ok(self.socket.send(Message::text(message.to_string()))?)
    }

    /// Returns the text of the next response. Events are skipped.
    fn answer(&mut self) -> anyhow::Result<tungstenite::Utf8Bytes> {
        loop {
            match self.socket.read()? {
                Message::Text(text) if text.starts_with("{\"id\":") => return Ok(text),
                Message::Close(frame) => anyhow::bail!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    fn call(&mut self, message: Value) -> anyhow::Result<Value> {
        self.send(message)?;
        Ok(serde_json::from_str(&self.answer()?)?)
    }

    /// Sends the smallest command. The main process answers it, so the cost of the relay is a large part of the time.
    fn ask(&mut self) -> anyhow::Result<()> {
        self.send(json!({ "method": "Browser.getVersion" }))?;
        self.answer().map(drop)
    }

    /// Evaluates the smallest expression on a page, which is a typical command.
    pub(crate) fn ask_page(&mut self) -> anyhow::Result<()> {
        self.evaluate("1").map(drop)
    }

    fn pipelined(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        for sent in 0..PIPELINED + IN_FLIGHT {
            if sent < PIPELINED {
                self.send(json!({ "method": "Browser.getVersion" }))?;
            }
            if sent >= IN_FLIGHT {
                self.answer()?;
            }
        }
        Ok(began.elapsed())
    }

    pub(crate) fn evaluate(&mut self, expression: &str) -> anyhow::Result<(Duration, usize)> {
        let params = json!({ "expression": expression, "returnByValue": true });
        let message = json!({ "method": "Runtime.evaluate", "sessionId": self.page, "params": params });
        let began = Instant::now();
        self.send(message)?;
        let answer = self.answer()?;
        let took = began.elapsed();
        ensure!(!answer.contains("exceptionDetails"), "it failed: {:.200}", answer.as_str());
        Ok((took, answer.len()))
    }

    pub(crate) fn big_answer(&mut self) -> anyhow::Result<Duration> {
        let (took, length) = self.evaluate(&format!("'x'.repeat({BIG})"))?;
        ensure!(length > BIG, "only {length} bytes came");
        Ok(took)
    }

    pub(crate) fn big_question(&mut self) -> anyhow::Result<Duration> {
        Ok(self.evaluate(&format!("'{}'.length", "x".repeat(BIG)))?.0)
    }
}
