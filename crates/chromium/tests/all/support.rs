//! Test support: an engine with its data directory, and checks for remains of browsers.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use casement_chromium::{Engine, EngineConfig, EngineEvent};
use casement_domain::browser::{BrowserEngine, EngineError, EngineFault, HandOut, Launch, Shape, Viewport};
use casement_domain::ids::BrowserId;
pub(crate) use casement_test_support::{try_until as until, within};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;
use ulid::Ulid;

use super::fake_egress::FakeEgress;

/// A data directory with an engine. `Drop` ends the browsers that a failed test leaves.
pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) engine: Engine,
    pub(crate) egress: Arc<FakeEgress>,
}

impl Fixture {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut EngineConfig)) -> anyhow::Result<Self> {
        // Sandboxes run as other users, which must be able to traverse the directory.
        let open = std::fs::Permissions::from_mode(0o711);
        let dir = tempfile::Builder::new().prefix("engine-test-").permissions(open).tempdir_in("/tmp")?;
        let mut config = config(dir.path().to_owned())?;
        change(&mut config);
        let egress = Arc::new(FakeEgress::default());
        Ok(Self { engine: Engine::new(config, egress.clone()).await?, dir, egress })
    }

    pub(crate) async fn start(&self, shape: Shape) -> anyhow::Result<BrowserId> {
        let launch = launch(shape);
        let started = self.engine.start(&launch).await?;
        eprintln!("{} up in {:?}", launch.id, started.stages);
        Ok(launch.id)
    }

    pub(crate) fn sandbox(&self, id: BrowserId) -> PathBuf {
        self.dir.path().join("sandboxes").join(id.to_string())
    }

    /// Returns everything that is left of a browser on this machine.
    pub(crate) fn remains(&self, id: BrowserId) -> Vec<String> {
        let name = self.sandbox(id).to_string_lossy().into_owned();
        let holds = |path: PathBuf| std::fs::read(path).is_ok_and(|b| String::from_utf8_lossy(&b).contains(&name));
        let mut found: Vec<String> = Vec::new();
        found.extend(self.sandbox(id).exists().then(|| format!("the directory {name}")));
        found.extend(holds("/proc/self/mountinfo".into()).then(|| "a mount".to_owned()));
        found.extend(holds("/proc/net/unix".into()).then(|| "a socket".to_owned()));
        found.extend(self.egress.serves(&id.to_string()).then(|| "a way out".to_owned()));
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let named = entries.filter(|entry| holds(entry.path().join("cmdline")));
        found.extend(named.map(|entry| format!("process {:?}", entry.file_name())));
        found
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let engine = self.engine.clone();
        let sweep = async move { engine.sweep(&[]).await.map(drop) };
        let swept = std::thread::spawn(|| tokio::runtime::Runtime::new().map(|runtime| runtime.block_on(sweep)));
        assert!(matches!(swept.join(), Ok(Ok(Ok(())))), "the sweep after a test failed");
    }
}

pub(crate) fn config(data_dir: PathBuf) -> anyhow::Result<EngineConfig> {
    let program = env!("CARGO_BIN_EXE_casement-chromium-agent").into();
    Ok(EngineConfig { program, ..EngineConfig::discover(data_dir)? })
}

pub(crate) fn new_id() -> BrowserId {
    static LAST: AtomicU64 = AtomicU64::new(1);
    let count = LAST.fetch_add(1, Ordering::Relaxed);
    BrowserId::from_ulid(Ulid::from_parts(count, u128::from(std::process::id())))
}

pub(crate) fn launch(shape: Shape) -> Launch {
    Launch::new(new_id(), shape, 300)
}

pub(crate) fn headless() -> Shape {
    Shape { headless: true, ..sized(800, 600) }
}

pub(crate) fn sized(width: u32, height: u32) -> Shape {
    Shape { viewport: Viewport { width, height, refresh_rate: 25 }, ..Shape::default() }
}

/// Returns the browser's processes whose command line passes the test.
pub(crate) async fn processes(engine: &Engine, id: BrowserId, test: impl Fn(&str) -> bool) -> anyhow::Result<Vec<i32>> {
    let mut pids = engine.sandbox_pids(id).await?;
    pids.retain(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        test(&String::from_utf8_lossy(&words).replace('\0', " "))
    });
    Ok(pids)
}

/// Waits until a browser has no process whose command line passes the test.
pub(crate) async fn gone(engine: &Engine, id: BrowserId, test: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = processes(engine, id, &test).await?;
        if left.is_empty() {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "{left:?} go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Hands a browser out. Retries, because a busy machine may exceed the probe's timeout.
pub(crate) async fn hand_out(engine: &Engine, id: BrowserId, to: HandOut) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match engine.hand_out(id, to.clone()).await {
            Err(EngineError::Timeout { .. } | EngineError::Failed { fault: EngineFault::BrowserHung, .. })
                if Instant::now() < deadline => {}
            answer => return Ok(answer?),
        }
    }
}

/// Returns Chromium's first process.
pub(crate) async fn chromium(engine: &Engine, id: BrowserId) -> anyhow::Result<i32> {
    let found = processes(engine, id, |line| line.contains("--remote-debugging-port") && !line.contains("--type="));
    found.await?.first().copied().context("Chromium runs")
}

pub(crate) fn signal(pid: i32, signal: Signal) -> anyhow::Result<()> {
    Ok(rustix::process::kill_process(Pid::from_raw(pid).context("a pid")?, signal)?)
}

pub(crate) async fn next(events: &mut UnboundedReceiver<EngineEvent>) -> anyhow::Result<EngineEvent> {
    within(Duration::from_secs(120), events.recv()).await?.context("the engine is there")
}

/// Returns width and height of a PNG.
pub(crate) fn png_size(bytes: &[u8]) -> anyhow::Result<(u32, u32)> {
    casement_test_support::png_size(bytes).context("no PNG")
}
