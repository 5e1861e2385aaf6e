//! Starts a browser: starts the sandbox, serves its egress, and waits for the agent's report that the page answers.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::{AgentConfig, CONFIG_PATH, REMOTE_PATH, State, Status, Viewport};
use casement_domain::browser::{BrowserPolicy, EngineError, EngineFault, Launch, Shape, Started};
use casement_domain::ids::BrowserId;
use casement_sandbox::{
    File, MemoryLimit, Network, NetworkSetup, Sandbox, Spec, egress_directory, listen_beside_egress, listen_for_egress,
    random_hex,
};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::fault::{failed, not_started, start_failure};
use crate::locales::LocaleFolder;
use crate::remote::RemoteBrowser;
use crate::restart::is_held;
use crate::running::{AGENT_SOCKET, BrowserSlot, Running, Starting};

/// The timeout for the page's first answer.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The additional time for each extension.
const TIME_PER_EXTENSION: Duration = Duration::from_secs(5);
/// The additional time for a profile.
const TIME_FOR_PROFILE: Duration = Duration::from_secs(30);
/// The maximum number of stages of an agent, and of characters of its log.
const MAX_STAGES: usize = 16;
const MAX_LOG_CHARS: usize = 2000;

/// The record of a browser for the next server process, in the sandbox's directory.
#[derive(Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    /// The nonce of this browser's agent.
    pub(crate) nonce: String,
    /// True if Chromium starts only after its extensions or profile were loaded. A browser whose server ended before
    /// that is not adopted.
    #[serde(default)]
    pub(crate) held: bool,
    /// The memory limit of the browser in bytes, without its files; `None`: a browser of an earlier version, with the
    /// default limit.
    #[serde(default)]
    pub(crate) memory_bytes: Option<u64>,
    /// The remote browser; `None` if the browser runs in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<RemoteBrowser>,
}

impl SandboxRecord {
    const NAME: &str = "engine.json";

    /// Writes the record atomically.
    fn write(&self, sandbox: &Path) -> io::Result<()> {
        let (temporary, target) = (sandbox.join("engine.json.new"), sandbox.join(Self::NAME));
        // The record of a remote browser may contain a secret.
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        std::fs::rename(temporary, target)
    }

    /// Reads the record; `None` if it is missing or unreadable.
    pub(crate) fn read(sandbox: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(sandbox.join(Self::NAME)).ok()?).ok()
    }
}

/// Ends the browser if the caller stops waiting for its start.
struct StartGuard(Option<(Engine, BrowserId)>);

impl Drop for StartGuard {
    fn drop(&mut self) {
        if let Some((engine, id)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                if let Err(error) = engine.end_browser(id).await {
                    tracing::warn!(browser = %id, %error, "cannot end a browser whose caller stopped waiting");
                }
            });
        }
    }
}

/// A start in progress.
struct Plan<'a> {
    launch: &'a Launch,
    nonce: &'a str,
    is_remote: bool,
}

impl Plan<'_> {
    /// Returns true if Chromium must not start before its profile or extensions were loaded.
    fn is_held(&self) -> bool {
        !self.is_remote && is_held(&self.launch.shape)
    }
}

impl Engine {
    /// Starts a browser in a separate task, so that a caller that disconnects leaves no partial start.
    pub(crate) async fn start_browser(
        &self,
        launch: Launch,
        remote: Option<RemoteBrowser>,
    ) -> Result<Started, EngineError> {
        let id = launch.id;
        let starting = Arc::new(Starting::default());
        {
            let mut slots = self.0.slots();
            if self.0.refuses_starts.load(Ordering::Relaxed) {
                return Err(EngineError::Unavailable("the server is stopping".to_owned()));
            }
            if slots.contains_key(&id) {
                return Err(failed(EngineFault::AgentError, format!("browser {id} is already there")));
            }
            slots.insert(id, BrowserSlot::Starting(Arc::clone(&starting)));
        }
        let mut abandoned = StartGuard(Some((self.clone(), id)));
        let engine = self.clone();
        let task = tokio::spawn(async move { engine.start_or_clean_up(launch, remote, starting).await });
        let started = task.await;
        abandoned.0 = None;
        started.unwrap_or_else(|error| Err(failed(EngineFault::AgentError, error.to_string())))
    }

