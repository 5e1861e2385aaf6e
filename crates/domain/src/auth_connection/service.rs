//! The use cases of auth connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_core::stream::BoxStream;
use secrecy::{ExposeSecret as _, SecretString};

use super::hosted::mint;
use super::input::{CheckedUpdate, NewConnection, parse_proxy};
use super::{
    AuthConnection, AuthConnectionRepository, ConnectionFilter, ConnectionRequest, ConnectionStatus, ConnectionStored,
    ConnectionUpdated, CredentialRef, ExternalCredentials, Flow, FlowBegun, FlowChangeNotifier, FlowEvent, FlowKind,
    FlowRefused, FlowSettings, FlowStatus, ProviderScope, Reauth, Settings, Submission, SubmitRequest, TimelineEvent,
};
use crate::access::Scope;
use crate::clock::{Clock, Entropy, IdSource};
use crate::credential::CredentialRepository;
use crate::error::{NotFound, SpecificError, UseCaseError};
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{AuthConnectionId, AuthFlowId, ProxyId, SessionId};
use crate::name::SlugName;
use crate::page::{Listed, Page};
use crate::permission::{Kind, Target, Verb, Which};
use crate::profile::{Profile, ProfileError, ProfileUnavailable, Profiles};
use crate::proxy::ProxyRouting;
use crate::reference::Reference;
use crate::sealing::{SealError, Sealer};
use crate::session::{IdOrName, NotSupported, SessionEvent, Sessions};
use crate::store_error::StoreError;

/// The error of a use case of auth connections.
pub type AuthConnectionError = UseCaseError<AuthConnectionFailure>;

