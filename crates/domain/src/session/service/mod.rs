//! Use cases of sessions.

mod create;
mod end;
mod errors;
mod housekeeping;
mod leave;
mod profile;
mod update;

use std::sync::{Arc, Mutex};

pub use errors::{CreateSessionError, EndSessionError, UpdateSessionError, UseSessionError};

use super::{
    Activity, ActivityGuard, Connections, IdOrName, PoolWake, Session, SessionFilter, SessionRepository, SessionState,
};
use crate::access::Scope;
use crate::browser::{BrowserEngine, BrowserRepository, EngineError, HandOut, Region, SpareBrowsers, Viewport};
use crate::clock::{Clock, FirstSeen, IdSource, MonotonicClock};
use crate::extension::ExtensionRepository;
use crate::field::{InvalidInput, InvalidValue};
use crate::ids::{BrowserId, NodeId, SessionId};
use crate::page::{Listed, Page};
use crate::profile::SessionProfiles;
use crate::proxy::ProxyRouting;
use crate::replay::SessionReplays;
use crate::store_error::StoreError;
use crate::telemetry::Recorder;

/// What the use cases of sessions stand on.
#[derive(Clone)]
pub struct SessionDeps {
    /// This node.
    pub node: NodeId,
    /// Where sessions are kept.
    pub sessions: Arc<dyn SessionRepository>,
    /// Where browsers are kept.
    pub browsers: Arc<dyn BrowserRepository>,
    /// What runs them.
    pub engine: Arc<dyn BrowserEngine>,
    /// Where extensions are kept.
    pub extensions: Arc<dyn ExtensionRepository>,
    /// What browsers are sent through.
    pub proxies: ProxyRouting,
    /// What browsers are started with, and what of them is saved.
    pub profiles: SessionProfiles,
    /// What is kept of recordings.
    pub replays: SessionReplays,
    /// The node's reserve.
    pub spares: Arc<dyn SpareBrowsers>,
    /// What is open into sessions.
    pub connections: Arc<dyn Connections>,
    /// Who fills pools.
    pub pools: Arc<dyn PoolWake>,
    /// The idle clocks.
    pub activity: Activity,
    /// Takes note of what happens in sessions.
    pub recorder: Arc<dyn Recorder>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// How it passes.
    pub monotonic: Arc<dyn MonotonicClock>,
    /// Identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// The use cases.
#[derive(Clone)]
pub struct Sessions {
    deps: SessionDeps,
    /// What may be only under way, or forgotten.
    unsettled: Arc<Mutex<FirstSeen<SessionId>>>,
}

impl Sessions {
    /// The use cases on these ports.
    #[must_use]
    pub fn new(deps: SessionDeps) -> Self {
        Self { deps, unsettled: Arc::default() }
    }

    /// The idle clocks, for whoever opens connections into sessions.
    #[must_use]
    pub fn activity(&self) -> &Activity {
        &self.deps.activity
    }

    /// The project's session.
    ///
    /// # Errors
    /// [`UseSessionError::NotFound`]; the store's failure.
    pub async fn get(&self, scope: &Scope, which: &str, include_ended: bool) -> Result<Session, UseSessionError> {
        self.deps
            .sessions
            .find_in_project(scope.project_id(), &IdOrName::parse(which), include_ended)
            .await?
            .ok_or_else(|| UseSessionError::NotFound(which.to_owned()))
    }

    /// The active session of that id, for the holder of its token.
    ///
    /// # Errors
    /// [`UseSessionError::NotFound`]; the store's failure.
    pub async fn active(&self, id: SessionId) -> Result<Session, UseSessionError> {
        self.deps
            .sessions
            .find(id)
            .await?
            .filter(Session::is_active)
            .ok_or_else(|| UseSessionError::NotFound(id.to_string()))
    }

    /// The session of that id, active or ended; for what outlives it.
    ///
    /// # Errors
    /// [`UseSessionError::NotFound`]; the store's failure.
    pub async fn lasting(&self, id: SessionId) -> Result<Session, UseSessionError> {
        let found = self.deps.sessions.find(id).await?.filter(|found| found.state != SessionState::Starting);
        found.ok_or_else(|| UseSessionError::NotFound(id.to_string()))
    }

    /// The session of that id, in whatever state; for what is done on its own in sessions.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        self.deps.sessions.find(id).await
    }

    /// The project's sessions, newest first.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn list(&self, scope: &Scope, filter: &SessionFilter, page: Page) -> Result<Listed<Session>, StoreError> {
        self.deps.sessions.list(scope.project_id(), filter, page).await
    }

    /// Captures from now on what the session names, if it names anything. Before its caller has it, so that nothing is missed.
    pub(crate) async fn begin_capture(&self, session: &Session) -> Result<(), EngineError> {
        if session.telemetry.is_some() { self.deps.recorder.capture(session).await } else { Ok(()) }
    }

    /// A PNG of the session's display or a part of it. `region` says which part, given the display's size.
    ///
    /// # Errors
    /// See [`UseSessionError`].
    pub async fn screenshot(
        &self,
        session: &Session,
        region: impl FnOnce(Viewport) -> Result<Option<Region>, InvalidValue> + Send,
    ) -> Result<Vec<u8>, UseSessionError> {
        let region = region(session.shape.viewport).map_err(|bad| InvalidInput::of("region", bad))?;
        let _in_use = self.in_use(session)?;
        Ok(self.deps.engine.screenshot(browser_of(session)?, session.shape.viewport, region).await?)
    }

    /// It is in use as long as this is kept.
    fn in_use(&self, session: &Session) -> Result<ActivityGuard, UseSessionError> {
        let taken_back = || UseSessionError::NotFound(session.id.to_string());
        self.deps.activity.begin(session.id).ok_or_else(taken_back)
    }

    /// A PNG of the session's whole display for somebody who looks on: it does not count as use, so the session may become idle.
    ///
    /// # Errors
    /// See [`UseSessionError`].
    pub async fn glance(&self, session: &Session) -> Result<Vec<u8>, UseSessionError> {
        Ok(self.deps.engine.screenshot(browser_of(session)?, session.shape.viewport, None).await?)
    }
}

/// What the session's browser is told when its caller gets it.
pub(crate) fn hand_out(session: &Session) -> HandOut {
    HandOut { start_url: session.start_url.clone(), abandoned_after_seconds: session.timeout_seconds }
}

fn browser_of(session: &Session) -> Result<BrowserId, UseSessionError> {
    session.browser.ok_or_else(|| UseSessionError::NotFound(session.id.to_string()))
}
