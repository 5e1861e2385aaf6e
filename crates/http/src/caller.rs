//! Who calls and what they may touch. A handler reaches the use cases only through what stands here, so none can be
//! written that forgets to ask.

use std::{sync::Arc, time::Duration};

use actix_web::{
    FromRequest, HttpRequest, dev,
    http::{
        StatusCode,
        header::{self, HeaderMap},
    },
    web::{Data, Payload},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use casement_domain::{
    NotFound, OrganizationId, SessionId, UserId,
    access::Scope,
    api_key::{AuthenticateError, Caller},
    audit::PreparedRecord,
    project::Project,
    session::Session,
};
use futures_util::{FutureExt as _, future::LocalBoxFuture};
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use crate::{
    audit::{self, Identity, prepared_record, request_id},
    body,
    error::{ApiError, Code},
    multipart::Form,
    query::{Query, decoded},
    relay::{CloseReason, DeliveryReceipt, EndSignal},
    state::{Api, Services},
    telemetry,
    token::Permission,
    ui,
};

const PROJECT: &str = "x-kernel-project-id";
/// How long what runs inside a session may go on when the server goes away.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// A caller with an API key, in its project.
pub(crate) struct Authorized {
    scope: Scope,
    user: UserId,
    call: Call,
}

/// A caller with the organization's own key.
pub(crate) struct OrganizationCaller {
    call: Call,
    caller: Caller,
}

/// A request with its body, not read yet.
struct Call {
    api: Data<Api>,
    request: HttpRequest,
    payload: Payload,
}

impl Call {
    fn take(request: &HttpRequest, payload: &mut dev::Payload) -> Result<Self, ApiError> {
        let api = request.app_data::<Data<Api>>().cloned();
        let api = api.ok_or_else(|| ApiError::internal("the server was put together without its state"))?;
        let payload = Payload::from_request(request, payload).now_or_never().and_then(Result::ok);
        let payload = payload.ok_or_else(|| ApiError::internal("the body was taken before"))?;
        Ok(Self { api, request: request.clone(), payload })
    }
}

/// The key's text.
///
/// # Errors
/// `unauthorized`, one answer for everything that is no bearer credential.
fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut given = headers.get_all(header::AUTHORIZATION);
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err(ApiError::unauthorized(headers.contains_key(header::AUTHORIZATION)));
    };
    let refused = || ApiError::unauthorized(true);
    let (scheme, key) = value.to_str().map_err(|_| refused())?.split_once(' ').ok_or_else(refused)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(refused()) }
}

async fn authenticate(api: &Api, request: &HttpRequest) -> Result<Caller, ApiError> {
    if ui::is_ui(request) {
        let caller = ui::authenticate(api, request).await?;
        Identity::key(request, caller.key, caller.project);
        return Ok(caller);
    }
    let text = bearer(request.headers())?;
    match api.services.api_keys.authenticate(text).await {
        Ok(caller) => {
            Identity::key(request, caller.key, caller.project);
            if caller.deployed {
                Identity::mark_app(request);
            }
            Ok(caller)
        }
        Err(error) => {
            // Where nobody could look, nobody was refused.
            if matches!(error, AuthenticateError::Refused) {
                Identity::refused(request, text);
            }
            Err(error.into())
        }
    }
}

/// Counts the call of a key. What the key does not reach is told before that it calls too often, and counts as well.
fn counted<T>(api: &Api, caller: &Caller, reached: Result<T, ApiError>) -> Result<T, ApiError> {
    let admitted = api.rate.admit(caller.key);
    let reached = reached?;
    admitted.map(|()| reached)
}

async fn scope(api: &Api, request: &HttpRequest) -> Result<(Scope, UserId), ApiError> {
    let caller = authenticate(api, request).await?;
    let scope = counted(api, &caller, project_of(api, request, &caller).await)?;
    Ok((scope, caller.user))
}

