//! The engine: its browsers by id, and what can be asked of each beside the port.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use casement_agent_protocol::client::{self, ClientError};
use casement_agent_protocol::{Channel, Status};
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::extension::ExtensionSource;
use casement_domain::ids::BrowserId;
use casement_domain::profile::ProfileSource;
use casement_sandbox::{Check, Host, HostConfig, OomKill};
use tokio::sync::RwLock;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::config::EngineConfig;
use crate::egress::EgressPort;
use crate::events::{EngineEvent, EventListeners};
use crate::fault::{EngineSetupError, failed};
use crate::running::{BrowserSlot, DIAL_SOCKET, Running};

/// Runs browsers, each in a sandbox with an agent of its own. Cheap to clone. Dropping the last one leaves the browsers
/// running.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) config: EngineConfig,
    pub(crate) host: Host,
    /// Where sandboxes live, as the host names it.
    pub(crate) root: PathBuf,
    pub(crate) egress: Arc<dyn EgressPort>,
    pub(crate) listeners: EventListeners,
    pub(crate) extensions: OnceLock<Arc<dyn ExtensionSource>>,
    pub(crate) profiles: OnceLock<Arc<dyn ProfileSource>>,
    /// Held while a sandbox is being made, and alone by a sweep.
    pub(crate) making: RwLock<()>,
    slots: Mutex<HashMap<BrowserId, BrowserSlot>>,
    /// Browsers that could not be ended whole, and wait to be ended again.
    pub(crate) unended: Mutex<HashSet<BrowserId>>,
    /// Whether the browsers were let be, for the server's next life: nothing can be said of them any more.
    pub(crate) detached: AtomicBool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Engine {
    /// How it runs its browsers.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.0.config
    }

    /// An engine without browsers. Those of an earlier life are taken up by [`Engine::find_running`].
    ///
    /// # Errors
    /// What this host lacks for making sandboxes.
    pub async fn new(config: EngineConfig, egress: Arc<dyn EgressPort>) -> Result<Self, EngineSetupError> {
        // Absolute from here on: the host keeps its own name for it.
        let root = std::path::absolute(&config.data_dir).map_err(EngineSetupError::DataDir)?.join("sandboxes");
        let host = Host::new(HostConfig {
            root: root.clone(),
            uid_base: config.uid_base,
            uid_count: config.uid_count,
            bwrap: config.bwrap.clone(),
            setpriv: config.setpriv.clone(),
        })?;
        let (listeners, extensions, profiles, making, slots, unended, detached) = Default::default();
        Ok(Self(Arc::new(Inner {
            config,
            host,
            root,
            egress,
            listeners,
            extensions,
            profiles,
            making,
            slots,
            unended,
            detached,
        })))
    }

    /// Gives it the place where browsers that are started with extensions get them.
    #[must_use]
    pub fn with_extensions(self, extensions: Arc<dyn ExtensionSource>) -> Self {
        // Only the first counts; there is one place.
        drop(self.0.extensions.set(extensions));
        self
    }

    /// Gives it the place where browsers that are started with profiles get them.
    #[must_use]
    pub fn with_profiles(self, profiles: Arc<dyn ProfileSource>) -> Self {
        // Only the first counts; there is one place.
        drop(self.0.profiles.set(profiles));
        self
    }

    /// What this host gives and lacks for making sandboxes, for a person to read.
    pub async fn checks(&self) -> Vec<Check> {
        self.0.host.checks().await
    }

    /// What happens to browsers from now on.
    #[must_use]
    pub fn events(&self) -> UnboundedReceiver<EngineEvent> {
        self.0.listeners.subscribe()
    }

    /// Connects to Chromium's debugging port or to chromedriver, which is started on first use. The socket does not block.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`]; [`EngineError::Failed`] if nothing listens inside; [`EngineError::Timeout`].
    pub async fn dial(&self, id: BrowserId, channel: Channel) -> Result<std::net::TcpStream, EngineError> {
        let running = self.running(id)?;
        running.there()?;
        let path = running.sandbox.listener_path(DIAL_SOCKET);
        client::dial(path, channel).await.map_err(|error| match (channel, &error) {
            // It listens from its first to its last moment.
            (Channel::Cdp, ClientError::NotConnected(_)) => failed(EngineFault::BrowserCrashed, "Chromium is gone"),
            _ => running.failed(&error),
        })
    }

    /// The path of the browser's debugging WebSocket: `/devtools/browser/<uuid>`.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`]; [`EngineError::Failed`] while it is started anew.
    pub async fn cdp_path(&self, id: BrowserId) -> Result<String, EngineError> {
        let running = self.running(id)?;
        running.there()?;
        Ok(running.cdp_path())
    }

    /// What the agent says of itself and its browser: command line, stages of the start.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`], and what a call can meet.
    pub async fn status(&self, id: BrowserId) -> Result<Status, EngineError> {
        let running = self.running(id)?;
        running.agent.status().await.map_err(|error| running.failed(&error))
    }

    /// The pids of everything in the browser's sandbox, as the host numbers them.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`].
    pub async fn sandbox_pids(&self, id: BrowserId) -> Result<Vec<i32>, EngineError> {
        Ok(self.running(id)?.sandbox.pids().await)
    }

    /// Proportional set size of everything in the browser's sandbox, in bytes.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`].
    pub async fn pss(&self, id: BrowserId) -> Result<u64, EngineError> {
        Ok(self.running(id)?.sandbox.memory_pss().await)
    }

    /// Which process of a browser whose memory was full the kernel killed, where that can be known.
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
        // Whoever watches a browser holds it, so that the watching would go on.
        for place in self.slots().values() {
            if let BrowserSlot::Running(running) = place {
                running.unwatch();
            }
        }
    }
}

impl Inner {
    pub(crate) fn slots(&self) -> MutexGuard<'_, HashMap<BrowserId, BrowserSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
