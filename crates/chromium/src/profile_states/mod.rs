//! The part of stored profiles that a browser elsewhere can have: cookies and local storage.
//!
//! A stored profile is a copy of Chromium's user data directory, which only Chromium reads and writes. So a browser of
//! this machine is started with the profile for the time of the work, without a page, a display or a network.

mod cache;

use std::sync::Arc;

use casement_domain::browser::{BrowserEngine as _, EngineError, EngineFault, Launch, Shape, Viewport};
use casement_domain::clock::IdSource;
use casement_domain::ids::BrowserId;
use casement_domain::profile::{LoadedProfile, ProfileMachine as _};
use casement_domain::proxy::{ProxyRoutes, Route};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::cache::{Cache, CachedState};
use crate::engine::Engine;
use crate::fault::failed;
use casement_agent_protocol::browser_state::{BrowserState, StateReading, StateWritten};

/// The maximum number of browsers that work with profiles at a time.
const MAX_BROWSERS: usize = 2;
/// The time after which such a browser ends if its server is gone, in seconds.
const ABANDONED_SECONDS: u32 = 300;

/// Reads and writes the cookies and the local storage of stored profiles. Cheap to clone.
#[derive(Clone)]
pub struct ProfileStates(Arc<Inner>);

struct Inner {
    engine: Engine,
    routes: Arc<dyn ProxyRoutes>,
    ids: Arc<dyn IdSource>,
    room: Arc<Semaphore>,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for ProfileStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfileStates").finish_non_exhaustive()
    }
}

impl ProfileStates {
    /// Creates it for an engine that has a source of profiles. `routes` are those of its browsers.
    #[must_use]
    pub fn new(engine: Engine, routes: Arc<dyn ProxyRoutes>, ids: Arc<dyn IdSource>) -> Self {
        let (room, cache) = (Arc::new(Semaphore::new(MAX_BROWSERS)), Mutex::default());
        Self(Arc::new(Inner { engine, routes, ids, room, cache }))
    }

    /// Returns the state of a profile's version; it is empty if nothing was saved yet. The last 32 states, of at most 64
    /// MiB together, are held in memory, and a version that several callers want is read once.
    ///
    /// # Errors
    /// [`EngineError::Profile`] if the version cannot be loaded; [`OperationError::TooLarge`] if its cookies exceed the
    /// limits of a state; the error of the engine.
    pub async fn load(&self, profile: LoadedProfile) -> Result<Arc<StateReading>, OperationError> {
        if let Some(source) = self.0.engine.0.profiles.get() {
            source.used(&profile).await?;
        }
        let Some(version) = profile.version else { return Ok(Arc::default()) };
        let entry = self.0.cache.lock().entry((profile.id, version));
        let loaded = entry.get_or_try_init(|| async {
            let this = self.clone();
            // Continues without this caller, so that the browser is ended in an orderly way.
            let read = tokio::spawn(async move { this.read(profile).await }).await;
            read.unwrap_or_else(|error| Err(failed(EngineFault::AgentError, error.to_string()).into()))
        });
        let reading = Arc::clone(&loaded.await?.reading);
        self.0.cache.lock().trim();
        Ok(reading)
    }

    /// Returns the state in the archive of a profile, as [`capture`](casement_domain::profile::ProfileMachine::capture)
    /// makes it.
    ///
    /// # Errors
    /// [`EngineError::Profile`] if the archive cannot be used; as [`load`](Self::load) otherwise.
    pub async fn read_archive(&self, archive: ByteStream) -> Result<StateReading, OperationError> {
        let browser = self.start(None).await?;
        self.0.engine.load(browser.id, archive).await?;
        let reading = self.0.engine.read_state(browser.id, Vec::new()).await;
        browser.end().await;
        reading
    }

    async fn read(&self, profile: LoadedProfile) -> Result<CachedState, OperationError> {
        let browser = self.start(Some(profile)).await?;
        let reading = self.0.engine.read_state(browser.id, Vec::new()).await;
        browser.end().await;
        let reading = reading?;
        if !reading.origins_listed || reading.origins_left_out > 0 || reading.cookies_left_out > 0 {
            let (origins, cookies) = (reading.origins_left_out, reading.cookies_left_out);
            tracing::warn!(profile = %profile.id, origins, cookies, "a profile is not loaded completely");
        }
        Ok(CachedState::new(reading))
    }

    /// Writes a state into a profile: its cookies are replaced, and the local storage of the given origins. Returns the
    /// archive of the changed user data, as [`capture`](casement_domain::profile::ProfileMachine::capture) does. Nothing
    /// is stored yet.
    ///
    /// # Errors
    /// See [`load`](Self::load); also in the stream.
    pub async fn save(&self, profile: LoadedProfile, state: &BrowserState) -> Result<ByteStream, OperationError> {
        let browser = self.start(Some(profile)).await?;
        let StateWritten { origins_refused, cookies_refused } = self.0.engine.write_state(browser.id, state).await?;
        if origins_refused > 0 || cookies_refused > 0 {
            tracing::warn!(profile = %profile.id, origins_refused, cookies_refused, "a profile is not saved completely");
        }
        let archive = self.0.engine.capture(browser.id, profile).await?;
        // The browser ends with the stream.
        let archive = archive.inspect(move |_| {
            let _held = &browser;
        });
        Ok(archive.boxed())
    }

    /// Starts a browser with the profile, or with an empty one.
    async fn start(&self, profile: Option<LoadedProfile>) -> Result<LocalBrowser, EngineError> {
        let closed = |_| failed(EngineFault::AgentError, "the engine ends");
        let room = Arc::clone(&self.0.room).acquire_owned().await.map_err(closed)?;
        let id = BrowserId::mint(self.0.ids.as_ref());
        // From here on the browser is ended, however this ends.
        let browser = LocalBrowser { states: self.clone(), id, is_ended: false, _room: room };
        // A service worker of the profile may have postponed requests.
        self.0.routes.set(id, Route::Nowhere.into());
        let profile = profile.map(|profile| LoadedProfile { save_changes: false, ..profile });
        let viewport = Viewport { width: 800, height: 600, ..Viewport::default() };
        let shape = Shape { headless: true, viewport, profile, ..Shape::default() };
        self.0.engine.start(&Launch::new(id, shape, ABANDONED_SECONDS)).await?;
        Ok(browser)
    }

    async fn end(&self, id: BrowserId) {
        if let Err(error) = self.0.engine.end(id).await {
            tracing::warn!(browser = %id, %error, "cannot end a browser that worked with a profile");
        }
        self.0.routes.forget(id);
    }
}

/// A browser that works with a profile. Dropping it ends it in the background.
struct LocalBrowser {
    states: ProfileStates,
    id: BrowserId,
    is_ended: bool,
    _room: OwnedSemaphorePermit,
}

impl LocalBrowser {
    async fn end(mut self) {
        self.states.end(self.id).await;
        self.is_ended = true;
    }
}

impl Drop for LocalBrowser {
    fn drop(&mut self) {
        if !self.is_ended
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (states, id) = (self.states.clone(), self.id);
            runtime.spawn(async move { states.end(id).await });
        }
    }
}