async fn project_of(api: &Api, request: &HttpRequest, caller: &Caller) -> Result<Scope, ApiError> {
    let mut named = request.headers().get_all(PROJECT);
    let project = match (named.next().map(|value| value.to_str()), named.next()) {
        (None, _) => None,
        (Some(Ok(text)), None) => Some(text),
        _ => return Err(casement_domain::access::AccessError::BadProject.into()),
    };
    let scope = api.services.access.resolve(caller, project).await?;
    Identity::key(request, caller.key, Some(scope.project_id()));
    Ok(scope)
}

impl FromRequest for Authorized {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let call = Call::take(request, payload);
        Box::pin(async move {
            let DeferredAudit(caller) = DeferredAudit::admit(call?).await?;
            audit::begin(&caller.call.request).await?;
            Ok(caller)
        })
    }
}

/// As [`Authorized`], for a handler that sees to it by itself that its call is recorded before it changes something.
pub(crate) struct DeferredAudit(pub(crate) Authorized);

impl DeferredAudit {
    async fn admit(call: Call) -> Result<Self, ApiError> {
        let (scope, user) = scope(&call.api, &call.request).await?;
        Ok(Self(Authorized { scope, user, call }))
    }
}

impl FromRequest for DeferredAudit {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let call = Call::take(request, payload);
        Box::pin(async move { Self::admit(call?).await })
    }
}

impl FromRequest for OrganizationCaller {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let call = Call::take(request, payload);
        Box::pin(async move {
            let Member { call, caller } = Member::known(call?).await?;
            counted(&call.api, &caller, whole(&caller))?;
            audit::begin(&call.request).await?;
            Ok(Self { call, caller })
        })
    }
}

/// A caller with any good key: of the organization, or of one project.
pub(crate) struct Member {
    call: Call,
    caller: Caller,
}

impl FromRequest for Member {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let call = Call::take(request, payload);
        Box::pin(async move {
            let member = Self::known(call?).await?;
            counted(&member.call.api, &member.caller, Ok(()))?;
            audit::begin(&member.call.request).await?;
            Ok(member)
        })
    }
}

impl Member {
    /// Whoever has a good key, however often they call.
    async fn known(call: Call) -> Result<Self, ApiError> {
        let caller = authenticate(&call.api, &call.request).await?;
        Ok(Self { call, caller })
    }

    pub(crate) fn services(&self) -> &Services {
        &self.call.api.services
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// A segment of the path, decoded.
    ///
    /// # Errors
    /// `bad_request`.
    pub(crate) fn path(&self, name: &str) -> Result<String, ApiError> {
        segment(&self.call.request, name)
    }

    /// What a key of one project may read of its organization: that project alone. To it all others are the same, those that there are
    /// and those that there are not.
    ///
    /// # Errors
    /// `forbidden` for such a key; what `found` says for a key of the organization.
    pub(crate) fn reads(&self, found: Result<Project, ApiError>) -> Result<Project, ApiError> {
        match (self.caller.project, found) {
            (Some(own), Ok(project)) if own == project.id => Ok(project),
            (None, found) => found,
            (Some(_), Err(error)) if error.code() != Code::NotFound => Err(error),
            (Some(_), _) => Err(ApiError::new(Code::Forbidden, "the key does not open this project")),
        }
    }
}

/// # Errors
/// `forbidden` for a key of one project.
fn whole(caller: &Caller) -> Result<(), ApiError> {
    match caller.project {
        Some(_) => Err(ApiError::new(Code::Forbidden, "this needs a key of the whole organization")),
        None => Ok(()),
    }
}

impl OrganizationCaller {
    /// A segment of the path, decoded.
    ///
    /// # Errors
    /// `bad_request`.
    pub(crate) fn path(&self, name: &str) -> Result<String, ApiError> {
        segment(&self.call.request, name)
    }

    /// The JSON body.
    ///
    /// # Errors
    /// See [`body::read`] and [`json::read`].
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        body::object(&self.call.request, &mut self.call.payload).await
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn services(&self) -> &Services {
        &self.call.api.services
    }

