//! The engine: its browsers by id, and operations beside the domain's port.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use casement_agent_protocol::client::{self, ClientError};
use casement_agent_protocol::{Channel, Status};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::extension::ExtensionSource;
use casement_domain::ids::BrowserId;
use casement_domain::profile::ProfileSource;
use casement_sandbox::{Check, Host, HostConfig, OomKill};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::RwLock;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::config::EngineConfig;
use crate::egress::EgressPort;
use crate::events::{EngineEvent, EventListeners};
use crate::fault::{EngineSetupError, failed};
use crate::locales::LocaleFolder;
use crate::protocol::Protocol;
use crate::remote::RemotePort;
use crate::running::{BrowserSlot, DIAL_SOCKET, Running};

/// Runs browsers, each in a sandbox with an agent. Cheap to clone. Dropping the last clone leaves the browsers running.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) config: EngineConfig,
    pub(crate) host: Host,
    /// The directory of the sandboxes, as an absolute path.
    pub(crate) root: PathBuf,
    /// `None`: browsers have the default locale only.
    pub(crate) locales: Option<LocaleFolder>,
    pub(crate) egress: Arc<dyn EgressPort>,
    pub(crate) remote: OnceLock<Arc<dyn RemotePort>>,
    pub(crate) listeners: EventListeners,
    pub(crate) extensions: OnceLock<Arc<dyn ExtensionSource>>,
    pub(crate) profiles: OnceLock<Arc<dyn ProfileSource>>,
    /// Locked for reading while a sandbox is being created, and for writing by a sweep.
    pub(crate) start_lock: RwLock<()>,
    slots: Mutex<HashMap<BrowserId, BrowserSlot>>,
    /// The description of the DevTools protocol, once a browser has started.
    pub(crate) protocol: Mutex<Option<Protocol>>,
    /// Browsers whose end failed and is to be retried.
    pub(crate) end_failed: Mutex<HashSet<BrowserId>>,
    /// True after [`Engine::refuse_starts`]. Changed while `slots` is locked.
    pub(crate) refuses_starts: AtomicBool,
    /// True after [`Engine::detach`]: the state of the browsers is unknown from then on.
    pub(crate) detached: AtomicBool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Engine {
    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.0.config
    }

    /// Creates an engine without browsers. [`Engine::find_running`] adopts the browsers of a previous process.
    ///
    /// # Errors
    /// If the data directory has no absolute path, or the host cannot run sandboxes; the error names the reason.
    pub async fn new(config: EngineConfig, egress: Arc<dyn EgressPort>) -> Result<Self, EngineSetupError> {
        // Absolute, because the sandbox host keeps its own copy of the path.
        let data_dir = std::path::absolute(&config.data_dir).map_err(EngineSetupError::DataDir)?;
        let root = data_dir.join("sandboxes");
        let host = Host::new(HostConfig {
            root: root.clone(),
            uid_base: config.uid_base,
            uid_count: config.uid_count,
            bwrap: config.bwrap.clone(),
            setpriv: config.setpriv.clone(),
        })?;
        let locales = LocaleFolder::prepare(&config.chromium, &data_dir);
        let locales = locales.inspect_err(|error| tracing::warn!(%error, "sessions have the default locale only")).ok();
        let (listeners, remote, extensions, profiles, start_lock, slots, end_failed) = Default::default();
        let (refuses_starts, detached, protocol) = Default::default();
        Ok(Self(Arc::new(Inner {
            config,
            host,
            root,
            locales,
            egress,
            remote,
            listeners,
            extensions,
            profiles,
            start_lock,
            slots,
            protocol,
            end_failed,
            refuses_starts,
            detached,
        })))
    }

    /// Sets the source of extensions for browsers that are started with some.
    #[must_use]
    pub fn with_extensions(self, extensions: Arc<dyn ExtensionSource>) -> Self {
        // Only the first source counts.
        drop(self.0.extensions.set(extensions));
        self
    }

    /// Sets the source of profiles for browsers that are started with one.
    #[must_use]
    pub fn with_profiles(self, profiles: Arc<dyn ProfileSource>) -> Self {
        // Only the first source counts.
        drop(self.0.profiles.set(profiles));
        self
    }

    /// Sets the connections to remote browsers, for [`Engine::start_remote`] and the adoption of such browsers.
    #[must_use]
    pub fn with_remote(self, remote: Arc<dyn RemotePort>) -> Self {
        // Only the first one counts.
        drop(self.0.remote.set(remote));
        self
    }

    /// Checks the host's capabilities for sandboxes. The results are texts for people.
    pub async fn checks(&self) -> Vec<Check> {
        self.0.host.checks().await
    }

    /// Subscribes to browser events from now on.
    #[must_use]
    pub fn events(&self) -> UnboundedReceiver<EngineEvent> {
        self.0.listeners.subscribe()
    }

    /// Connects to Chromium's debugging port or to chromedriver, which is started on first use. The socket is
    /// non-blocking.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`]; [`EngineError::Failed`] if nothing listens in the sandbox;
    /// [`EngineError::Timeout`]; [`EngineError::OutOfRange`] for a remote browser, which is not in the sandbox.
    pub async fn dial(&self, id: BrowserId, channel: Channel) -> Result<std::net::TcpStream, EngineError> {
        let running = self.running(id)?;
        running.ensure_local("nothing of it listens in its sandbox")?;
        running.ensure_not_restarting()?;
        let path = running.sandbox.listener_path(DIAL_SOCKET);
        client::dial(path, channel).await.map_err(|error| match (channel, &error) {
            // Chromium listens as long as it runs.
            (Channel::Cdp, ClientError::NotConnected(_)) => failed(EngineFault::BrowserCrashed, "Chromium has ended"),
            _ => running.failed(&error),
        })
    }

    /// Returns the path of the browser's debugging WebSocket: `/devtools/browser/<uuid>`.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`]; [`EngineError::Failed`] while the browser restarts; [`EngineError::OutOfRange`] for a
    /// remote browser.
    pub async fn cdp_path(&self, id: BrowserId) -> Result<String, EngineError> {
        let running = self.running(id)?;
        running.ensure_local("its debugging WebSocket is not in its sandbox")?;
        running.ensure_not_restarting()?;
        Ok(running.cdp_path())
    }

    /// Returns the agent's status: the command line and the stages of the start.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`], and any failure of a call.
    pub async fn status(&self, id: BrowserId) -> Result<Status, EngineError> {
        let running = self.running(id)?;
        running.agent.status().await.map_err(|error| running.failed(&error))
    }

    /// Returns the host pids of all processes in the browser's sandbox.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`].
    pub async fn sandbox_pids(&self, id: BrowserId) -> Result<Vec<i32>, EngineError> {
        Ok(self.running(id)?.sandbox.pids().await)
    }

    /// Returns the proportional set size of all processes in the browser's sandbox, in bytes.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`].
    pub async fn pss(&self, id: BrowserId) -> Result<u64, EngineError> {
        Ok(self.running(id)?.sandbox.memory_pss().await)
    }

    /// Returns the process that the kernel killed because the browser's memory was full, if known.
    pub async fn oom_kill(&self, id: BrowserId) -> Option<OomKill> {
        self.running(id).ok()?.sandbox.oom_kill().await
    }

    pub(crate) fn running(&self, id: BrowserId) -> Result<Arc<Running>, EngineError> {
        match self.0.slots().get(&id) {
            Some(BrowserSlot::Running(running)) => Ok(Arc::clone(running)),
            _ => Err(EngineError::NotRunning(id)),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Watch tasks hold references to their browsers, so they would continue.
        for slot in self.slots().values() {
            if let BrowserSlot::Running(running) = slot {
                running.stop_watching();
            }
        }
    }
}

impl Inner {
    pub(crate) fn slots(&self) -> MutexGuard<'_, HashMap<BrowserId, BrowserSlot>> {
        self.slots.lock()
    }
}
