//! The engines of this node behind the domain's port: its own sandboxes, and WebDriver servers.
//!
//! A browser of a WebDriver server has a sandbox here too, without a browser: what speaks CDP runs there, and the only
//! socket that leads out of it is the CDP of its session.

mod connector;
mod files;
mod grids;
mod profiles;
mod sockets;
mod sweep;
mod trial;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use casement_agent_protocol::browser_state::StateReading;
use casement_chromium::{Engine, ProfileStates, RemoteBrowser};
use casement_domain::BrowserId;
use casement_domain::browser::{
    BrowserEngine, EngineError, EngineFault, HandOut, Launch, Location, Region, Started, Viewport,
};
use casement_domain::session_operation::OperationError;
use casement_webdriver::into_engine_error;
use futures_util::{StreamExt as _, stream};
use tracing::warn;

pub(crate) use files::EngineFiles;
pub(crate) use grids::Grids;
use grids::RemoteBrowserSession;
pub(crate) use profiles::EngineProfiles;
pub(crate) use sockets::RemoteSockets;
pub(crate) use sweep::GridSweep;
pub(crate) use trial::{Trial, try_each};

/// The maximum number of browsers that end at the same time.
const ENDS_AT_ONCE: usize = 8;

/// All engines of this node.
#[derive(Clone)]
pub(crate) struct BrowserEngines {
    sandboxes: Engine,
    grids: Grids,
    /// Converts between stored profiles and what a remote browser can have of them.
    states: ProfileStates,
}

impl BrowserEngines {
    pub(crate) fn new(sandboxes: Engine, grids: Grids, states: ProfileStates) -> Self {
        Self { sandboxes, grids, states }
    }

    /// Returns the engine of the sandboxes.
    pub(crate) fn sandboxes(&self) -> &Engine {
        &self.sandboxes
    }

    /// Returns the WebDriver servers.
    pub(crate) fn grids(&self) -> &Grids {
        &self.grids
    }

    /// Continues with the sessions of adopted sandboxes on their WebDriver servers.
    pub(crate) fn continue_remote_sessions(&self) {
        for (browser, record) in self.sandboxes.remote_records() {
            match self.grids.parse(&record) {
                Some(remote) => {
                    remote.engine.track((*remote.session).clone());
                    self.grids.remember(browser, remote.clone());
                    prepare_socket(remote);
                }
                None => warn!(%browser, "the engine of a remote browser is not configured any more"),
            }
        }
    }

    /// Ends the remote browsers of this node but those in `keep`, in the background.
    pub(crate) fn end_remote_sessions_but(&self, keep: &[BrowserId]) {
        let (engines, keep) = (self.clone(), keep.to_vec());
        tokio::spawn(async move { engines.end_remote_but(&keep).await });
    }

    /// Ends the remote browsers of this node but those in `keep`. What cannot be ended is ended by the next start.
    pub(crate) async fn end_remote_but(&self, keep: &[BrowserId]) {
        let others = self.grids.all_browsers().into_iter().filter(|browser| !keep.contains(browser));
        let ends = stream::iter(others).for_each_concurrent(ENDS_AT_ONCE, async |browser| {
            if let Err(error) = self.end(browser).await {
                warn!(%browser, %error, "cannot end a browser of a WebDriver server");
            }
        });
        ends.await;
    }

    /// Waits until no WebDriver server is starting a browser for this node.
    pub(crate) async fn until_no_remote_start(&self) {
        self.grids.until_no_start().await;
    }

    async fn start_remote(&self, launch: &Launch) -> Result<Started, EngineError> {
        let name = &launch.shape.engine;
        let Some(engine) = self.grids.find(name) else {
            return Err(EngineError::NoRoom(format!("the engine {name} is not configured on this node")));
        };
        let _starting = self.grids.begin(launch.id);
        // Before the session is started, which would have to be ended if the profile cannot be loaded.
        let state = match launch.shape.profile {
            Some(profile) => Some(self.states.load(profile).await.map_err(profile_error)?),
            None => None,
        };
        let begun = Instant::now();
        let started = engine.start(launch.id, &launch.shape, &launch.capabilities).await;
        let session = started.map_err(|error| into_engine_error(name, launch.id, &error))?;
        let took = u32::try_from(begun.elapsed().as_millis()).unwrap_or(u32::MAX);
        let remote = RemoteBrowserSession { engine: engine.clone(), session: Arc::new(session) };
        // Before the sandbox is started, whose socket needs it.
        self.grids.remember(launch.id, remote.clone());
        match self.start_sandbox(launch, &remote, state.as_deref()).await {
            Ok(mut started) => {
                prepare_socket(remote);
                started.stages.insert(0, (format!("session of {name}"), took));
                Ok(started)
            }
            Err(error) => {
                self.end_session(launch.id, &remote).await.ok();
                Err(error)
            }
        }
    }