    pub(crate) fn organization(&self) -> OrganizationId {
        self.caller.organization
    }

    /// # Errors
    /// `bad_request`.
    pub(crate) fn query(&self) -> Result<Query, ApiError> {
        Query::parse(self.call.request.query_string())
    }

    /// How the request is called in the log.
    pub(crate) fn request_id(&self) -> String {
        request_id(&self.call.request)
    }
}

impl Authorized {
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Who made the caller's key.
    pub(crate) fn user(&self) -> UserId {
        self.user
    }

    /// Says whether the answer arrives.
    pub(crate) fn receipt(&self) -> DeliveryReceipt {
        self.call.request.conn_data::<DeliveryReceipt>().cloned().unwrap_or_default()
    }

    /// Notes which session the call is about.
    pub(crate) fn about(&self, session: &Session) {
        telemetry::about(&self.call.request, session.id);
    }

    pub(crate) fn services(&self) -> &Services {
        &self.call.api.services
    }

    /// The call's audit record if it is answered with `status` right now, see [`prepared_record`].
    pub(crate) fn early_record(&self, status: StatusCode) -> Option<Arc<PreparedRecord>> {
        prepared_record(&self.call.request, status)
    }

    /// What outlives the call.
    pub(crate) fn into_api(self) -> Data<Api> {
        self.call.api
    }

    pub(crate) fn api(&self) -> &Api {
        &self.call.api
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.call.request.headers()
    }

    /// A segment of the path, decoded.
    ///
    /// # Errors
    /// `bad_request`.
    pub(crate) fn path(&self, name: &str) -> Result<String, ApiError> {
        segment(&self.call.request, name)
    }

    /// # Errors
    /// `bad_request`.
    pub(crate) fn query(&self) -> Result<Query, ApiError> {
        Query::parse(self.call.request.query_string())
    }

    /// The body.
    ///
    /// # Errors
    /// See [`body::read`] and [`json::read`].
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        body::object(&self.call.request, &mut self.call.payload).await
    }

    /// The body as a form: its texts, and then its files as they come.
    ///
    /// # Errors
    /// See [`Form::read`].
    pub(crate) async fn form(&mut self, longest: u64, files: &[&str]) -> Result<Form, ApiError> {
        let request = &self.call.request;
        let nothing = Payload::from_request(request, &mut dev::Payload::None).now_or_never();
        let nothing = nothing.and_then(Result::ok).ok_or_else(|| ApiError::internal("no body cannot be read"))?;
        Form::read(request, std::mem::replace(&mut self.call.payload, nothing), longest, files).await
    }

    /// Does `work` to its end, whether or not the caller still listens: a change that is dropped midway leaves what
    /// somebody else has to clear away.
    ///
    /// # Errors
    /// What `work` answers.
    pub(crate) async fn finish<F, W, T, E>(&self, work: F) -> Result<T, ApiError>
    where
        F: FnOnce(Arc<Services>, Scope) -> W,
        W: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Into<ApiError> + Send + 'static,
    {
        let work = work(Arc::clone(&self.call.api.services), self.scope.clone()).in_current_span();
        self.services().runtime.spawn(work).await.map_err(ApiError::internal)?.map_err(Into::into)
    }

    /// The same on the thread that the call came to, so that none wakes another one: for work that does little but wait.
    ///
    /// # Errors
    /// What `work` answers.
    pub(crate) async fn finish_here<F, W, T, E>(&self, work: F) -> Result<T, ApiError>
    where
        F: FnOnce(Arc<Services>, Scope) -> W,
        W: Future<Output = Result<T, E>> + 'static,
        T: 'static,
        E: Into<ApiError> + 'static,
    {
        let work = work(Arc::clone(&self.call.api.services), self.scope.clone()).in_current_span();
        actix_web::rt::spawn(work).await.map_err(ApiError::internal)?.map_err(Into::into)
    }
}

