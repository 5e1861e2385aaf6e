//! Creates sessions on a spare browser or on a newly started one.

use super::super::input::no_invocation;
use super::super::{Created, NewSession, Session, SessionEvent, SessionRequest, SessionState};
use super::errors::name_taken;
use super::{CreateSessionError, EndSessionError, Sessions, hand_out};
use crate::access::Scope;
use crate::browser::{Browser, BrowserState, EngineError, EngineFault, Launch, Shape, StartUrl};
use crate::engine::{Capability, check};
use crate::extension::resolve;
use crate::field::InvalidInput;
use crate::ids::{BrowserId, SessionId};
use crate::store_error::{Replaced, StoreError};

/// The number of spare browsers that are tried before a new one is started.
const MAX_SPARES_TRIED: usize = 2;
/// The number of liveness probes after which a newly started browser counts as failed.
const MAX_NEW_BROWSER_PROBES: usize = 10;

impl Sessions {
    /// Creates a session on demand, ready to use: on a spare browser of its shape, else on a newly started one.
    ///
    /// The future must run to its end. If it is dropped, its reservation remains until [`check`](Self::check) or the
    /// next start of the node ends it.
    ///
    /// # Errors
    /// See [`CreateSessionError`]; at most an ended session remains then.
    pub async fn create(&self, scope: &Scope, request: SessionRequest) -> Result<Session, CreateSessionError> {
        let request = self.checked(scope, request).await?;
        for _ in 0..MAX_SPARES_TRIED {
            let Some(browser) = self.deps.spares.take(&spare_shape(&request.shape)) else { break };
            match self.create_on_spare(scope, &request, browser).await {
                Err(CreateSessionError::Specific(_)) => {}
                done => return done,
            }
        }
        self.create_on_new_browser(SessionId::mint(self.deps.ids.as_ref()), scope, &request).await
    }

    /// Like [`create`](Self::create), for a login: of an engine that is able to, never on a spare browser, and with an id
    /// that the caller has stored to find the session again.
    ///
    /// # Errors
    /// See [`CreateSessionError`]; only the ended session remains then.
    pub async fn create_as(
        &self,
        id: SessionId,
        scope: &Scope,
        request: SessionRequest,
    ) -> Result<Session, CreateSessionError> {
        let engine = self.login_engine().map_err(|refused| refused.of("engine"))?.to_string();
        let request = SessionRequest { engine: Some(engine), ..request };
        let request = NewSession { for_login: true, ..self.checked(scope, request).await? };
        self.create_on_new_browser(id, scope, &request).await
    }

    /// Checks the request and resolves the resources that it names.
    async fn checked(&self, scope: &Scope, mut request: SessionRequest) -> Result<NewSession, CreateSessionError> {
        scope.writable()?;
        self.find_destination(scope, &mut request.telemetry).await?;
        let mut request = request.parse(self.engines())?;
        self.deps.installation.check_region(request.region)?;
        let memory = &self.deps.installation.memory;
        request.shape.memory = match request.memory {
            Some(requested) => Some(memory.reserve(requested)?),
            None => self.has_memory_limit(&request.shape).then(|| memory.reserve_default()),
        };
        request.shape.extensions =
            resolve::<CreateSessionError>(&*self.deps.extensions, scope, &request.extensions).await?;
        if let Some(selected) = &request.proxy {
            request.shape.proxy = self.deps.proxies.select::<CreateSessionError>(scope, selected).await?;
        }
        if let Some(requested) = &request.network {
            let resolved = self.deps.proxies.resolve_network::<CreateSessionError>(scope, requested);
            request.shape.network = resolved.await?;
        }
        check_start_url(&request.shape, request.start_url.as_ref())?;
        if let Some(requested) = &request.profile {
            request.shape.profile = Some(self.profile::<CreateSessionError>(scope, requested).await?);
        }
        Ok(request)
    }

    /// Returns whether the browsers of a shape have a memory limit.
    pub(crate) fn has_memory_limit(&self, shape: &Shape) -> bool {
        check(self.engines(), &shape.engine, Capability::Memory).is_ok()
    }

    fn draft(&self, id: SessionId, scope: &Scope, request: &NewSession) -> Session {
        let now = self.deps.clock.now();
        Session {
            id,
            project: scope.project_id(),
            node: self.deps.node,
            browser: None,
            pool: None,
            shape: request.shape.clone(),
            name: request.name.clone(),
            timeout_seconds: request.timeout_seconds,
            start_url: request.start_url.clone(),
            tags: request.tags.clone(),
            telemetry: request.telemetry.clone(),
            invocation: request.invocation,
            for_login: request.for_login,
            state: SessionState::Starting,
            created_at: now,
            last_active_at: now,
            ended_at: None,
        }
    }

