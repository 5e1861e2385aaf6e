//! Use cases of sessions.

use std::sync::Arc;

use time::Duration;

use super::input::Refusal;
use super::{
    Activity, Connections, CreateSession, Created, IdOrName, NotSupported, PoolWake, Session, SessionEvent,
    SessionFilter, SessionRefused, SessionRepository, SessionState, SessionWish, UpdateSession,
};
use crate::access::{ProjectArchived, Scope};
use crate::browser::{
    Browser, BrowserEngine, BrowserRepository, BrowserState, EngineError, HandOut, Launch, Region, Shape,
    SpareBrowsers, Viewport,
};
use crate::clock::{Clock, IdSource};
use crate::extension::{ExtensionRepository, resolve};
use crate::field::{Bad, InvalidInput};
use crate::ids::{BrowserId, NodeId, SessionId};
use crate::name::LabelName;
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::proxy::{ProxyRouting, Route};
use crate::store_error::{Replaced, StoreError};

/// A session was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateSessionError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// This installation cannot do it.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
    /// The project takes nothing new.
    #[error(transparent)]
    Archived(#[from] ProjectArchived),
    /// The project is gone.
    #[error("the project was deleted")]
    ProjectGone,
    /// Another session bears the name.
    #[error("a session named {0} exists already")]
    NameTaken(LabelName),
    /// It would go over a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The browser could not be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Refusal> for CreateSessionError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(invalid) => invalid.into(),
            Refusal::NotSupported(unsupported) => unsupported.into(),
        }
    }
}