fn segment(request: &HttpRequest, name: &str) -> Result<String, ApiError> {
    // The router has decoded most of it already, and put something else for what is no UTF-8.
    decoded(request.uri().path())?;
    let text = decoded(request.match_info().get(name).unwrap_or_default())?;
    // The database takes no NUL. No name and no identifier holds the substitute character, so it finds nothing
    // either, and the answer is the one to any unknown name.
    Ok(text.replace('\0', "\u{1a}"))
}

/// The identifier in the path, or `not_found`: what has no identifier's shape names nothing.
///
/// # Errors
/// `not_found`.
pub(crate) fn session_id(text: &str) -> Result<SessionId, ApiError> {
    text.parse().map_err(|_| no_session(text))
}

pub(crate) fn no_session(text: &str) -> ApiError {
    NotFound::new("browser session", text).into()
}

/// A caller who may use one active session directly: with the session's token, or with a key of its project.
pub(crate) struct SessionHolder {
    pub(crate) session: Session,
    pub(crate) permission: Permission,
    pub(crate) request: HttpRequest,
    pub(crate) payload: Payload,
    pub(crate) end: EndSignal,
    pub(crate) registered: crate::connections::Registration,
    /// Whether the caller has shown a key of the whole organization.
    organization_wide: bool,
    api: Data<Api>,
}

/// Of which sessions something is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Active,
    /// Of those that have ended, too, for whoever may look: a key, or a token that only lets watch. All other tokens end with their
    /// session.
    Any,
}

/// Which credentials a direct route takes besides the token in its query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AcceptedCredentials {
    Nothing,
    Key,
    KeyOrPassword,
}

/// What opens a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PresentedCredential {
    Token,
    ProjectKey,
    OrganizationKey,
}

impl SessionHolder {
    async fn admit(call: Call, also: AcceptedCredentials, of: Of) -> Result<Self, ApiError> {
        let Call { api, request, payload } = call;
        let text = segment(&request, "session_id")?;
        let (id, permission, shown) = Self::credential(&api, &request, &text, also, of).await?;
        let by_token = shown == PresentedCredential::Token;
        // First registered, then looked up: an end in between is told by the signal.
        let (end, registered) = api.services.connections.register(id);
        let session = match of {
            Of::Any if !by_token || permission == Permission::View => api.services.sessions.lasting(id).await?,
            Of::Any | Of::Active => api.services.sessions.active(id).await?,
        };
        tracing::Span::current().record("session", tracing::field::display(id));
        telemetry::about(&request, id);
        if by_token {
            Identity::token(&request, session.project);
        }
        audit::begin(&request).await?;
        let organization_wide = shown == PresentedCredential::OrganizationKey;
        Ok(Self { session, permission, request, payload, end, registered, organization_wide, api })
    }

    /// By a key of its project, where the path names the session under `/browsers`.
    async fn by_key(call: Call, of: Of) -> Result<Self, ApiError> {
        let Call { api, request, payload } = call;
        let (scope, _) = scope(&api, &request).await?;
        let id = session_id(&segment(&request, "id")?)?;
        let (end, registered) = api.services.connections.register(id);
        let session = api.services.sessions.get(&scope, &id.to_string(), of == Of::Any).await?;
        tracing::Span::current().record("session", tracing::field::display(id));
        telemetry::about(&request, id);
        audit::begin(&request).await?;
        let organization_wide = scope.organization_wide;
        Self { session, permission: Permission::Drive, request, payload, end, registered, organization_wide, api }
            .driving()
    }

