//! Credentials for one session: its token, or an API key of its project.

use std::time::Duration;

use actix_web::{
    HttpRequest,
    http::header::{self, HeaderMap},
    web::Payload,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use casement_domain::{
    ApiKeyId, NotFound, SessionId,
    session::{IdOrName, Session},
};

use super::{
    Admitted, Credential, Request,
    key::{ProjectAccess, bearer},
    segment,
};
use crate::{
    audit::{self, Identity},
    cluster::{Destination, Owner},
    connections::Registration,
    error::{ApiError, Code},
    operation::Requirement,
    query::Query,
    relay::{CloseReason, EndSignal},
    state::Api,
    telemetry,
    token::{Permission, SessionToken},
};

/// The maximum time for which work inside a session continues when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The sessions that a credential opens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionScope {
    Active,
    /// Also sessions that have ended, for a key or a token that only permits watching. All other tokens expire with
    /// their session.
    ActiveOrEnded,
}

/// The credentials that a direct route accepts in addition to the token in its query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptedCredentials {
    TokenOnly,
    Key,
    KeyOrPassword,
    /// A key, or the session's token, as a bearer credential. The path names a WebDriver session of the hub.
    KeyOrBearerToken,
}

/// A credential that opens a session: under `/browsers/{id_or_name}` an API key, under `/vm/{session_id}` and
/// `/live/{session_id}` the credentials of [`ACCEPTED`](Self::ACCEPTED).
pub(crate) trait SessionCredential: 'static {
    const ACCEPTED: AcceptedCredentials = AcceptedCredentials::Key;
    const SCOPE: SessionScope = SessionScope::Active;
    /// The minimum permission of a token.
    const PERMISSION: Permission = Permission::Drive;
}

/// The credential for operations in, and connections to, an active session.
pub(crate) struct ActiveSession;

impl SessionCredential for ActiveSession {}

/// The credential for data that a session has stored. The session may have ended.
pub(crate) struct StoredSession;

impl SessionCredential for StoredSession {
    const SCOPE: SessionScope = SessionScope::ActiveOrEnded;
}

/// The credential for classic WebDriver, whose clients may send the token as a password.
pub(crate) struct WebDriverClient;

impl SessionCredential for WebDriverClient {
    const ACCEPTED: AcceptedCredentials = AcceptedCredentials::KeyOrPassword;
}

/// The credential for commands of a WebDriver session of the hub, whose id begins with that of the browser session.
pub(crate) struct HubClient;

impl SessionCredential for HubClient {
    const ACCEPTED: AcceptedCredentials = AcceptedCredentials::KeyOrBearerToken;
}

/// The credential for the live view: any token.
pub(crate) struct LiveViewer;

impl SessionCredential for LiveViewer {
    const ACCEPTED: AcceptedCredentials = AcceptedCredentials::TokenOnly;
    const PERMISSION: Permission = Permission::View;
}

/// The credential for actions in the live view: a token that permits more than watching.
pub(crate) struct LiveOperator;

impl SessionCredential for LiveOperator {
    const ACCEPTED: AcceptedCredentials = AcceptedCredentials::TokenOnly;
    const PERMISSION: Permission = Permission::Interact;
}

/// The credential for the recordings of a session: any token. The session may have ended.
pub(crate) struct RecordingViewer;

impl SessionCredential for RecordingViewer {
    const ACCEPTED: AcceptedCredentials = AcceptedCredentials::TokenOnly;
    const SCOPE: SessionScope = SessionScope::ActiveOrEnded;
    const PERMISSION: Permission = Permission::View;
}

impl<C: SessionCredential> Credential for C {
    type Access = SessionAccess;

    const REQUIREMENT: Requirement = Requirement::Session;

