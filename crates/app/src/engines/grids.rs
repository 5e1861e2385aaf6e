//! The engines that are WebDriver servers, and the sessions there of this node's browsers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use anyhow::Context as _;
use casement_domain::engine::EngineName;
use casement_domain::{BrowserId, NodeId};
use casement_webdriver::{Credentials, RemoteSession, WebDriverConfig, WebDriverEngine};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::settings::GridServer;

/// The session of a browser on a WebDriver server.
#[derive(Clone)]
pub(crate) struct RemoteBrowserSession {
    pub(crate) engine: WebDriverEngine,
    pub(crate) session: Arc<RemoteSession>,
}

/// What the sandbox of a remote browser stores, so that the next run of this program finds its session.
#[derive(Deserialize, Serialize)]
struct SandboxedSession {
    engine: String,
    session: RemoteSession,
}

/// The WebDriver servers of this node. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Grids {
    by_name: Arc<BTreeMap<EngineName, WebDriverEngine>>,
    sessions: Arc<Mutex<HashMap<BrowserId, RemoteBrowserSession>>>,
    starting: Arc<Mutex<HashSet<BrowserId>>>,
    /// Wakes [`Grids::until_no_start`] when a start has ended.
    start_ended: Arc<Notify>,
}

/// A browser that is being started, until this value is dropped.
pub(super) struct StartingBrowser<'a> {
    grids: &'a Grids,
    browser: BrowserId,
}

impl Drop for StartingBrowser<'_> {
    fn drop(&mut self) {
        self.grids.starting.lock().remove(&self.browser);
        self.grids.start_ended.notify_waiters();
    }
}

impl Grids {
    /// Creates the engines of the servers. Their sessions have this node as the mark of their owner.
    ///
    /// # Errors
    /// If a setting is invalid, or the file of certificates cannot be read.
    pub(crate) fn new(servers: Vec<GridServer>, node: NodeId) -> anyhow::Result<Self> {
        let engines = servers.into_iter().map(|server| {
            let name = server.name.clone();
            let engine = engine(server, &node.to_string()).with_context(|| format!("the engine {name}"))?;
            Ok((name, engine))
        });
        Ok(Self { by_name: Arc::new(engines.collect::<anyhow::Result<_>>()?), ..Self::default() })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &WebDriverEngine> {
        self.by_name.values()
    }

    pub(super) fn find(&self, name: &EngineName) -> Option<&WebDriverEngine> {
        self.by_name.get(name)
    }

    /// Returns the session of a browser; `None`: the browser is not a remote one of this node.
    pub(crate) fn session(&self, browser: BrowserId) -> Option<RemoteBrowserSession> {
        self.sessions.lock().get(&browser).cloned()
    }

    /// Returns whether a browser has a session, or is being started.
    pub(super) fn is_known(&self, browser: BrowserId) -> bool {
        self.sessions.lock().contains_key(&browser) || self.starting.lock().contains(&browser)
    }

    /// Marks a browser as being started.
    pub(super) fn begin(&self, browser: BrowserId) -> StartingBrowser<'_> {
        self.starting.lock().insert(browser);
        StartingBrowser { grids: self, browser }
    }

    /// Waits until no browser is being started.
    pub(super) async fn until_no_start(&self) {
        loop {
            // Before the check, so that no end in between is missed.
            let ended = self.start_ended.notified();
            if self.starting.lock().is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Returns all remote browsers of this node.
    pub(super) fn all_browsers(&self) -> Vec<BrowserId> {
        self.sessions.lock().keys().copied().collect()
    }

    /// Returns the browsers of an engine.
    pub(crate) fn browsers(&self, engine: &EngineName) -> Vec<BrowserId> {
        let sessions = self.sessions.lock();
        let of_engine = sessions.iter().filter(|(_, remote)| remote.engine.name() == engine);
        of_engine.map(|(browser, _)| *browser).collect()
    }

    /// Remembers the session of a browser.
    pub(super) fn remember(&self, browser: BrowserId, remote: RemoteBrowserSession) {
        self.sessions.lock().insert(browser, remote);
    }

    /// Forgets the session of a browser.
    pub(super) fn forget(&self, browser: BrowserId) {
        self.sessions.lock().remove(&browser);
    }

    /// Returns the session that a sandbox has stored; `None` if this node does not know its engine.
    pub(super) fn parse(&self, record: &str) -> Option<RemoteBrowserSession> {
        let stored: SandboxedSession = serde_json::from_str(record).ok()?;
        let engine = self.find(&EngineName::parse(&stored.engine).ok()?)?.clone();
        Some(RemoteBrowserSession { engine, session: Arc::new(stored.session) })
    }
}

impl RemoteBrowserSession {
    /// Returns what the sandbox is to store.
    pub(super) fn record(&self) -> anyhow::Result<String> {
        let engine = self.engine.name().to_string();
        Ok(serde_json::to_string(&SandboxedSession { engine, session: (*self.session).clone() })?)
    }
}

/// Creates the engine of a server.
pub(super) fn engine(server: GridServer, owner: &str) -> anyhow::Result<WebDriverEngine> {
    let mut config = WebDriverConfig::new(server.name, server.url.as_str(), owner.to_owned())?;
    config.credentials = server.credentials.map(|(user, password)| Credentials::new(user, password));
    config.capabilities = server.capabilities;
    config.max_sessions = server.max_sessions;
    config.start_timeout = server.start_timeout;
    config.queue_timeout = server.queue_timeout;
    config.session_timeout = server.session_timeout;
    config.cdp_path = server.cdp_path;
    if let Some(file) = server.ca {
        let read = std::fs::read(&file).with_context(|| format!("--grid-ca: cannot read {}", file.display()))?;
        config.ca = Some(read);
    }
    Ok(WebDriverEngine::new(config)?)
}