    async fn create_on_spare(
        &self,
        scope: &Scope,
        request: &NewSession,
        browser: BrowserId,
    ) -> Result<Session, CreateSessionError> {
        let draft = self.draft(SessionId::mint(self.deps.ids.as_ref()), scope, request);
        let session = Session { state: SessionState::Active, browser: Some(browser), ..draft };
        let row = self.leased_browser(&session, browser);
        match self.reserve(scope, &session, Some(row)).await {
            Ok(()) => {}
            Err(CreateSessionError::Store(error)) => {
                // The session may have been stored; a spare browser with a leased row must not be used again.
                let error = self.undo(&session, error).await;
                self.clean_up(browser).await;
                return Err(error.into());
            }
            Err(refused) => {
                self.deps.spares.put_back(&spare_shape(&request.shape), browser);
                return Err(refused);
            }
        }
        self.deps.activity.watch(&session);
        let handed = async {
            if session.shape.directs_traffic() {
                self.deps.proxies.send(browser, &session.shape).await?;
            }
            self.begin_capture(&session).await?;
            self.deps.engine.hand_out(browser, hand_out(&session)).await
        };
        if let Err(error) = handed.await {
            self.end_quietly(&session, SessionEvent::StartFailed).await;
            return Err(error.into());
        }
        Ok(session)
    }

    async fn create_on_new_browser(
        &self,
        id: SessionId,
        scope: &Scope,
        request: &NewSession,
    ) -> Result<Session, CreateSessionError> {
        let draft = self.draft(id, scope, request);
        match self.reserve(scope, &draft, None).await {
            Ok(()) => {}
            Err(CreateSessionError::Store(error)) => {
                // The session may have been stored.
                return Err(self.undo(&draft, error).await.into());
            }
            Err(refused) => return Err(refused),
        }
        let id = BrowserId::mint(self.deps.ids.as_ref());
        let started = async {
            let launch = Launch::new(id, request.shape.clone(), request.timeout_seconds);
            let launch = Launch { capabilities: request.capabilities.clone(), ..launch };
            if request.shape.directs_traffic() {
                self.deps.proxies.send(id, &request.shape).await.map_err(EngineError::from)?;
            }
            self.deps.engine.start(&launch).await?;
            self.begin_capture(&Session { browser: Some(id), ..draft.clone() }).await?;
            let active = draft
                .on(SessionEvent::Ready(id), self.deps.clock.now())
                .unwrap_or_else(|_| unreachable!("a starting session can become active"));
            let row = self.leased_browser(&active, id);
            match self.deps.sessions.activate(&draft, &active, &row).await? {
                Replaced::Yes => {}
                Replaced::LostRace => return Err(EngineError::NotRunning(id).into()),
            }
            self.deps.activity.watch(&active);
            // A loss of the browser ends this session from now on. The probe must find an earlier loss.
            self.hand_out_new_browser(id, &active).await?;
            Ok(active)
        }
        .await;
        let Err(error) = started else { return started };
        let error = match error {
            CreateSessionError::Store(error) => self.undo(&draft, error).await.into(),
            other => {
                self.end_quietly(&draft, SessionEvent::StartFailed).await;
                other
            }
        };
        let _ = self.deps.engine.end(id).await;
        self.deps.proxies.forget(id);
        Err(error)
    }

    /// Probes and hands out the new browser. A slow browser is probed again, because there is no other one, unless it
    /// may have begun to open a URL.
    async fn hand_out_new_browser(&self, id: BrowserId, active: &Session) -> Result<(), EngineError> {
        for _ in 1..MAX_NEW_BROWSER_PROBES {
            match self.deps.engine.hand_out(id, hand_out(active)).await {
                Err(EngineError::Timeout { seconds }) if active.start_url.is_some() => {
                    let message = format!("it did not answer within {seconds} s when it was given its start URL");
                    return Err(EngineError::Lost { fault: EngineFault::BrowserHung, message });
                }
                Err(EngineError::Timeout { .. } | EngineError::Failed { fault: EngineFault::BrowserHung, .. })
                    if active.start_url.is_none() => {}
                done => return done,
            }
        }
        self.deps.engine.hand_out(id, hand_out(active)).await
    }

    /// Ends a session that may have been stored although the store failed. The returned error shows that nothing was
    /// done if that is certain.
    async fn undo(&self, session: &Session, error: StoreError) -> StoreError {
        match self.end(session.id, SessionEvent::StartFailed).await {
            Ok(_) | Err(EndSessionError::NotFound(_)) => error.with_maybe_done(false),
            // The node's housekeeping ends the session; see `check`.
            Err(_) => error,
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
            Created::ProjectGone => Err(CreateSessionError::ProjectDeleted),
            Created::NoInvocation => Err(InvalidInput::of("invocation_id", no_invocation()).into()),
            Created::NameTaken => match &session.name {
                Some(name) => Err(name_taken(name).into()),
                None => unreachable!("a session without a name takes none"),
            },
        }
    }
}

/// Returns the shape of a fitting spare browser. Any browser can use any proxy and any network configuration.
fn spare_shape(shape: &Shape) -> Shape {
    Shape { proxy: None, network: None, ..shape.clone() }
}

/// Checks that the network configuration of a browser allows the URL that it opens first.
///
/// # Errors
/// `not_allowed` for `start_url`.
pub(crate) fn check_start_url(shape: &Shape, url: Option<&StartUrl>) -> Result<(), InvalidInput> {
    match (&shape.network, url) {
        (Some(network), Some(url)) => network.check_start_url(url).map_err(|bad| InvalidInput::of("start_url", bad)),
        _ => Ok(()),
    }
}