    /// Which session the credential opens, how far, and what was shown.
    async fn credential(
        api: &Api,
        request: &HttpRequest,
        text: &str,
        also: AcceptedCredentials,
        of: Of,
    ) -> Result<(SessionId, Permission, PresentedCredential), ApiError> {
        let services = &api.services;
        let query = Query::parse(request.query_string())?;
        let headers = request.headers();
        let token = match query.raw("jwt")? {
            Some(token) => Some(token.to_owned()),
            None if also == AcceptedCredentials::KeyOrPassword => password(headers),
            None => None,
        };
        if let Some(token) = token {
            let (session, permission) = services.tokens.verify(&token).map_err(|_| ApiError::unauthorized(true))?;
            // The token of another session is as bad as none: it must not tell whether this one exists.
            return match text.parse::<SessionId>() {
                Ok(id) if id == session => Ok((session, permission, PresentedCredential::Token)),
                _ => Err(ApiError::unauthorized(true)),
            };
        }
        if also == AcceptedCredentials::Nothing {
            return Err(ApiError::unauthorized(headers.contains_key(header::AUTHORIZATION)));
        }
        let unasked = also == AcceptedCredentials::KeyOrPassword && !headers.contains_key(header::AUTHORIZATION);
        let known = scope(api, request).await;
        let (scope, _) = known.map_err(|error| match error.code() {
            Code::Unauthorized if unasked => ApiError::without_token(),
            _ => error,
        })?;
        let session = services.sessions.get(&scope, &session_id(text)?.to_string(), of == Of::Any).await?;
        let shown = if scope.organization_wide {
            PresentedCredential::OrganizationKey
        } else {
            PresentedCredential::ProjectKey
        };
        Ok((session.id, Permission::Drive, shown))
    }

    /// A segment of the path, decoded.
    ///
    /// # Errors
    /// `bad_request`.
    pub(crate) fn path(&self, name: &str) -> Result<String, ApiError> {
        segment(&self.request, name)
    }

    pub(crate) fn services(&self) -> &Services {
        &self.api.services
    }

    /// To be held on to when this is used up.
    pub(crate) fn shared_api(&self) -> Data<Api> {
        self.api.clone()
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// # Errors
    /// `forbidden` for a token of the live view alone; `invalid_state` while a login runs in the session.
    fn driving(self) -> Result<Self, ApiError> {
        match self.permission {
            Permission::Drive => self.session.admits(self.organization_wide).map(|()| self).map_err(Into::into),
            Permission::Interact => Err(ApiError::new(Code::Forbidden, "the token opens the live view alone")),
            Permission::View => Err(ApiError::new(Code::Forbidden, "the token only lets watch the live view")),
        }
    }

    /// # Errors
    /// `forbidden` for a token that only lets watch.
    fn interacting(self) -> Result<Self, ApiError> {
        match self.permission {
            Permission::Drive | Permission::Interact => Ok(self),
            Permission::View => Err(ApiError::new(Code::Forbidden, "the token only lets watch the live view")),
        }
    }

    /// The body.
    ///
    /// # Errors
    /// See [`body::read`] and [`json::read`].
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        body::object(&self.request, &mut self.payload).await
    }
}

/// A caller of an operation inside an active session: under `/browsers/{id}` with an API key, under `/vm/{session_id}` as a
/// [`Driver`].
pub(crate) struct SessionAccess(SessionHolder);

/// As [`SessionAccess`], for what a session leaves: it may have ended.
pub(crate) struct EndedSessionAccess(pub(crate) SessionAccess);

/// Whoever may watch, for what a session leaves.
pub(crate) struct EndedSessionViewer(pub(crate) SessionAccess);

impl SessionAccess {
    async fn admit(call: Call, of: Of) -> Result<Self, ApiError> {
        let direct = call.request.match_info().get("session_id").is_some();
        let holder = match direct {
            true => SessionHolder::admit(call, AcceptedCredentials::Key, of).await?.driving()?,
            false => SessionHolder::by_key(call, of).await?,
        };
        Ok(Self(holder))
    }
}

impl FromRequest for SessionAccess {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let call = Call::take(request, payload);
        Box::pin(async move { Self::admit(call?, Of::Active).await })
    }
}