    async fn admit(api: &Api, request: &HttpRequest) -> Result<Admitted<SessionAccess>, ApiError> {
        let admitted = match request.match_info().get("session_id") {
            Some(_) => SessionAccess::direct(api, request, C::ACCEPTED, C::SCOPE).await?,
            None if C::ACCEPTED == AcceptedCredentials::KeyOrBearerToken => SessionAccess::of_hub(api, request).await?,
            None => SessionAccess::by_key(api, request, &segment(request, "id_or_name")?, C::SCOPE).await?,
        };
        if let Admitted::Here(access) = &admitted {
            access.require(C::PERMISSION)?;
            access.check_contact(api)?;
        }
        Ok(admitted)
    }
}

/// One session that the caller may use.
pub(crate) struct SessionAccess {
    pub(crate) session: Session,
    pub(crate) permission: Permission,
    /// Signals the end of the session.
    pub(crate) end: EndSignal,
    /// Counts as an open connection of the session until it is dropped.
    pub(crate) registered: Registration,
    /// Whether the credential is a key of the whole organization.
    organization_wide: bool,
}

/// The credential that opens a session.
#[derive(Clone, Copy)]
enum PresentedCredential {
    Token(SessionToken),
    Key { key: ApiKeyId, organization_wide: bool },
}

/// A session with the credential that opens it.
struct Presented {
    session: SessionId,
    credential: PresentedCredential,
}

/// Records the caller of a request that another node answers.
async fn admit_elsewhere(
    request: &HttpRequest,
    session: SessionId,
    owner: Owner,
    key: Option<ApiKeyId>,
) -> Result<Admitted<SessionAccess>, ApiError> {
    tracing::Span::current().record("session", tracing::field::display(session));
    if key.is_none() {
        Identity::token(request, owner.project);
    }
    audit::begin(request).await?;
    Ok(Admitted::Elsewhere(Destination {
        node: owner.node,
        session: Some(session),
        key,
        path_and_query: None,
        lifetime: None,
    }))
}

impl SessionAccess {
    /// Admits a request whose path names the session under `/vm` or `/live`.
    async fn direct(
        api: &Api,
        request: &HttpRequest,
        accepted: AcceptedCredentials,
        scope: SessionScope,
    ) -> Result<Admitted<Self>, ApiError> {
        let text = segment(request, "session_id")?;
        let presented = presented(api, request, &text, accepted, scope).await?;
        let id = presented.session;
        let (permission, token) = match presented.credential {
            PresentedCredential::Token(token) => (token.permission, Some(token)),
            PresentedCredential::Key { .. } => (Permission::Drive, None),
        };
        let ended_too = scope == SessionScope::ActiveOrEnded && (token.is_none() || permission == Permission::View);
        if let Some(owner) =
            token.and_then(|token| token.owner).filter(|owner| !ended_too && api.is_elsewhere(owner.node))
        {
            return admit_elsewhere(request, id, owner, None).await;
        }
        // Registers before the lookup, so that the signal reports an end in between.
        let (end, registered) = api.services.connections.register(id);
        let session = match ended_too {
            true => api.services.sessions.find_including_ended(id).await?,
            false => api.services.sessions.active(id).await?,
        };
        let owner = Owner { node: session.node, project: session.project };
        let (key, organization_wide) = match presented.credential {
            PresentedCredential::Token(_) => (None, false),
            PresentedCredential::Key { key, organization_wide } => (Some(key), organization_wide),
        };
        if session.ended_at.is_none() && api.is_elsewhere(session.node) {
            return admit_elsewhere(request, id, owner, key).await;
        }
        note_session(request, id);
        if token.is_some() {
            Identity::token(request, session.project);
        }
        audit::begin(request).await?;
        Ok(Admitted::Here(Self { session, permission, end, registered, organization_wide }))
    }

