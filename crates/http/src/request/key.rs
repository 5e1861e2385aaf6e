//! API keys as credentials.

use std::{any::Any, pin::Pin, sync::Arc};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderMap},
    },
};
use casement_domain::{
    ApiKeyId, OrganizationId, UserId,
    access::{NamedProject, Scope},
    api_key::{AuthenticateError, Caller},
    audit::PreparedRecord,
    session::Session,
};
use tracing::Instrument as _;

use super::{ActiveSession, Admitted, Credential, Request, session::SessionAccess};
use crate::{
    audit::{self, Identity, prepared_record},
    cluster::{self, Destination, Hop},
    connect_credential,
    error::{ApiError, Code},
    ignored_fields::IgnoredFields,
    operation::Requirement,
    relay::DeliveryReceipt,
    state::{Api, Services},
    telemetry, ui,
};

/// The header with the identifier of a project.
const PROJECT_ID: &str = "x-kernel-project-id";
/// The header with the identifier or the name of a project.
const PROJECT: &str = "x-kernel-project";

/// An API key that opens a project: its own, or the one that the request names.
pub(crate) struct ProjectKey;

/// An API key as [`ProjectKey`], for a handler that stores the audit intent itself.
pub(crate) struct DeferredAudit;

/// An API key of the whole organization.
pub(crate) struct OrganizationKey;

/// Any valid API key: of the organization or of one project.
pub(crate) struct AnyKey;

/// The access that a key of a project grants.
pub(crate) struct ProjectAccess {
    scope: Scope,
    caller: Caller,
}

impl ProjectAccess {
    /// Checks the key, finds the project, and checks what the key allows there.
    ///
    /// # Errors
    /// `unauthorized`, `forbidden`, `insufficient_scope`, `rate_limited`, `invalid_input` for a malformed project identifier.
    pub(super) async fn admit(api: &Api, request: &HttpRequest) -> Result<Self, ApiError> {
        let caller = authenticate(api, request).await?;
        let scope = project_scope(api, request, &caller).await;
        let allowed = scope.and_then(|scope| {
            api.permissions.check(request, &caller, Some(scope.project_id()))?;
            Ok(scope)
        });
        let scope = counted(api, request, &caller, allowed)?;
        Ok(Self { scope, caller })
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn key(&self) -> ApiKeyId {
        self.caller.key
    }
}

impl Credential for ProjectKey {
    type Access = ProjectAccess;

    const REQUIREMENT: Requirement = Requirement::ProjectKey;

    async fn admit(api: &Api, request: &HttpRequest) -> Result<Admitted<ProjectAccess>, ApiError> {
        let access = ProjectAccess::admit(api, request).await?;
        audit::begin(request).await?;
        Ok(Admitted::Here(access))
    }
}

impl Credential for DeferredAudit {
    type Access = ProjectAccess;

    const REQUIREMENT: Requirement = Requirement::ProjectKey;

    async fn admit(api: &Api, request: &HttpRequest) -> Result<Admitted<ProjectAccess>, ApiError> {
        ProjectAccess::admit(api, request).await.map(Admitted::Here)
    }
}

impl Credential for OrganizationKey {
    type Access = Caller;

    const REQUIREMENT: Requirement = Requirement::OrganizationKey;

    async fn admit(api: &Api, request: &HttpRequest) -> Result<Admitted<Caller>, ApiError> {
        let caller = authenticate(api, request).await?;
        let allowed = match caller.project {
            Some(_) => Err(ApiError::new(Code::Forbidden, "this needs a key of the whole organization")),
            None => api.permissions.check(request, &caller, None),
        };
        counted(api, request, &caller, allowed)?;
        audit::begin(request).await?;
        Ok(Admitted::Here(caller))
    }
}

impl Credential for AnyKey {
    type Access = Caller;

    const REQUIREMENT: Requirement = Requirement::AnyKey;

    async fn admit(api: &Api, request: &HttpRequest) -> Result<Admitted<Caller>, ApiError> {
        let caller = authenticate(api, request).await?;
        counted(api, request, &caller, api.permissions.check(request, &caller, None))?;
        audit::begin(request).await?;
        Ok(Admitted::Here(caller))
    }
}

/// Returns the text of the key.
///
/// # Errors
/// `unauthorized`, with the same response for everything that is not a bearer credential.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(ApiError::unauthorized(headers.contains_key(header::AUTHORIZATION)));
    };
    let refused = || ApiError::unauthorized(true);
    let (scheme, key) = value.to_str().map_err(|_| refused())?.split_once(' ').ok_or_else(refused)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(refused()) }
}