/// A session was not found, or not reached.
#[derive(Debug, thiserror::Error)]
pub enum UseSessionError {
    /// The project has no such active session.
    #[error("browser session {0} not found")]
    NotFound(String),
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// Its browser failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A session was not changed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateSessionError {
    /// It was not found or not reached.
    #[error(transparent)]
    Use(#[from] UseSessionError),
    /// This installation cannot do it.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
    /// Another session bears the name.
    #[error("a session named {0} exists already")]
    NameTaken(LabelName),
    /// Somebody watches, and the change was not forced.
    #[error("browser session {0} has a live view open; set viewport.force to change it all the same")]
    Watched(SessionId),
    /// A recording runs, and the change was not forced.
    #[error("browser session {0} is being recorded; set viewport.force to change it all the same")]
    Recorded(SessionId),
}

/// A session was not ended.
#[derive(Debug, thiserror::Error)]
pub enum EndSessionError {
    /// There is no such session, or it has ended.
    #[error("browser session {0} not found")]
    NotFound(String),
    /// It cannot end in that way.
    #[error(transparent)]
    Refused(#[from] SessionRefused),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

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
    /// The node's reserve.
    pub spares: Arc<dyn SpareBrowsers>,
    /// What is open into sessions.
    pub connections: Arc<dyn Connections>,
    /// Who fills pools.
    pub pools: Arc<dyn PoolWake>,
    /// The idle clocks.
    pub activity: Activity,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// The use cases.
#[derive(Clone)]
pub struct Sessions {
    deps: SessionDeps,
}

/// How often a spare that does not answer is replaced by the next before one is started afresh.
const SPARES_TRIED: usize = 2;

/// No start takes longer: a reservation that is older was forgotten.
const LONGEST_START: Duration = Duration::minutes(5);

impl Sessions {
    /// The use cases on these ports.
    #[must_use]
    pub fn new(deps: SessionDeps) -> Self {
        Self { deps }
    }

    /// The idle clocks, for whoever opens connections into sessions.
    #[must_use]
    pub fn activity(&self) -> &Activity {
        &self.deps.activity
    }

    /// Creates a session on demand, ready to use: from a spare browser of its shape, else from one started for it.
    ///
    /// Must run to its end: a caller that drops it midway leaves a reservation that only the node's next start clears.
    ///
    /// # Errors
    /// See [`CreateSessionError`]; then nothing is left of it.
    pub async fn create(&self, scope: &Scope, wish: CreateSession) -> Result<Session, CreateSessionError> {
        scope.writable()?;
        let mut wish = wish.parse()?;
        wish.shape.extensions =
            resolve::<CreateSessionError>(&*self.deps.extensions, scope.project_id(), &wish.extensions).await?;
        if let Some(asked) = &wish.proxy {
            wish.shape.proxy = Some(self.deps.proxies.resolve::<CreateSessionError>(scope.project_id(), asked).await?);
        }
        for _ in 0..SPARES_TRIED {
            let Some(browser) = self.deps.spares.take(&bare(&wish.shape)) else { break };
            match self.create_on_spare(scope, &wish, browser).await {
                Err(CreateSessionError::Engine(_)) => {}
                done => return done,
            }
        }
        self.create_afresh(scope, &wish).await
    }

    fn draft(&self, scope: &Scope, wish: &SessionWish) -> Session {
        let now = self.deps.clock.now();
        Session {
            id: SessionId::mint(self.deps.ids.as_ref()),
            project: scope.project_id(),
            node: self.deps.node,
            browser: None,
            pool: None,
            shape: wish.shape.clone(),
            name: wish.name.clone(),
            timeout_seconds: wish.timeout_seconds,
            start_url: wish.start_url.clone(),
            tags: wish.tags.clone(),
            state: SessionState::Starting,
            created_at: now,
            last_active_at: now,
            ended_at: None,
        }
    }

    async fn create_on_spare(
        &self,
        scope: &Scope,
        wish: &SessionWish,
        browser: BrowserId,
    ) -> Result<Session, CreateSessionError> {
        let draft = self.draft(scope, wish);
        let session = Session { state: SessionState::Active, browser: Some(browser), ..draft };
        let row = self.leased_browser(&session, browser);
        match self.reserve(scope, &session, Some(row)).await {
            Ok(()) => {}
            Err(CreateSessionError::Store(error)) => {
                // It may be stored all the same; a spare that a row calls leased must not be taken again.
                self.end_quietly(&session, SessionEvent::StartFailed).await;
                self.bury(browser).await;
                return Err(error.into());
            }
            Err(refused) => {
                self.deps.spares.put_back(&bare(&wish.shape), browser);
                return Err(refused);
            }
        }
        self.deps.activity.watch(&session);
        let handed = async {
            if session.shape.proxy.is_some() {
                self.deps.proxies.send(browser, session.shape.proxy).await?;
            }
            self.deps.engine.hand_out(browser, hand_out(&session)).await
        };
        if let Err(error) = handed.await {
            self.end_quietly(&session, SessionEvent::StartFailed).await;
            return Err(error.into());
        }
        Ok(session)
    }

    async fn create_afresh(&self, scope: &Scope, wish: &SessionWish) -> Result<Session, CreateSessionError> {
        let draft = self.draft(scope, wish);
        self.reserve(scope, &draft, None).await?;
        let id = BrowserId::mint(self.deps.ids.as_ref());
        let started = async {
            let launch = Launch { id, shape: wish.shape.clone(), abandoned_after_seconds: wish.timeout_seconds };
            if wish.shape.proxy.is_some() {
                self.deps.proxies.send(id, wish.shape.proxy).await.map_err(EngineError::from)?;
            }
            self.deps.engine.start(&launch).await?;
            if wish.start_url.is_some() {
                self.deps.engine.hand_out(id, hand_out(&draft)).await?;
            }
            let active = draft
                .on(SessionEvent::Ready(id), self.deps.clock.now())
                .unwrap_or_else(|_| unreachable!("a starting session can become active"));
            let row = self.leased_browser(&active, id);
            match self.deps.sessions.activate(&draft, &active, &row).await? {
                Replaced::Yes => Ok(active),
                Replaced::LostRace => Err(CreateSessionError::Engine(EngineError::NotRunning(id))),
            }
        }
        .await;
        match started {
            Ok(active) => {
                self.deps.activity.watch(&active);
                Ok(active)
            }
            Err(error) => {
                self.end_quietly(&draft, SessionEvent::StartFailed).await;
                let _ = self.deps.engine.end(id).await;
                self.deps.proxies.forget(id);
                Err(error)
            }
        }
    }

    fn leased_browser(&self, session: &Session, id: BrowserId) -> Browser {
        Browser {
            id,
            node: self.deps.node,
            pool: None,
            shape: session.shape.clone(),
            state: BrowserState::Leased,
            session: Some(session.id),
            created_at: session.created_at,
        }
    }

    async fn reserve(
        &self,
        scope: &Scope,
        session: &Session,
        browser: Option<Browser>,
    ) -> Result<(), CreateSessionError> {
        match self.deps.sessions.create(scope.organization(), session, browser).await? {
            Created::Yes => Ok(()),
            Created::LimitExceeded(limit) => Err(limit.into()),
            Created::ProjectGone => Err(CreateSessionError::ProjectGone),
            Created::NameTaken => Err(match &session.name {
                Some(name) => CreateSessionError::NameTaken(name.clone()),
                None => unreachable!("a session without a name takes none"),
            }),
        }
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

    /// The project's sessions, newest first.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn list(&self, scope: &Scope, filter: &SessionFilter, page: Page) -> Result<Listed<Session>, StoreError> {
        self.deps.sessions.list(scope.project_id(), filter, page).await
    }

    /// Changes an active session.
    ///
    /// # Errors
    /// See [`UpdateSessionError`].
    pub async fn update(&self, scope: &Scope, which: &str, wish: UpdateSession) -> Result<Session, UpdateSessionError> {
        let changes = wish.parse().map_err(|refusal| match refusal {
            Refusal::Invalid(invalid) => UpdateSessionError::Use(invalid.into()),
            Refusal::NotSupported(unsupported) => unsupported.into(),
        })?;
        let session = self.get(scope, which, false).await?;
        let _in_use = self.deps.activity.begin(session.id);
        let size = changes.viewport.filter(|(size, _)| *size != session.shape.viewport);
        if matches!(size, Some((_, false))) && self.deps.activity.is_watched(session.id) {
            return Err(UpdateSessionError::Watched(session.id));
        }
        if matches!(size, Some((_, false)))
            && self.deps.engine.is_recording(browser_of(&session)?).await.map_err(UseSessionError::from)?
        {
            return Err(UpdateSessionError::Recorded(session.id));
        }
        let proxy = match &changes.proxy {
            None => None,
            Some(None) => Some((None, Route::Direct)),
            Some(Some(asked)) => {
                let id = self.deps.proxies.resolve::<UseSessionError>(scope.project_id(), asked).await?;
                let route = self.deps.proxies.prepare(Some(id)).await;
                Some((Some(id), route.map_err(|error| UseSessionError::Engine(error.into()))?))
            }
        };
        // The size first: it is what can fail, and then nothing is changed.
        if let Some((viewport, _)) = size {
            self.resize(&session, viewport).await?;
        }
        let changed = self.deps.sessions.change(session.id, &changes).await;
        if !matches!(changed, Ok(Some(Created::Yes))) && size.is_some() {
            let _ = self.deps.engine.set_viewport(browser_of(&session)?, session.shape.viewport).await;
        }
        match changed.map_err(UseSessionError::from)? {
            Some(Created::NameTaken) => {
                let name = changes.name.flatten().unwrap_or_else(|| unreachable!("only a name can be taken"));
                return Err(UpdateSessionError::NameTaken(name));
            }
            Some(_) => {}
            None => return Err(UseSessionError::NotFound(which.to_owned()).into()),
        }
        if let Some((viewport, _)) = size {
            self.deps.sessions.set_viewport(session.id, viewport).await.map_err(UseSessionError::from)?;
        }
        if let Some((proxy, route)) = proxy {
            // Stored before it counts: a server that starts anew goes by what is stored.
            if !self.deps.sessions.set_proxy(session.id, proxy).await.map_err(UseSessionError::from)? {
                return Err(UseSessionError::NotFound(which.to_owned()).into());
            }
            self.deps.proxies.set(browser_of(&session)?, route);
        }
        Ok(self.get(scope, &session.id.to_string(), false).await?)
    }

    /// Gives the session's display another size; if it cannot become so large while Chromium runs, both are started anew.
    async fn resize(&self, session: &Session, viewport: Viewport) -> Result<(), UseSessionError> {
        let browser = browser_of(session)?;
        match self.deps.engine.set_viewport(browser, viewport).await {
            Err(EngineError::OutOfRange(_)) if !session.shape.headless => {}
            other => return Ok(other?),
        }
        self.deps.connections.restarted(session.id);
        let restarted = self.deps.engine.restart_with_viewport(browser, viewport).await;
        // Those that came in between ended with the old browser, and are told so.
        self.deps.connections.restarted(session.id);
        Ok(restarted?)
    }

    /// A PNG of the session's display or a part of it. `region` says which part, given the display's size.
    ///
    /// # Errors
    /// See [`UseSessionError`].
    pub async fn screenshot(
        &self,
        session: &Session,
        region: impl FnOnce(Viewport) -> Result<Option<Region>, Bad> + Send,
    ) -> Result<Vec<u8>, UseSessionError> {
        let region = region(session.shape.viewport).map_err(|bad| InvalidInput::of("region", bad))?;
        let _in_use = self.deps.activity.begin(session.id);
        Ok(self.deps.engine.screenshot(browser_of(session)?, region).await?)
    }

    /// Ends the project's session at its caller's wish. Returns once nothing of its sandbox is left.
    ///
    /// # Errors
    /// See [`EndSessionError`].
    pub async fn delete(&self, scope: &Scope, which: &str) -> Result<(), EndSessionError> {
        let found = self.deps.sessions.find_in_project(scope.project_id(), &IdOrName::parse(which), false).await?;
        let session = found.ok_or_else(|| EndSessionError::NotFound(which.to_owned()))?;
        self.end(session.id, SessionEvent::Delete).await.map(|_| ()).map_err(|error| match error {
            EndSessionError::Refused(_) => EndSessionError::NotFound(which.to_owned()),
            other => other,
        })
    }

    /// Ends a session for the reason of `event`, with its sandbox and everything that is open into it.
    ///
    /// # Errors
    /// See [`EndSessionError`].
    pub async fn end(&self, id: SessionId, event: SessionEvent) -> Result<Session, EndSessionError> {
        // Ends: every lost race means that the session moved on, and from its end `on` refuses.
        loop {
            let found = self.deps.sessions.find(id).await?;
            let current = found.ok_or_else(|| EndSessionError::NotFound(id.to_string()))?;
            let next = current.on(event, self.deps.clock.now())?;
            if self.deps.sessions.end(&current, &next).await? == Replaced::LostRace {
                continue;
            }
            self.clear_away(&next).await;
            return Ok(next);
        }
    }

    async fn end_quietly(&self, session: &Session, event: SessionEvent) {
        // What fails here, the node's housekeeping finds: see `check`.
        let _ = self.end(session.id, event).await;
    }

    /// After a session was stored as ended: its connections, its browser, its place in the pool.
    async fn clear_away(&self, ended: &Session) {
        let SessionState::Ended(reason) = ended.state else { return };
        self.deps.activity.forget(ended.id);
        self.deps.connections.close(ended.id, reason);
        if let Some(pool) = &ended.pool {
            self.deps.pools.wake(pool.id);
            if ended.leaves_its_browser_untouched() {
                return;
            }
        }
        if let Some(browser) = ended.browser.filter(|_| ended.node == self.deps.node) {
            self.bury(browser).await;
        }
    }

    /// Ends the sandbox of a browser that is marked as ending, and forgets it. What fails is done again by the node's
    /// housekeeping.
    pub async fn bury(&self, browser: BrowserId) {
        if self.deps.engine.end(browser).await.is_ok() {
            self.deps.proxies.forget(browser);
            let _ = self.deps.browsers.forget(browser).await;
        }
    }

    /// As [`bury`](Self::bury), if this node runs the browser: another's is buried by its own node's housekeeping.
    pub(crate) async fn bury_own(&self, browser: BrowserId) -> Result<(), StoreError> {
        if self.deps.browsers.find(browser).await?.is_some_and(|row| row.node == self.deps.node) {
            self.bury(browser).await;
        }
        Ok(())
    }

    /// Buries the browsers of this node that are marked as ending: those of deleted pools, those that another node
    /// marked, and those whose burial failed before. For the node's housekeeping.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn clear_remains(&self) -> Result<(), StoreError> {
        for browser in self.deps.browsers.of_node(self.deps.node).await? {
            if browser.state == BrowserState::Ending {
                self.bury(browser.id).await;
            }
        }
        Ok(())
    }

    /// A browser of this node ended by itself.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn browser_lost(&self, browser: BrowserId, event: SessionEvent) -> Result<(), StoreError> {
        let pool = self.deps.browsers.find(browser).await?.and_then(|row| row.pool);
        // Discarded before its session is looked for: an idle one could be leased between two questions in the other
        // order, and the row of a leased browser must stay until its session has ended.
        if !self.deps.browsers.discard(browser).await?
            && let Some(session) = self.deps.sessions.of_browser(browser).await?
        {
            return match self.end(session.id, event).await {
                Err(EndSessionError::Store(error)) => Err(error),
                _ => Ok(()),
            };
        }
        self.bury(browser).await;
        if let Some(pool) = pool {
            self.deps.pools.wake(pool);
        }
        Ok(())
    }