    /// Admits a request whose path names a WebDriver session of the hub.
    async fn of_hub(api: &Api, request: &HttpRequest) -> Result<Admitted<Self>, ApiError> {
        let whole = segment(request, "id")?;
        let text = whole.split_once('-').map(|(session, _)| session).filter(|text| text.parse::<SessionId>().is_ok());
        let Some(text) = text else {
            // A name, or the id of the browser session alone, names no session of the hub.
            ProjectAccess::admit(api, request).await?;
            return Err(NotFound::new("WebDriver session", whole).into());
        };
        let token = bearer(request.headers()).ok().and_then(|text| api.services.tokens.verify(text).ok());
        let Some(token) = token else {
            return Self::by_key(api, request, text, SessionScope::Active).await;
        };
        let id = token.session;
        if text.parse() != Ok(id) {
            return Err(ApiError::unauthorized(true));
        }
        if let Some(owner) = token.owner.filter(|owner| api.is_elsewhere(owner.node)) {
            return admit_elsewhere(request, id, owner, None).await;
        }
        let (end, registered) = api.services.connections.register(id);
        let session = api.services.sessions.active(id).await?;
        if api.is_elsewhere(session.node) {
            let owner = Owner { node: session.node, project: session.project };
            return admit_elsewhere(request, id, owner, None).await;
        }
        note_session(request, id);
        Identity::token(request, session.project);
        audit::begin(request).await?;
        let permission = token.permission;
        Ok(Admitted::Here(Self { session, permission, end, registered, organization_wide: false }))
    }

    /// Admits a request with an API key whose path names the session under `/browsers`.
    async fn by_key(
        api: &Api,
        request: &HttpRequest,
        text: &str,
        scope: SessionScope,
    ) -> Result<Admitted<Self>, ApiError> {
        let project = ProjectAccess::admit(api, request).await?;
        let sessions = &api.services.sessions;
        let id = match IdOrName::parse(text) {
            IdOrName::Id(id) => id,
            IdOrName::Name(name) => sessions.get(project.scope(), &name, false).await?.id,
        };
        let ended_too = scope == SessionScope::ActiveOrEnded;
        let known = api.owners.find(id).filter(|owner| owner.project == project.scope().project_id());
        if let Some(owner) = known.filter(|owner| !ended_too && api.is_elsewhere(owner.node)) {
            return admit_elsewhere(request, id, owner, Some(project.key())).await;
        }
        // Registers before the lookup by id, so that the signal reports an end in between.
        let (end, registered) = api.services.connections.register(id);
        let session = sessions.get(project.scope(), &id.to_string(), ended_too).await?;
        if session.ended_at.is_none() && api.is_elsewhere(session.node) {
            api.owners.note(&session);
            let owner = Owner { node: session.node, project: session.project };
            return admit_elsewhere(request, id, owner, Some(project.key())).await;
        }
        note_session(request, id);
        audit::begin(request).await?;
        let organization_wide = project.scope().organization_wide;
        let permission = Permission::Drive;
        Ok(Admitted::Here(Self { session, permission, end, registered, organization_wide }))
    }

    /// Admits a request that has just made or found the session with a key.
    pub(super) fn of_session(
        api: &Api,
        request: &HttpRequest,
        session: Session,
        organization_wide: bool,
    ) -> Result<Self, ApiError> {
        let (end, registered) = api.services.connections.register(session.id);
        note_session(request, session.id);
        let access = Self { session, permission: Permission::Drive, end, registered, organization_wide };
        access.require(Permission::Drive)?;
        access.check_contact(api)?;
        Ok(access)
    }

    /// Checks that no other node can have ended the session of this one.
    ///
    /// # Errors
    /// `unavailable`.
    fn check_contact(&self, api: &Api) -> Result<(), ApiError> {
        if self.session.node == api.services.own.id() { Ok(api.services.own.answers()?) } else { Ok(()) }
    }

    /// # Errors
    /// `forbidden` for a token without the permission; `invalid_state` if the request drives the browser while a login
    /// runs in it, or watches it with a token that was made for watching.
    fn require(&self, permission: Permission) -> Result<(), ApiError> {
        match (permission, self.permission) {
            (Permission::View, Permission::View) => Ok(self.session.admits(false)?),
            (Permission::View, _) | (Permission::Interact, Permission::Drive | Permission::Interact) => Ok(()),
            (Permission::Drive, Permission::Drive) => Ok(self.session.admits(self.organization_wide)?),
            (Permission::Drive, Permission::Interact) => {
                Err(ApiError::new(Code::Forbidden, "the token opens the live view alone"))
            }
            (_, Permission::View) => Err(ApiError::new(Code::Forbidden, "the token only lets watch the live view")),
        }
    }
}