/// An error that only use cases of auth connections have.
#[derive(Debug, thiserror::Error)]
pub enum AuthConnectionFailure {
    /// The profile already has a connection to the domain.
    #[error("profile {profile} has an auth connection to {domain} already")]
    Exists {
        /// The profile's name.
        profile: String,
        /// The domain.
        domain: String,
    },
    /// No login is running.
    #[error("no login is in progress")]
    NoFlow,
    /// The state of the login does not allow the event.
    #[error(transparent)]
    Refused(#[from] FlowRefused),
    /// The profile could not be created.
    #[error(transparent)]
    Profile(#[from] ProfileUnavailable),
}

impl SpecificError for AuthConnectionFailure {}

impl From<FlowRefused> for AuthConnectionError {
    fn from(refused: FlowRefused) -> Self {
        Self::Specific(refused.into())
    }
}

impl From<ProfileError> for AuthConnectionError {
    fn from(error: ProfileError) -> Self {
        error.map_specific(|unavailable| Self::Specific(unavailable.into()))
    }
}

/// The dependencies of the use cases of auth connections.
#[derive(Clone)]
pub struct AuthConnectionDeps {
    /// The repository of connections and flows.
    pub connections: Arc<dyn AuthConnectionRepository>,
    /// The repository of credentials.
    pub credentials: Arc<dyn CredentialRepository>,
    /// The credential providers.
    pub external: Arc<dyn ExternalCredentials>,
    /// The use cases of profiles.
    pub profiles: Profiles,
    /// Resolves the proxies of logins.
    pub proxies: ProxyRouting,
    /// The use cases of sessions.
    pub sessions: Sessions,
    /// The notifications of changes.
    pub notifier: Arc<dyn FlowChangeNotifier>,
    /// Seals submissions and one-time codes.
    pub sealer: Arc<dyn Sealer>,
    /// The source of random codes and keys.
    pub entropy: Arc<dyn Entropy>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The maximum number of connections of a project.
    pub max: u32,
}

/// The use cases of auth connections.
#[derive(Clone)]
pub struct AuthConnections {
    deps: AuthConnectionDeps,
}

/// A running login.
#[derive(Clone, Debug)]
pub struct StartedLogin {
    /// The flow.
    pub flow: Flow,
    /// The one-time code of the hosted page.
    pub code: SecretString,
}

impl AuthConnections {
    /// The default maximum number of connections of a project.
    pub const DEFAULT_MAX: u32 = 500;

    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: AuthConnectionDeps) -> Self {
        Self { deps }
    }

    pub(super) fn deps(&self) -> &AuthConnectionDeps {
        &self.deps
    }

    /// Checks that an engine of the installation has browsers for logins.
    fn check_engine(&self) -> Result<(), NotSupported> {
        self.deps.sessions.login_engine().map(drop).map_err(|refused| refused.of("engine"))
    }

    /// Creates a connection, and its profile if the project has none with that name.
    ///
    /// # Errors
    /// See [`AuthConnectionError`]; then no connection is stored.
    pub async fn create(&self, scope: &Scope, input: ConnectionRequest) -> Result<AuthConnection, AuthConnectionError> {
        scope.writable()?;
        self.check_engine()?;
        let NewConnection { domain, profile, mut update } = input.new_connection()?;
        self.look_up(scope, &mut update).await?;
        update.change.save_credentials = Some(new_saves_credentials(scope, update.change.save_credentials)?);
        let profile = self.profile(scope, &profile).await?;
        let now = self.deps.clock.now();
        let connection = AuthConnection {
            id: AuthConnectionId::mint(&*self.deps.ids),
            project: scope.project_id(),
            organization: scope.organization(),
            domain,
            profile: profile.id,
            profile_name: profile.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
            status: ConnectionStatus::NeedsAuth,
            settings: update.change.apply(&Settings::default()),
            needs: None,
            last_check_at: None,
            created_at: now,
            updated_at: now,
            credential: None,
            flow: None,
        };
        match self.deps.connections.create(&connection, self.deps.max).await? {
            ConnectionStored::Yes => Ok(connection),
            ConnectionStored::Exists => {
                let AuthConnection { profile_name: profile, domain, .. } = connection;
                Err(AuthConnectionFailure::Exists { profile, domain }.into())
            }
            ConnectionStored::LimitExceeded(limit) => Err(limit.into()),
            ConnectionStored::ProjectGone => Err(AuthConnectionError::ProjectDeleted),
            ConnectionStored::ReferenceGone(field) => Err(gone(field).into()),
        }
    }

    /// Returns the project's connection, with its latest login.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<AuthConnection, AuthConnectionError> {
        let missing = || not_found(which);
        let id = which.parse().map_err(|_| missing())?;
        let found = self.deps.connections.find(scope.project_id(), id).await?.ok_or_else(missing)?;
        Ok(self.as_of_now(found))
    }