    async fn start_or_clean_up(
        &self,
        launch: Launch,
        remote: Option<RemoteBrowser>,
        starting: Arc<Starting>,
    ) -> Result<Started, EngineError> {
        let _over = starting.has_finished.clone().drop_guard();
        let id = launch.id;
        let result = match Box::pin(self.start_sandbox(&launch, remote, &starting)).await {
            Ok((running, started)) => self.add_running(running).map(|()| started),
            Err(error) => Err(error),
        };
        if result.is_err() {
            let removed = self.remove_remains(id).await;
            {
                let mut slots = self.0.slots();
                if matches!(slots.get(&id), Some(BrowserSlot::Starting(_))) {
                    slots.remove(&id);
                }
            }
            if let Err(error) = removed {
                tracing::warn!(browser = %id, error, "cannot clean up a browser that did not start");
                self.retry_end(id);
            }
        }
        result
    }

    /// Adds the browser to the running ones, unless its end was requested.
    fn add_running(&self, running: Running) -> Result<(), EngineError> {
        let running = Arc::new(running);
        let mut slots = self.0.slots();
        match slots.get_mut(&running.id) {
            Some(slot @ BrowserSlot::Starting(_)) => *slot = BrowserSlot::Running(Arc::clone(&running)),
            _ => return Err(cancelled()),
        }
        self.watch(&running);
        Ok(())
    }

    async fn start_sandbox(
        &self,
        launch: &Launch,
        remote: Option<RemoteBrowser>,
        starting: &Starting,
    ) -> Result<(Running, Started), EngineError> {
        let (id, started_at) = (launch.id, Instant::now());
        if remote.is_none() {
            self.check_location(launch.shape.location)?;
        }
        let nonce = random_hex().map_err(|error| preparation_failed(id, &error))?;
        let plan = Plan { launch, nonce: &nonce, is_remote: remote.is_some() };
        let sandbox = {
            let _making = self.0.start_lock.read().await;
            let started = self.0.host.start(self.spec(&plan)?).await;
            started.map_err(|error| not_started(id, &error))?
        };
        let memory_bytes = self.memory_bytes(&plan);
        let record =
            SandboxRecord { nonce: nonce.clone(), held: plan.is_held(), memory_bytes: Some(memory_bytes), remote };
        record.write(&sandbox.dir).map_err(|error| preparation_failed(id, &error))?;
        let remote = record.remote;
        self.open_socket(id, &sandbox, remote.as_ref()).map_err(|error| preparation_failed(id, &error))?;
        let sandbox_took = started_at.elapsed();
        let start_timeout = if plan.is_remote { START_TIMEOUT } else { start_timeout(&launch.shape) };
        let ready = tokio::select! {
            ready = tokio::time::timeout(start_timeout, self.wait_until_ready(&plan, &sandbox)) => ready,
            () = starting.cancelled.cancelled() => return Err(cancelled()),
        };
        let (agent, status) = ready.map_err(|_| EngineError::Timeout { seconds: start_timeout.as_secs() as u32 })??;
        let stages = stages(sandbox_took, started_at.elapsed(), &status);
        tracing::debug!(browser = %id, stages = listed(&stages), "started a browser");
        let version = match &remote {
            Some(remote) if !remote.version.is_empty() => printable(&remote.version),
            _ => printable(&status.browser_version),
        };
        let running = Running::new(id, sandbox, agent, status.browser_ws_path, memory_bytes, remote)?;
        if !plan.is_remote {
            self.read_protocol(&running, &version).await;
        }
        Ok((running, Started { version, stages }))
    }

