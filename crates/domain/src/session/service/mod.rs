//! The use cases of sessions.

mod create;
mod end;
mod errors;
mod housekeeping;
mod leave;
mod location;
mod peers;
mod profile;
mod update;

use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use create::check_start_url;
use errors::not_found;
pub use errors::{CreateSessionError, EndSessionError, StartFailed, UpdateSessionError, UseSessionError};

use super::{
    Activity, ActivityGuard, Connections, IdOrName, PoolWake, Session, SessionFilter, SessionRepository, SessionState,
};
use crate::NotFound;
use crate::access::Scope;
use crate::browser::{
    BrowserEngine, BrowserRepository, EngineError, HandOut, Installation, Memory, Region, SpareBrowsers, Viewport,
};
use crate::clock::{Clock, FirstSeen, IdSource, MonotonicClock};
use crate::engine::{Capability, EngineName, EngineRefused, Engines, check};
use crate::extension::ExtensionRepository;
use crate::field::{InvalidInput, InvalidValue};
use crate::ids::{BrowserId, NodeId, SessionId};
use crate::node::Peers;
use crate::page::{Listed, Page};
use crate::profile::SessionProfiles;
use crate::proxy::ProxyRouting;
use crate::replay::SessionReplays;
use crate::session_operation::SessionOperations;
use crate::store_error::StoreError;
use crate::telemetry::{ConfigRequest, Recorder};
use crate::telemetry_destination::{self, TelemetryDestinationRepository};

/// The dependencies of the use cases of sessions.
#[derive(Clone)]
pub struct SessionDeps {
    /// This node.
    pub node: NodeId,
    /// What the operator sets for all browsers.
    pub installation: Installation,
    /// The stored sessions.
    pub sessions: Arc<dyn SessionRepository>,
    /// The stored browsers.
    pub browsers: Arc<dyn BrowserRepository>,
    /// The browser engine, which starts the browsers of all engines of the installation.
    pub engine: Arc<dyn BrowserEngine>,
    /// The engines of the installation.
    pub engines: Arc<dyn Engines>,
    /// The stored extensions.
    pub extensions: Arc<dyn ExtensionRepository>,
    /// The routing of browsers through proxies.
    pub proxies: ProxyRouting,
    /// Loads and saves profiles.
    pub profiles: SessionProfiles,
    /// Stores recordings.
    pub replays: SessionReplays,
    /// The spare browsers of the node.
    pub spares: Arc<dyn SpareBrowsers>,
    /// The other nodes.
    pub peers: Arc<dyn Peers>,
    /// The open connections to sessions.
    pub connections: Arc<dyn Connections>,
    /// The waker of the pool filler.
    pub pools: Arc<dyn PoolWake>,
    /// The activity of sessions.
    pub activity: Activity,
    /// The recorder of telemetry.
    pub recorder: Arc<dyn Recorder>,
    /// The stored telemetry destinations.
    pub telemetry_destinations: Arc<dyn TelemetryDestinationRepository>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The monotonic clock.
    pub monotonic: Arc<dyn MonotonicClock>,
    /// The source of new identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// The use cases of sessions.
#[derive(Clone)]
pub struct Sessions {
    deps: SessionDeps,
    /// The sessions that are starting or without a browser, with the time at which each was first seen so.
    unsettled: Arc<Mutex<FirstSeen<SessionId>>>,
}

impl Sessions {
    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: SessionDeps) -> Self {
        Self { deps, unsettled: Arc::default() }
    }

    /// Returns the activity of sessions, which open connections must mark.
    #[must_use]
    pub fn activity(&self) -> &Activity {
        &self.deps.activity
    }

    /// Returns the begin of operations inside sessions.
    #[must_use]
    pub fn operations(&self) -> SessionOperations {
        SessionOperations::new(self.deps.activity.clone(), Arc::clone(&self.deps.engines))
    }

    /// Returns the engines of the installation.
    #[must_use]
    pub fn engines(&self) -> &dyn Engines {
        &*self.deps.engines
    }

    /// Checks that the engine of a session's browser has a capability, before a connection to the browser or an operation
    /// that has no use case of its own begins.
    ///
    /// # Errors
    /// [`EngineRefused`] if it does not.
    pub fn check_engine(&self, session: &Session, capability: Capability) -> Result<(), EngineRefused> {
        check(&*self.deps.engines, &session.shape.engine, capability)
    }

    /// Returns the engine of the browsers in which logins run: the installation's default engine if it is able to, else
    /// the first one that is.
    ///
    /// # Errors
    /// The refusal of the default engine if none is able to.
    pub(crate) fn login_engine(&self) -> Result<EngineName, EngineRefused> {
        let default = self.deps.engines.default_engine();
        let Err(refused) = default.check(Capability::Logins) else { return Ok(default.name.clone()) };
        let able = self.deps.engines.all().into_iter().find(|engine| engine.check(Capability::Logins).is_ok());
        able.map(|engine| engine.name.clone()).ok_or(refused)
    }

    /// Returns the other nodes.
    pub(crate) fn peers(&self) -> &dyn Peers {
        &*self.deps.peers
    }

    /// Returns the number of places that a session with this requested memory takes. A size that is not offered counts as
    /// one place: its request is refused where it is parsed.
    #[must_use]
    pub fn places(&self, memory: Option<&str>) -> u32 {
        let requested = memory.and_then(|text| Memory::parse(text).ok());
        let reserved = requested.and_then(|requested| self.deps.installation.memory.reserve(requested).ok());
        reserved.map_or(1, |reserved| reserved.places)
    }

