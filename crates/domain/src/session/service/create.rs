//! A session comes to be: on a spare browser, or on one that is started for it.

use super::super::input::no_invocation;
use super::super::{CreateSession, Created, Session, SessionEvent, SessionRequest, SessionState};
use super::{CreateSessionError, EndSessionError, Sessions, hand_out};
use crate::access::Scope;
use crate::browser::{Browser, BrowserState, EngineError, EngineFault, Launch, Shape};
use crate::extension::resolve;
use crate::field::InvalidInput;
use crate::ids::{BrowserId, SessionId};
use crate::store_error::{Replaced, StoreError};

/// How often a spare that does not answer is replaced by the next before one is started afresh.
const SPARES_TRIED: usize = 2;
/// How often a browser that was started for its session is asked before it is taken for dead.
const FRESH_ASKED: usize = 10;

impl Sessions {
    /// Creates a session on demand, ready to use: from a spare browser of its shape, else from one started for it.
    ///
    /// Must run to its end: a caller that drops it midway leaves a reservation that only the node's next start clears.
    ///
    /// # Errors
    /// See [`CreateSessionError`]; then nothing is left of it.
    pub async fn create(&self, scope: &Scope, wish: CreateSession) -> Result<Session, CreateSessionError> {
        let wish = self.checked(scope, wish).await?;
        for _ in 0..SPARES_TRIED {
            let Some(browser) = self.deps.spares.take(&bare(&wish.shape)) else { break };
            match self.create_on_spare(scope, &wish, browser).await {
                Err(CreateSessionError::Engine(_)) => {}
                done => return done,
            }
        }
        self.create_afresh(SessionId::mint(self.deps.ids.as_ref()), scope, &wish).await
    }

    /// As [`create`](Self::create), for a login: never from a spare, under an identifier that its caller has noted before, to find it again.
    ///
    /// # Errors
    /// See [`CreateSessionError`]; then nothing is left of it but its end.
    pub async fn create_as(
        &self,
        id: SessionId,
        scope: &Scope,
        wish: CreateSession,
    ) -> Result<Session, CreateSessionError> {
        let wish = SessionRequest { for_login: true, ..self.checked(scope, wish).await? };
        self.create_afresh(id, scope, &wish).await
    }

    /// A wish with what it names.
    async fn checked(&self, scope: &Scope, wish: CreateSession) -> Result<SessionRequest, CreateSessionError> {
        scope.writable()?;
        let mut wish = wish.parse()?;
        wish.shape.extensions =
            resolve::<CreateSessionError>(&*self.deps.extensions, scope.project_id(), &wish.extensions).await?;
        if let Some(asked) = &wish.proxy {
            wish.shape.proxy = Some(self.deps.proxies.resolve::<CreateSessionError>(scope.project_id(), asked).await?);
        }
        if let Some(asked) = &wish.profile {
            wish.shape.profile = Some(self.profile::<CreateSessionError>(scope, asked).await?);
        }
        Ok(wish)
    }

    fn draft(&self, id: SessionId, scope: &Scope, wish: &SessionRequest) -> Session {
        let now = self.deps.clock.now();
        Session {
            id,
            project: scope.project_id(),
            node: self.deps.node,
            browser: None,
            pool: None,
            shape: wish.shape.clone(),
            name: wish.name.clone(),
            timeout_seconds: wish.timeout_seconds,
            start_url: wish.start_url.clone(),
            tags: wish.tags.clone(),
            telemetry: wish.telemetry.clone(),
            invocation: wish.invocation,
            for_login: wish.for_login,
            state: SessionState::Starting,
            created_at: now,
            last_active_at: now,
            ended_at: None,
        }
    }

    async fn create_on_spare(
        &self,
        scope: &Scope,
        wish: &SessionRequest,
        browser: BrowserId,
    ) -> Result<Session, CreateSessionError> {
        let draft = self.draft(SessionId::mint(self.deps.ids.as_ref()), scope, wish);
        let session = Session { state: SessionState::Active, browser: Some(browser), ..draft };
        let row = self.leased_browser(&session, browser);
        match self.reserve(scope, &session, Some(row)).await {
            Ok(()) => {}
            Err(CreateSessionError::Store(error)) => {
                // It may be stored all the same; a spare that a row calls leased must not be taken again.
                let error = self.undo(&session, error).await;
                self.clean_up(browser).await;
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
            self.begin_capture(&session).await?;
            self.deps.engine.hand_out(browser, hand_out(&session)).await
        };
        if let Err(error) = handed.await {
            self.end_quietly(&session, SessionEvent::StartFailed).await;
            return Err(error.into());
        }
        Ok(session)
    }

    async fn create_afresh(
        &self,
        id: SessionId,
        scope: &Scope,
        wish: &SessionRequest,
    ) -> Result<Session, CreateSessionError> {
        let draft = self.draft(id, scope, wish);
        match self.reserve(scope, &draft, None).await {
            Ok(()) => {}
            Err(CreateSessionError::Store(error)) => {
                // It may be reserved all the same.
                return Err(self.undo(&draft, error).await.into());
            }
            Err(refused) => return Err(refused),
        }
        let id = BrowserId::mint(self.deps.ids.as_ref());
        let started = async {
            let launch = Launch { id, shape: wish.shape.clone(), abandoned_after_seconds: wish.timeout_seconds };
            if wish.shape.proxy.is_some() {
                self.deps.proxies.send(id, wish.shape.proxy).await.map_err(EngineError::from)?;
            }
            self.deps.engine.start(&launch).await?;
            self.begin_capture(&Session { browser: Some(id), ..draft.clone() }).await?;
            let active = draft
                .on(SessionEvent::Ready(id), self.deps.clock.now())
                .unwrap_or_else(|_| unreachable!("a starting session can become active"));
            let row = self.leased_browser(&active, id);
            match self.deps.sessions.activate(&draft, &active, &row).await? {
                Replaced::Yes => {}
                Replaced::LostRace => return Err(CreateSessionError::Engine(EngineError::NotRunning(id))),
            }
            self.deps.activity.watch(&active);
            // Whoever minds the browsers knows it as the session's from now on; what became of it before, nobody told.
            self.hand_out_fresh(id, &active).await?;
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

    /// The browser that was started for this session answers now. There is no other one to hand out instead, so one that is slow is asked
    /// again, unless it may have begun to open an address.
    async fn hand_out_fresh(&self, id: BrowserId, active: &Session) -> Result<(), EngineError> {
        for _ in 1..FRESH_ASKED {
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

    /// Ends what may have been stored although the store failed. Nothing was done if that is sure.
    async fn undo(&self, session: &Session, error: StoreError) -> StoreError {
        match self.end(session.id, SessionEvent::StartFailed).await {
            Ok(_) | Err(EndSessionError::NotFound(_)) => error.undone(),
            // The node's housekeeping finds it: see `check`.
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
            Created::ProjectGone => Err(CreateSessionError::ProjectGone),
            Created::NoInvocation => Err(InvalidInput::of("invocation_id", no_invocation()).into()),
            Created::NameTaken => Err(match &session.name {
                Some(name) => CreateSessionError::NameTaken(name.clone()),
                None => unreachable!("a session without a name takes none"),
            }),
        }
    }
}

/// What browser a session of that shape needs: any can be sent through its proxy.
fn bare(shape: &Shape) -> Shape {
    Shape { proxy: None, ..shape.clone() }
}