    /// Serves the one socket of a sandbox that leads out: its egress, or the connection to its remote browser.
    pub(crate) fn open_socket(
        &self,
        id: BrowserId,
        sandbox: &Sandbox,
        remote: Option<&RemoteBrowser>,
    ) -> io::Result<()> {
        let Some(remote) = remote else {
            let listener = listen_for_egress(&sandbox.dir)?;
            self.0.egress.serve(&id.to_string(), listener);
            return Ok(());
        };
        let name = Path::new(REMOTE_PATH).file_name().unwrap_or_default();
        let port = self.0.remote.get().ok_or_else(|| io::Error::other("this engine cannot reach remote browsers"))?;
        port.serve(id, &remote.record, listen_beside_egress(&sandbox.dir, name)?);
        Ok(())
    }

    fn spec(&self, plan: &Plan<'_>) -> Result<Spec, EngineError> {
        let (config, launch) = (&self.0.config, plan.launch);
        let agent = serde_json::to_vec(&self.agent_config(plan));
        let agent = agent.map_err(|error| preparation_failed(launch.id, &error.into()))?;
        let mut files = vec![File { inside: CONFIG_PATH.into(), content: agent }];
        let mut read_only_at: Vec<_> = config.script_runner().into_iter().collect();
        if !plan.is_remote {
            let policies = BrowserPolicy::in_force(launch.shape.policy.as_ref()).into_bytes();
            files.push(File { inside: config.policy_path(), content: policies });
            read_only_at.extend(self.0.locales.iter().flat_map(LocaleFolder::mounts));
        }
        let id = launch.id.to_string();
        Ok(Spec {
            egress_dir: egress_directory(&self.0.root.join(&id)),
            id,
            program: config.program.clone(),
            args: vec!["agent".to_owned()],
            env: vec![("LISTEN_FDS".to_owned(), "2".to_owned())],
            files,
            sockets: 2,
            listeners: Vec::new(),
            // Chromium does not count loopback as a network: without a device pages find themselves offline.
            network: (!plan.is_remote)
                .then(|| Network { args: vec!["network".to_owned()], setup: NetworkSetup::Device }),
            read_only: if plan.is_remote { Vec::new() } else { config.read_only() },
            read_only_at,
            memory_bytes: self.memory_bytes(plan),
            tmpfs_bytes: config.disk_bytes / 2,
            max_processes: config.max_processes,
            max_open_files: config.max_open_files,
        })
    }

    /// Returns the memory limit of a browser, without its files.
    fn memory_bytes(&self, plan: &Plan<'_>) -> u64 {
        if plan.is_remote {
            return self.0.config.remote_memory_bytes;
        }
        plan.launch.shape.memory.map_or(self.0.config.memory_bytes, |memory| memory.limit.bytes())
    }

    fn agent_config(&self, plan: &Plan<'_>) -> AgentConfig {
        let (config, launch, shape) = (&self.0.config, plan.launch, &plan.launch.shape);
        let viewport = viewport(shape.viewport);
        AgentConfig {
            stealth: shape.stealth,
            kiosk_mode: shape.kiosk_mode,
            restricts_downloads: shape.policy.as_ref().is_some_and(BrowserPolicy::restricts_downloads),
            held: plan.is_held(),
            location: self.agent_location(shape.location),
            keeps_profile: !plan.is_remote && shape.profile.is_some_and(|profile| profile.save_changes),
            chromium: config.chromium.clone(),
            chromedriver: config.chromedriver.clone(),
            xvfb: config.xvfb.clone(),
            bwrap: config.bwrap.clone(),
            script_runner: config.script_runner().map(|(_, inside)| inside),
            idle_end_seconds: u64::from(launch.abandoned_after_seconds),
            remote: plan.is_remote.then(|| REMOTE_PATH.into()),
            // The agent measures the memory only if the kernel does not limit it, because that has a small cost.
            memory_limit_bytes: (self.0.host.memory_limit() == MemoryLimit::None)
                .then_some(self.memory_bytes(plan).saturating_add(config.disk_bytes)),
            ..AgentConfig::new(plan.nonce, shape.headless, viewport)
        }
    }