async fn authenticate(api: &Api, request: &HttpRequest) -> Result<Caller, ApiError> {
    if let Some(Hop { key, .. }) = Hop::of(request) {
        let key = key.ok_or_else(|| ApiError::unauthorized(false))?;
        return Ok(api.services.api_keys.remembered(key).await?);
    }
    if ui::is_ui(request) {
        let caller = ui::authenticate(api, request).await?;
        Identity::key(request, caller.key, caller.project);
        return Ok(caller);
    }
    if let Some(token) = connect_credential::connect_token(request)? {
        let key = api.services.tokens.verify_connect_token(&token, api.services.clock.now());
        let caller = api.services.api_keys.remembered(key.map_err(|_| ApiError::unauthorized(true))?).await?;
        return Ok(noted(request, caller));
    }
    let text = bearer(request.headers())?;
    match api.services.api_keys.authenticate(text).await {
        Ok(caller) => Ok(noted(request, caller)),
        Err(error) => {
            // A key counts as refused only if it could be looked up.
            if matches!(error, AuthenticateError::Refused) {
                Identity::refused(request, text);
            }
            Err(error.into())
        }
    }
}

/// Notes the caller for the audit record.
fn noted(request: &HttpRequest, caller: Caller) -> Caller {
    Identity::key(request, caller.key, caller.project);
    if caller.deployed {
        Identity::mark_app(request);
    }
    caller
}

/// Counts the call against the rate limit of its key; the node that relays a call has counted it. If `reached` is an error, that is returned rather than the rate
/// limit's; the call counts in both cases.
fn counted<T>(api: &Api, request: &HttpRequest, caller: &Caller, reached: Result<T, ApiError>) -> Result<T, ApiError> {
    if Hop::is(request) {
        return reached;
    }
    let admitted = api.rate.admit(caller.key);
    let reached = reached?;
    admitted.map(|()| reached)
}

async fn project_scope(api: &Api, request: &HttpRequest, caller: &Caller) -> Result<Scope, ApiError> {
    let id = project_header(request, PROJECT_ID)?;
    let named = NamedProject { id, id_or_name: project_header(request, PROJECT)? };
    let scope = api.services.access.resolve(caller, named).await?;
    Identity::key(request, caller.key, Some(scope.project_id()));
    Ok(scope)
}

impl Request<ProjectKey> {
    /// Turns the request into one inside a session of the project.
    ///
    /// # Errors
    /// `invalid_state` if a login runs in the session.
    pub(crate) fn into_session(self, session: Session) -> Result<Request<ActiveSession>, ApiError> {
        let access = SessionAccess::of_session(&self.api, &self.http, session, self.scope().organization_wide)?;
        Ok(Request { api: self.api, http: self.http, payload: self.payload, access })
    }
}

/// Returns the text of a header that names a project.
fn project_header<'a>(request: &'a HttpRequest, name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = request.headers().get_all(name);
    let refused = |why: &str| {
        let written = connect_credential::as_written(request, name);
        ApiError::new(Code::BadRequest, format!("{written} {why}"))
    };
    match (values.next().map(|value| std::str::from_utf8(value.as_bytes())), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        (Some(Err(_)), None) => Err(refused("must be a text in UTF-8")),
        (Some(_), Some(_)) => Err(refused("names more than one project")),
    }
}

impl<C: Credential<Access = Caller>> Request<C> {
    pub(crate) fn caller(&self) -> &Caller {
        &self.access
    }

    pub(crate) fn organization(&self) -> OrganizationId {
        self.access.organization
    }
}

impl<C: Credential<Access = ProjectAccess>> Request<C> {
    pub(crate) fn scope(&self) -> &Scope {
        &self.access.scope
    }

    /// Returns where a request for this session goes if another node runs the session. `path_and_query`: those at that
    /// node, if they differ.
    pub(crate) fn elsewhere(&self, session: &Session, path_and_query: Option<String>) -> Option<Destination> {
        let is_elsewhere = session.ended_at.is_none() && self.api.is_elsewhere(session.node);
        is_elsewhere.then(|| Destination {
            node: session.node,
            session: Some(session.id),
            key: Some(self.key()),
            path_and_query,
            lifetime: None,
        })
    }