impl FromRequest for EndedSessionAccess {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let call = Call::take(request, payload);
        Box::pin(async move { SessionAccess::admit(call?, Of::Any).await.map(Self) })
    }
}

impl FromRequest for EndedSessionViewer {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let call = Call::take(request, payload);
        Box::pin(async move {
            SessionHolder::admit(call?, AcceptedCredentials::Nothing, Of::Any)
                .await
                .map(|holder| Self(SessionAccess(holder)))
        })
    }
}

impl std::ops::Deref for SessionAccess {
    type Target = SessionHolder;

    fn deref(&self) -> &SessionHolder {
        &self.0
    }
}

impl SessionAccess {
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// # Errors
    /// `bad_request`.
    pub(crate) fn query(&self) -> Result<Query, ApiError> {
        Query::parse(self.request.query_string())
    }

    /// The JSON body.
    ///
    /// # Errors
    /// See [`body::read`] and [`json::read`].
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        self.0.json().await
    }

    /// The body as it comes.
    ///
    /// # Errors
    /// `payload_too_large`, if the caller says so beforehand.
    pub(crate) fn body(
        &mut self,
        longest: u64,
    ) -> Result<(casement_domain::session_operation::ByteStream, body::BodyEnd), ApiError> {
        let payload = self.take_payload()?;
        body::stream(&self.0.request, payload, longest)
    }

    /// The body, for a reader of its own.
    ///
    /// # Errors
    /// `internal`: never.
    pub(crate) fn take_payload(&mut self) -> Result<Payload, ApiError> {
        let nothing = Payload::from_request(&self.0.request, &mut dev::Payload::None).now_or_never();
        let nothing = nothing.and_then(Result::ok).ok_or_else(|| ApiError::internal("no body cannot be read"))?;
        Ok(std::mem::replace(&mut self.0.payload, nothing))
    }

    /// The outcome of `work`, which runs as long as its caller wants. A server that goes away does not wait for that: soon after it has
    /// begun to, the work is let go of, as if its caller had hung up.
    ///
    /// # Errors
    /// Those of `work`; `internal` if it was let go of, for it may have done something.
    pub(crate) async fn while_served<T, E: Into<ApiError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ApiError> {
        let end = self.0.end.clone();
        let going = async {
            if end.ended().await != CloseReason::Drain {
                // Whoever does the work is told of the session's end, too, and knows more of what it means.
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(LAST_MOMENT).await;
        };
        tokio::select! {
            biased;
            done = work => done.map_err(Into::into),
            () = going => Err(ApiError::new(Code::Internal, "the server stops: this was broken off, and what it had done stays done")),
        }
    }

    /// Says when the session ends, and counts as open until it is dropped.
    pub(crate) fn into_open(self) -> (EndSignal, crate::connections::Registration) {
        (self.0.end, self.0.registered)
    }
}

/// The password of basic credentials; the user's name means nothing.
fn password(headers: &HeaderMap) -> Option<String> {
    let (scheme, encoded) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

macro_rules! holder {
    ($(#[$doc:meta])* $name:ident, $also:expr, $check:expr) => {
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) SessionHolder);

        impl FromRequest for $name {
            type Error = ApiError;
            type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

            fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
                let call = Call::take(request, payload);
                Box::pin(async move { $check(SessionHolder::admit(call?, $also, Of::Active).await?).map(Self) })
            }
        }
    };
}

holder!(
    /// Of a direct route: the token, or a key of the project.
    Driver, AcceptedCredentials::Key, SessionHolder::driving
);
holder!(
    /// Of classic WebDriver: as a [`Driver`], or the token as a password.
    WebDriverUser, AcceptedCredentials::KeyOrPassword, SessionHolder::driving
);
holder!(
    /// Of the live view: a token, of any kind.
    Viewer, AcceptedCredentials::Nothing, Ok
);
holder!(
    /// Of what a person does in the live view: a token that does not only let watch.
    Operator, AcceptedCredentials::Nothing, SessionHolder::interacting
);