/// Notes the session of the request, for the log and for telemetry.
fn note_session(request: &HttpRequest, id: SessionId) {
    tracing::Span::current().record("session", tracing::field::display(id));
    telemetry::about(request, id);
}

/// Finds the session that the presented credential opens.
async fn presented(
    api: &Api,
    request: &HttpRequest,
    text: &str,
    accepted: AcceptedCredentials,
    scope: SessionScope,
) -> Result<Presented, ApiError> {
    let services = &api.services;
    let query = Query::parse(request.query_string())?;
    let headers = request.headers();
    let token = match query.raw("jwt")? {
        Some(token) => Some(token.to_owned()),
        None if accepted == AcceptedCredentials::KeyOrPassword => password(headers),
        None => None,
    };
    if let Some(token) = token {
        let token = services.tokens.verify(&token).map_err(|_| ApiError::unauthorized(true))?;
        // The token of another session is refused like an invalid one, so that the response does not reveal whether
        // this session exists.
        return match text.parse::<SessionId>() {
            Ok(session) if session == token.session => {
                Ok(Presented { session, credential: PresentedCredential::Token(token) })
            }
            _ => Err(ApiError::unauthorized(true)),
        };
    }
    if accepted == AcceptedCredentials::TokenOnly {
        return Err(ApiError::unauthorized(headers.contains_key(header::AUTHORIZATION)));
    }
    let no_credential = accepted == AcceptedCredentials::KeyOrPassword && !headers.contains_key(header::AUTHORIZATION);
    let project = ProjectAccess::admit(api, request).await.map_err(|error| match error.code() {
        Code::Unauthorized if no_credential => ApiError::without_token(),
        _ => error,
    })?;
    let ended_too = scope == SessionScope::ActiveOrEnded;
    let session = services.sessions.find_inside(project.scope(), text, ended_too).await?;
    let organization_wide = project.scope().organization_wide;
    let credential = PresentedCredential::Key { key: project.key(), organization_wide };
    Ok(Presented { session: session.id, credential })
}

/// Returns the password of basic credentials. The user's name is ignored.
fn password(headers: &HeaderMap) -> Option<String> {
    let (scheme, encoded) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

impl<C: Credential<Access = SessionAccess>> Request<C> {
    pub(crate) fn session(&self) -> &Session {
        &self.access.session
    }

    pub(crate) fn permission(&self) -> Permission {
        self.access.permission
    }

    /// Runs `work` as long as its caller waits. When the server stops, it drops the work soon after, as if the caller
    /// had disconnected.
    ///
    /// # Errors
    /// The errors of `work`; `internal` if it was dropped, because it may have had effects.
    pub(crate) async fn while_served<T, E: Into<ApiError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ApiError> {
        let end = self.access.end.clone();
        let stopped = async {
            if end.ended().await != CloseReason::Drain {
                // The work itself observes the end of the session and reports it more precisely.
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(DRAIN_TIMEOUT).await;
        };
        tokio::select! {
            biased;
            done = work => done.map_err(Into::into),
            () = stopped => Err(ApiError::new(Code::Internal, "the server is shutting down; the request was aborted and may have taken partial effect")),
        }
    }

    /// Returns the signal of the session's end, and the registration, which counts as an open connection until it is
    /// dropped.
    pub(crate) fn into_open(self) -> (EndSignal, Registration) {
        (self.access.end, self.access.registered)
    }

    /// Returns the request, its body and the session, for a connection that outlives the handler.
    pub(crate) fn into_parts(self) -> (HttpRequest, Payload, SessionAccess) {
        (self.http, self.payload, self.access)
    }
}