    /// Returns the project's connections, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        scope: &Scope,
        filter: &ConnectionFilter,
        page: Page,
    ) -> Result<Listed<AuthConnection>, StoreError> {
        let found = self.deps.connections.list(scope.project_id(), filter, page).await?;
        Ok(found.map(|connection| self.as_of_now(connection)))
    }

    /// Applies the given changes. A running login continues with the previous settings.
    ///
    /// # Errors
    /// See [`AuthConnectionError`]; then nothing is changed.
    pub async fn update(
        &self,
        scope: &Scope,
        which: &str,
        input: ConnectionRequest,
    ) -> Result<AuthConnection, AuthConnectionError> {
        scope.writable()?;
        let before = self.get(scope, which).await?;
        let mut update = input.change(&before.domain, &before.settings)?;
        self.look_up(scope, &mut update).await?;
        if update.change.save_credentials == Some(true) {
            may_save_credentials(scope)?;
        }
        match self.deps.connections.update(before.id, &update.change, self.deps.clock.now()).await? {
            ConnectionUpdated::Yes(connection) => Ok(self.as_of_now(*connection)),
            ConnectionUpdated::ReferenceGone(field) => Err(gone(field).into()),
            ConnectionUpdated::NotFound => Err(not_found(which).into()),
        }
    }

    /// Deletes a connection. Its login is canceled, its session ends, and nothing more is stored of it.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn delete(&self, scope: &Scope, which: &str) -> Result<(), AuthConnectionError> {
        let connection = self.get(scope, which).await?;
        let deleted = self.deps.connections.delete(connection.id).await?;
        let deleted = deleted.ok_or_else(|| not_found(which))?;
        for session in deleted.sessions {
            // A session that is still being created is ended by its creator.
            let _ = self.deps.sessions.end(session, SessionEvent::Delete).await;
        }
        Ok(())
    }

    /// Begins a login, or returns the running one. Returns at once; the connection shows the result later.
    ///
    /// # Errors
    /// See [`AuthConnectionError`].
    pub async fn login(
        &self,
        scope: &Scope,
        which: &str,
        proxy: Option<Reference>,
        record_session: Option<bool>,
    ) -> Result<StartedLogin, AuthConnectionError> {
        scope.writable()?;
        self.check_engine()?;
        let connection = self.get(scope, which).await?;
        let proxy =
            proxy.as_ref().map(parse_proxy).transpose().map_err(|bad| InvalidInput::of("proxy", bad))?.flatten();
        let proxy = match proxy {
            Some(requested) => Some(self.proxy(scope, &requested).await?),
            None => connection.settings.proxy,
        };
        let can = self.reauth(&connection).await?.can;
        let kind = if can { FlowKind::Reauth } else { FlowKind::Login };
        let mut flow = self.draft(&connection, kind)?;
        flow.proxy = proxy;
        flow.record_session = record_session.unwrap_or(connection.settings.record_session);
        let flow = match self.deps.connections.begin(&flow).await? {
            FlowBegun::Yes => flow,
            FlowBegun::Running(running) => *running,
            FlowBegun::Gone => return Err(not_found(which).into()),
        };
        let code = self.handoff_code(&flow)?.unwrap_or_default();
        Ok(StartedLogin { flow, code })
    }

    /// Submits values or a choice that a login waits for. The connection shows the result later.
    ///
    /// # Errors
    /// See [`AuthConnectionError`]; then nothing is submitted.
    pub async fn submit(&self, scope: &Scope, which: &str, input: SubmitRequest) -> Result<(), AuthConnectionError> {
        let connection = self.get(scope, which).await?;
        self.submit_to(connection, input).await
    }

    pub(super) async fn submit_to(
        &self,
        connection: AuthConnection,
        input: SubmitRequest,
    ) -> Result<(), AuthConnectionError> {
        let flow = connection.flow.ok_or(AuthConnectionFailure::NoFlow)?.as_of(self.deps.clock.now());
        if flow.status != FlowStatus::InProgress || !flow.is_awaiting() {
            flow.on(FlowEvent::Submitted(Vec::new()), self.deps.clock.now())?;
        }
        let submission = input.parse(&flow)?;
        let sealed = self.seal_submission(flow.id, &submission)?;
        let next = flow.on(FlowEvent::Submitted(sealed), self.deps.clock.now())?;
        if self.deps.connections.put(&next).await? {
            return Ok(());
        }
        // The page, another submission or the end changed the flow first.
        let id = connection.id;
        let now = self.deps.connections.any(id).await?.and_then(|connection| connection.flow);
        let now = now.ok_or_else(|| not_found(&id.to_string()))?;
        Err(FlowRefused { id: now.id, status: now.status, step: now.step, event: "submitted" }.into())
    }

    /// Returns the flows of a connection, newest first.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn timeline(
        &self,
        scope: &Scope,
        which: &str,
        kind: Option<FlowKind>,
        page: Page,
    ) -> Result<Listed<TimelineEvent>, AuthConnectionError> {
        let connection = self.get(scope, which).await?;
        let now = self.deps.clock.now();
        let found = self.deps.connections.timeline(connection.id, kind, page).await?;
        Ok(found.map(|event| TimelineEvent { flow: event.flow.as_of(now) }))
    }

    /// Returns the connection of any project, for callers that follow a connection that they may read.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn look(&self, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError> {
        Ok(self.deps.connections.any(id).await?.map(|connection| self.as_of_now(connection)))
    }

    /// Returns a stream with an item whenever the connection should be [read](Self::look) again.
    #[must_use]
    pub fn follow(&self, id: AuthConnectionId) -> BoxStream<'static, ()> {
        self.deps.notifier.follow(id)
    }

    /// Predicts an unattended login of a connection.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn reauth(&self, connection: &AuthConnection) -> Result<Reauth, StoreError> {
        let known = match &connection.settings.credential {
            Some(named) => self.external_known(connection.provider_scope(), named).await?,
            None => false,
        };
        Ok(connection.reauth(known))
    }

    /// Returns whether an enabled credential provider may have the credential.
    async fn external_known(&self, scope: ProviderScope, named: &CredentialRef) -> Result<bool, StoreError> {
        match named {
            CredentialRef::Item { provider, .. } | CredentialRef::Auto { provider } => {
                self.deps.external.known(scope, Some(provider)).await
            }
            CredentialRef::AutoAny => self.deps.external.known(scope, None).await,
            CredentialRef::Named(_) => Ok(false),
        }
    }

    /// Returns the one-time code of a flow's hosted page in clear text.
    ///
    /// # Errors
    /// See [`SealError`].
    pub fn handoff_code(&self, flow: &Flow) -> Result<Option<SecretString>, SealError> {
        let Some(sealed) = &flow.handoff else { return Ok(None) };
        let clear = self.deps.sealer.open(&Flow::handoff_place(flow.id), sealed)?;
        let text = std::str::from_utf8(clear.expose_secret()).map_err(|_| SealError::Damaged)?;
        Ok(Some(text.into()))
    }

    /// Creates a flow without storing it.
    pub(super) fn draft(&self, connection: &AuthConnection, kind: FlowKind) -> Result<Flow, SealError> {
        let now = self.deps.clock.now();
        let id = AuthFlowId::mint(&*self.deps.ids);
        let code = mint(&*self.deps.entropy);
        let sealed = self.deps.sealer.seal(&Flow::handoff_place(id), code.expose_secret().as_bytes())?;
        let session = SessionId::mint(&*self.deps.ids);
        Ok(Flow {
            unattended: kind == FlowKind::HealthCheck,
            proxy: connection.settings.proxy,
            begun_with: Some(Box::new(FlowSettings::of(connection))),
            handoff: Some(sealed),
            ..Flow::new(id, connection.id, kind, session, now)
        })
    }

    fn as_of_now(&self, mut connection: AuthConnection) -> AuthConnection {
        let now = self.deps.clock.now();
        connection.flow = connection.flow.map(|flow| Box::new(flow.as_of(now)));
        connection
    }

    fn seal_submission(&self, id: AuthFlowId, submission: &Submission) -> Result<Vec<u8>, SealError> {
        let values: BTreeMap<&str, &str> =
            submission.values.iter().map(|(key, value)| (key.as_str(), value.expose_secret())).collect();
        let text = serde_json::json!({ "values": values, "choice": submission.choice }).to_string();
        self.deps.sealer.seal(&Flow::submission_place(id), text.as_bytes())
    }

    /// Looks up the proxy and the credential that the request names.
    async fn look_up(&self, scope: &Scope, request: &mut CheckedUpdate) -> Result<(), AuthConnectionError> {
        if let Some(proxy) = request.proxy.take() {
            request.change.proxy = Some(match proxy {
                Some(requested) => Some(self.proxy(scope, &requested).await?),
                None => None,
            });
        }
        let known = match &request.change.credential {
            Some(Some(CredentialRef::Named(name))) => {
                request.change.organization_credential = Some(false);
                let which = IdOrName::Name(name.clone());
                let found = self.deps.credentials.find(scope.project_id(), &which).await?;
                if let Some(credential) = &found {
                    allow("credential", scope, Verb::Use, scope.target(Kind::Credentials, credential.id.ulid()))?;
                }
                found.is_some()
            }
            Some(Some(named)) => {
                request.change.organization_credential = Some(scope.organization_wide);
                let providers = Target::InOrganization(Kind::CredentialProviders, Which::Any);
                allow("credential", scope, Verb::Use, providers)?;
                let project = (!scope.organization_wide).then_some(scope.project_id());
                self.external_known(ProviderScope { organization: scope.organization(), project }, named).await?
            }
            Some(None) => {
                request.change.organization_credential = Some(false);
                true
            }
            None => true,
        };
        if known { Ok(()) } else { Err(gone("credential").into()) }
    }

    async fn proxy(&self, scope: &Scope, requested: &str) -> Result<ProxyId, AuthConnectionError> {
        self.deps.proxies.resolve::<AuthConnectionError>(scope, requested).await.map_err(|error| {
            match error {
                // Sessions have another name for the field.
                AuthConnectionError::Invalid(invalid) => match invalid.fields() {
                    [only] => InvalidInput::of("proxy", InvalidValue::new(only.code, only.message.clone())).into(),
                    _ => invalid.into(),
                },
                other => other,
            }
        })
    }

    /// Returns the profile with this name; creates it if it does not exist.
    async fn profile(&self, scope: &Scope, name: &SlugName) -> Result<Profile, AuthConnectionError> {
        match self.usable_profile(scope, name).await {
            Err(AuthConnectionError::NotFound(_)) => {}
            found => return found,
        }
        let new = Target::InProject(scope.project_id(), Kind::Profiles, Which::Any);
        allow("profile_name", scope, Verb::Create, new)?;
        match self.deps.profiles.create(scope, Some(name.as_str())).await {
            // Another call created it meanwhile.
            Err(ProfileError::NameTaken(_)) => self.usable_profile(scope, name).await,
            made => Ok(made?),
        }
    }

    /// Returns the profile with this name, if the caller may use it.
    async fn usable_profile(&self, scope: &Scope, name: &SlugName) -> Result<Profile, AuthConnectionError> {
        let found = self.deps.profiles.get(scope, name.as_str()).await?;
        allow("profile_name", scope, Verb::Use, scope.target(Kind::Profiles, found.id.ulid()))?;
        Ok(found)
    }
}