    async fn wait_until_ready(&self, plan: &Plan<'_>, sandbox: &Sandbox) -> Result<(AgentClient, Status), EngineError> {
        let launch = plan.launch;
        let silent = |error: ClientError| agent_failure(launch.id, sandbox, &error);
        let agent = AgentClient::connect(sandbox.listener_path(AGENT_SOCKET)).await.map_err(silent)?;
        if plan.is_held() {
            self.load_profile_and_extensions(launch, &agent).await?;
        }
        let status = agent.ready().await.map_err(silent)?;
        if status.nonce != plan.nonce {
            return Err(failed(EngineFault::AgentError, "the agent is not the one that was started"));
        }
        match status.state {
            State::Ready => Ok((agent, status)),
            State::Failed { code, message } => Err(start_failure(code, message)),
            State::Starting => Err(failed(EngineFault::BrowserHung, "the browser is still not up")),
            State::Exited { .. } | State::Closed => {
                Err(failed(EngineFault::BrowserCrashed, "the browser ended at once"))
            }
        }
    }
}

/// Returns the error of an agent that does not answer any more.
fn agent_failure(id: BrowserId, sandbox: &Sandbox, error: &ClientError) -> EngineError {
    // The log is more informative than the end of the process.
    let log: String = sandbox.log().unwrap_or_default().chars().take(MAX_LOG_CHARS).collect();
    tracing::error!(browser = %id, %error, log, "an agent did not start");
    let why = if sandbox.is_alive() { "did not answer" } else { "ended" };
    failed(EngineFault::AgentError, format!("the agent {why} before the browser was up"))
}

/// Converts the viewport.
pub(crate) fn viewport(viewport: casement_domain::browser::Viewport) -> Viewport {
    Viewport { width: viewport.width, height: viewport.height, refresh_rate: viewport.refresh_rate }
}

/// Returns the duration of each stage in milliseconds. The agent reports the end of each of its stages, counted from
/// the agent's start.
fn stages(sandbox: Duration, whole: Duration, status: &Status) -> Vec<(String, u32)> {
    let ms = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
    let mut stages = vec![("sandbox".to_owned(), ms(sandbox))];
    let mut last = 0.0;
    for stage in status.stages.iter().take(MAX_STAGES) {
        // The agent is untrusted: its stages may be out of order.
        stages.push((printable(&stage.name), (stage.ms - last).max(0.0).round() as u32));
        last = stage.ms;
    }
    let reported = Duration::try_from_secs_f64(last / 1000.0).unwrap_or_default();
    stages.push(("answer".to_owned(), ms(whole.saturating_sub(sandbox + reported))));
    stages
}

/// Returns the stages for the log.
fn listed(stages: &[(String, u32)]) -> String {
    stages.iter().map(|(name, took)| format!("{name} {took} ms")).collect::<Vec<_>>().join(", ")
}

/// Returns the timeout of the whole start.
fn start_timeout(shape: &Shape) -> Duration {
    let extensions = u32::try_from(shape.extensions.len()).unwrap_or(0);
    START_TIMEOUT
        + TIME_PER_EXTENSION * extensions
        + if shape.profile.is_some() { TIME_FOR_PROFILE } else { Duration::ZERO }
}

/// Returns the visible ASCII characters of an untrusted text, at most 100.
fn printable(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(100).collect()
}

fn cancelled() -> EngineError {
    failed(EngineFault::AgentError, "the browser was ended while it started")
}

fn preparation_failed(id: BrowserId, error: &io::Error) -> EngineError {
    tracing::error!(browser = %id, %error, "cannot prepare a sandbox");
    EngineError::NoRoom("the sandbox could not be made ready; the server's log says why".to_owned())
}