    /// Ends the sessions of this node that were idle for their timeout, and tells the store which were in use.
    ///
    /// # Errors
    /// The store's failure; what is not done is done at the next call.
    pub async fn sweep_idle(&self) -> Result<(), StoreError> {
        let news = self.deps.activity.news();
        if !news.is_empty() {
            self.deps.sessions.note_activity(&news).await?;
        }
        for id in self.deps.activity.idle() {
            match self.end(id, SessionEvent::IdleTimeout).await {
                Err(EndSessionError::Store(error)) => return Err(error),
                Err(_) => self.deps.activity.forget(id),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Finds the sessions of this node that nobody here knows of, because an answer of the store was lost: active ones
    /// are watched from now on and end with their idle timeout, reservations that never came to be end.
    ///
    /// # Errors
    /// The store's failure; what is not done is done at the next call.
    pub async fn check(&self) -> Result<(), StoreError> {
        let long_ago = self.deps.clock.now() - LONGEST_START;
        for session in self.deps.sessions.of_node(self.deps.node).await? {
            match session.state {
                SessionState::Active => self.deps.activity.watch(&session),
                SessionState::Starting if session.created_at < long_ago => {
                    self.end_quietly(&session, SessionEvent::StartFailed).await;
                }
                SessionState::Starting | SessionState::Ended(_) => {}
            }
        }
        Ok(())
    }

    /// Takes up again what an earlier life of this node left: sessions whose browser is in `alive` go on with their
    /// idle clocks, the others end as crashed; reservations without a browser end. Returns the browsers to keep.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn adopt(&self, alive: &[BrowserId]) -> Result<Vec<BrowserId>, StoreError> {
        let mut kept = Vec::new();
        for session in self.deps.sessions.of_node(self.deps.node).await? {
            let living = session.browser.filter(|id| session.is_active() && alive.contains(id));
            if let Some(browser) = living {
                self.deps.activity.watch(&session);
                kept.push(browser);
                continue;
            }
            let event = if session.is_active() { SessionEvent::Crash } else { SessionEvent::StartFailed };
            if let Err(EndSessionError::Store(error)) = self.end(session.id, event).await {
                return Err(error);
            }
        }
        for browser in self.deps.browsers.of_node(self.deps.node).await? {
            match browser.state {
                BrowserState::Idle if alive.contains(&browser.id) => kept.push(browser.id),
                BrowserState::Leased if kept.contains(&browser.id) => {}
                _ => self.bury(browser.id).await,
            }
        }
        Ok(kept)
    }

    /// Ends, in the store, the sessions of a node that is gone.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn mourn(&self, node: NodeId) -> Result<(), StoreError> {
        for session in self.deps.sessions.of_node(node).await? {
            if let Err(EndSessionError::Store(error)) = self.end(session.id, SessionEvent::NodeLost).await {
                return Err(error);
            }
        }
        for browser in self.deps.browsers.of_node(node).await? {
            self.deps.browsers.forget(browser.id).await?;
        }
        Ok(())
    }
}

/// What browser a session of that shape needs: any can be sent through its proxy.
fn bare(shape: &Shape) -> Shape {
    Shape { proxy: None, ..shape.clone() }
}

/// What the session's browser is told when its caller gets it.
pub(crate) fn hand_out(session: &Session) -> HandOut {
    HandOut { start_url: session.start_url.clone(), abandoned_after_seconds: session.timeout_seconds }
}

fn browser_of(session: &Session) -> Result<BrowserId, UseSessionError> {
    session.browser.ok_or_else(|| UseSessionError::NotFound(session.id.to_string()))
}