/// Checks that the caller may do this with the resource that `field` names.
fn allow(field: &str, scope: &Scope, verb: Verb, target: Target) -> Result<(), InvalidInput> {
    scope.allow(verb, target).map_err(|bad| InvalidInput::of(field, bad))
}

/// Checks that the caller may do what a login does that saves the typed values: it creates credentials, and finds and
/// changes those that exist.
fn may_save_credentials(scope: &Scope) -> Result<(), InvalidInput> {
    let all = Target::InProject(scope.project_id(), Kind::Credentials, Which::Any);
    [Verb::Create, Verb::Update, Verb::Use].into_iter().try_for_each(|verb| allow("save_credentials", scope, verb, all))
}

/// Returns whether the logins of a new connection save the typed values. Without a request they do if the caller may.
fn new_saves_credentials(scope: &Scope, requested: Option<bool>) -> Result<bool, InvalidInput> {
    match requested {
        Some(true) => may_save_credentials(scope).map(|()| true),
        Some(false) => Ok(false),
        None => Ok(Settings::default().save_credentials && may_save_credentials(scope).is_ok()),
    }
}

fn gone(field: &str) -> InvalidInput {
    let what = match field {
        "credential" => "there is no such credential, or no such provider",
        "proxy" => "there is no such proxy",
        _ => "it was deleted during the request",
    };
    InvalidInput::of(field, InvalidValue::new(FieldCode::ReferenceNotFound, what))
}

pub(super) fn not_found(which: &str) -> NotFound {
    NotFound::new("auth connection", which)
}