    /// Starts the sandbox of a remote browser, and gives the browser the state of its profile.
    async fn start_sandbox(
        &self,
        launch: &Launch,
        remote: &RemoteBrowserSession,
        state: Option<&StateReading>,
    ) -> Result<Started, EngineError> {
        let record = remote.record().map_err(|error| EngineError::Failed {
            fault: EngineFault::AgentError,
            message: format!("the session cannot be stored: {error}"),
        })?;
        let version = remote.session.browser_version().to_owned();
        let started = self.sandboxes.start_remote(launch, RemoteBrowser { record, version }).await?;
        if let Some(reading) = state
            && let Err(error) = self.sandboxes.write_state(launch.id, &reading.state).await
        {
            self.sandboxes.end(launch.id).await.ok();
            return Err(profile_error(error));
        }
        Ok(started)
    }

    async fn end_session(&self, browser: BrowserId, remote: &RemoteBrowserSession) -> Result<(), EngineError> {
        let ended = remote.engine.end(&remote.session).await;
        ended.map_err(|error| into_engine_error(remote.engine.name(), browser, &error))?;
        self.grids.forget(browser);
        Ok(())
    }
}

/// Opens the CDP WebSocket of the session's first client, in the background.
fn prepare_socket(remote: RemoteBrowserSession) {
    tokio::spawn(async move { remote.engine.prepare_socket(&remote.session).await });
}

/// Returns the error of a start whose profile cannot be loaded.
fn profile_error(error: OperationError) -> EngineError {
    match error {
        OperationError::Engine(error) => error,
        OperationError::Unavailable(why) => EngineError::Unavailable(why),
        other => EngineError::Profile(other.to_string()),
    }
}

#[async_trait]
impl BrowserEngine for BrowserEngines {
    async fn start(&self, launch: &Launch) -> Result<Started, EngineError> {
        if launch.shape.engine.is_local() {
            self.sandboxes.start(launch).await
        } else {
            self.start_remote(launch).await
        }
    }

    async fn hand_out(&self, id: BrowserId, to: HandOut) -> Result<(), EngineError> {
        self.sandboxes.hand_out(id, to).await
    }

    async fn set_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError> {
        self.sandboxes.set_viewport(id, viewport).await
    }

    async fn restart_with_viewport(&self, id: BrowserId, viewport: Viewport) -> Result<(), EngineError> {
        self.sandboxes.restart_with_viewport(id, viewport).await
    }

    async fn has_location(&self, id: BrowserId, location: Location) -> Result<bool, EngineError> {
        self.sandboxes.has_location(id, location).await
    }

    async fn restart_with_location(&self, id: BrowserId, location: Location) -> Result<(), EngineError> {
        self.sandboxes.restart_with_location(id, location).await
    }

    async fn is_recording(&self, id: BrowserId) -> Result<bool, EngineError> {
        self.sandboxes.is_recording(id).await
    }

    async fn screenshot(
        &self,
        id: BrowserId,
        display: Viewport,
        region: Option<Region>,
    ) -> Result<Vec<u8>, EngineError> {
        self.sandboxes.screenshot(id, display, region).await
    }

    fn is_known(&self, id: BrowserId) -> bool {
        self.sandboxes.is_known(id) || self.grids.is_known(id)
    }

    async fn end(&self, id: BrowserId) -> Result<(), EngineError> {
        let Some(remote) = self.grids.session(id) else { return self.sandboxes.end(id).await };
        // The sandbox first: what it runs drives the session.
        let ended = self.sandboxes.end(id).await;
        self.end_session(id, &remote).await?;
        ended
    }
}