    /// Returns what the operator sets for all browsers.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.deps.installation
    }

    /// Finds the telemetry destination that a request names, before the request is parsed.
    pub(crate) async fn find_destination(
        &self,
        scope: &Scope,
        telemetry: &mut Option<ConfigRequest>,
    ) -> Result<(), StoreError> {
        let Some(telemetry) = telemetry else { return Ok(()) };
        telemetry_destination::choose(&*self.deps.telemetry_destinations, scope, &mut telemetry.export).await
    }

    /// Returns a session of the project.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str, include_ended: bool) -> Result<Session, UseSessionError> {
        self.deps
            .sessions
            .find_in_project(scope.project_id(), &IdOrName::parse(which), include_ended)
            .await?
            .ok_or_else(|| not_found(which).into())
    }

    /// Returns the project's session with this id, or the active one with this name. With `include_ended`, an ended session
    /// is returned by its id, and by its name if no other ended one has it.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn find_inside(
        &self,
        scope: &Scope,
        which: &str,
        include_ended: bool,
    ) -> Result<Session, UseSessionError> {
        let session = self.get(scope, which, include_ended).await?;
        let is_by_name = matches!(IdOrName::<SessionId>::parse(which), IdOrName::Name(_));
        if is_by_name && !session.is_active() && self.deps.sessions.count_named(scope.project_id(), which).await? > 1 {
            let hint = Some("several ended sessions have this name, so name one by its id");
            return Err(NotFound { hint, ..not_found(which) }.into());
        }
        Ok(session)
    }

    /// Stores which fields of the request that made a session were ignored.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn note_ignored_fields(&self, id: SessionId, fields: &[String]) -> Result<(), StoreError> {
        self.deps.sessions.note_ignored_fields(id, fields).await
    }

    /// Returns which fields of the request that made the project's session were ignored. The session may have ended.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn ignored_fields(&self, scope: &Scope, which: &str) -> Result<Vec<String>, UseSessionError> {
        let session = self.get(scope, which, true).await?;
        Ok(self.deps.sessions.ignored_fields(session.id).await?)
    }

    /// Returns the active session with this id, for the holder of its token. While the store is unavailable, returns a
    /// session of this node as it was last read; the caller checks that the node still [answers](crate::node::OwnState::answers)
    /// for its sessions.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn active(&self, id: SessionId) -> Result<Session, UseSessionError> {
        let found = match self.deps.sessions.find(id).await {
            Err(error @ StoreError::Unavailable { .. }) => {
                return self.deps.activity.last_read(id).ok_or_else(|| error.into());
            }
            found => found?.filter(Session::is_active).ok_or_else(|| not_found(id.to_string()))?,
        };
        self.deps.activity.note(&found);
        Ok(found)
    }

    /// Returns the session with this id, active or ended, for data that outlives it.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn find_including_ended(&self, id: SessionId) -> Result<Session, UseSessionError> {
        let found = self.deps.sessions.find(id).await?.filter(|found| found.state != SessionState::Starting);
        found.ok_or_else(|| not_found(id.to_string()).into())
    }

    /// Returns the session with this id in any state, for background work.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        self.deps.sessions.find(id).await
    }

    /// Returns the project's sessions, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(&self, scope: &Scope, filter: &SessionFilter, page: Page) -> Result<Listed<Session>, StoreError> {
        if !self.deps.installation.has_region(filter.region) {
            return Ok(Listed { items: Vec::new(), next_offset: None });
        }
        self.deps.sessions.list(scope.project_id(), filter, page).await
    }

    /// Begins the telemetry capture of the session, if any, before it is delivered, so that no event is missed.
    pub(crate) async fn begin_capture(&self, session: &Session) -> Result<(), EngineError> {
        if session.telemetry.is_some() { self.deps.recorder.capture(session).await } else { Ok(()) }
    }

    /// Returns a PNG of the session's display or of a part of it, which `region` computes from the size of the display.
    ///
    /// # Errors
    /// See [`UseSessionError`].
    pub async fn screenshot(
        &self,
        session: &Session,
        region: impl FnOnce(Viewport) -> Result<Option<Region>, InvalidValue> + Send,
    ) -> Result<Vec<u8>, UseSessionError> {
        self.check_engine(session, Capability::Screenshots)?;
        let region = region(session.shape.viewport).map_err(|bad| InvalidInput::of("region", bad))?;
        let _in_use = self.in_use(session)?;
        Ok(self.deps.engine.screenshot(browser_of(session)?, session.shape.viewport, region).await?)
    }

    /// Marks the session as in use until the guard is dropped.
    fn in_use(&self, session: &Session) -> Result<ActivityGuard, UseSessionError> {
        let taken_back = || not_found(session.id.to_string());
        Ok(self.deps.activity.begin(session.id).ok_or_else(taken_back)?)
    }

    /// Returns a screenshot of the whole display for an observer, as PNG. It does not count as activity.
    ///
    /// # Errors
    /// See [`UseSessionError`].
    pub async fn observer_screenshot(&self, session: &Session) -> Result<Vec<u8>, UseSessionError> {
        self.check_engine(session, Capability::Screenshots)?;
        Ok(self.deps.engine.screenshot(browser_of(session)?, session.shape.viewport, None).await?)
    }
}

/// Returns the parameters of the hand-out of a session.
pub(crate) fn hand_out(session: &Session) -> HandOut {
    HandOut { start_url: session.start_url.clone(), abandoned_after_seconds: session.timeout_seconds }
}

fn browser_of(session: &Session) -> Result<BrowserId, UseSessionError> {
    session.browser.ok_or_else(|| not_found(session.id.to_string()).into())
}