    /// Returns the response of the node that runs the session, if that is another node. The body must not have been read.
    ///
    /// # Errors
    /// See [`cluster::forward`].
    pub(crate) async fn relayed(&mut self, session: &Session) -> Result<Option<HttpResponse>, ApiError> {
        let Some(owner) = self.elsewhere(session, None) else { return Ok(None) };
        let payload = self.take_payload()?;
        cluster::forward(&self.api, &self.http, payload, owner).await.map(Some)
    }

    /// Like [`relayed`](Self::relayed), for the session that a segment of the path names. A node without others looks up
    /// nothing.
    ///
    /// # Errors
    /// Those of finding the session, and of [`relayed`](Self::relayed).
    pub(crate) async fn relayed_to_owner(&mut self, which: &str) -> Result<Option<HttpResponse>, ApiError> {
        if self.api.services.cluster.is_none() || Hop::is(&self.http) {
            return Ok(None);
        }
        let session = self.services().sessions.get(self.scope(), which, false).await?;
        self.relayed(&session).await
    }

    /// Returns the caller's key.
    pub(crate) fn key(&self) -> ApiKeyId {
        self.access.caller.key
    }

    /// Returns the user who created the caller's key.
    pub(crate) fn user(&self) -> UserId {
        self.access.caller.user
    }

    /// Returns what the caller's key is and opens.
    pub(crate) fn key_holder(&self) -> &Caller {
        &self.access.caller
    }

    /// Notes the session of the call, for telemetry.
    pub(crate) fn about(&self, session: &Session) {
        telemetry::about(&self.http, session.id);
    }

    /// Stores which fields of the body were ignored, for the page of the session that the call has made. A failure is
    /// only logged, because the response names the fields too.
    pub(crate) async fn note_ignored_fields(&self, session: &Session) {
        let fields = IgnoredFields::of(&self.http);
        if fields.is_empty() {
            return;
        }
        if let Err(error) = self.services().sessions.note_ignored_fields(session.id, &fields).await {
            tracing::warn!(%error, "the ignored fields of a request are not stored");
        }
    }

    /// Returns the receipt that reports whether the response was delivered.
    pub(crate) fn receipt(&self) -> DeliveryReceipt {
        self.http.conn_data::<DeliveryReceipt>().cloned().unwrap_or_default()
    }

    /// Returns the audit record of the call for a response with `status`, see [`prepared_record`].
    pub(crate) fn prepared_record(&self, status: StatusCode) -> Option<Arc<PreparedRecord>> {
        prepared_record(&self.http, status)
    }

    /// Runs `work` to its end, even if the caller disconnects: a change that is dropped midway would need a cleanup.
    ///
    /// # Errors
    /// The errors of `work`.
    pub(crate) async fn finish<F, W, T, E>(&self, work: F) -> Result<T, ApiError>
    where
        F: FnOnce(Arc<Services>, Scope) -> W,
        W: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Into<ApiError> + Send + 'static,
    {
        let work = work(self.shared_services(), self.scope().clone());
        let done = self.services().runtime.spawn(erased(work).in_current_span()).await.map_err(ApiError::internal)?;
        let done = done.downcast::<Result<T, E>>().unwrap_or_else(|_| unreachable!("it is the output of the work"));
        done.map_err(Into::into)
    }

    /// Like [`finish`](Self::finish), but on the thread of the connection, which wakes no other thread. For work that
    /// hardly waits.
    ///
    /// # Errors
    /// The errors of `work`.
    pub(crate) async fn finish_here<F, W, T, E>(&self, work: F) -> Result<T, ApiError>
    where
        F: FnOnce(Arc<Services>, Scope) -> W,
        W: Future<Output = Result<T, E>> + 'static,
        T: 'static,
        E: Into<ApiError> + 'static,
    {
        let work = work(self.shared_services(), self.scope().clone()).in_current_span();
        actix_web::rt::spawn(work).await.map_err(ApiError::internal)?.map_err(Into::into)
    }
}

/// A future of one type for all work: the code of a task is generated for each type of its future.
type Erased = Pin<Box<dyn Future<Output = Box<dyn Any + Send>> + Send>>;

fn erased<W>(work: W) -> Erased
where
    W: Future<Output: Send + 'static> + Send + 'static,
{
    Box::pin(async move { Box::new(work.await) as Box<dyn Any + Send> })
}
