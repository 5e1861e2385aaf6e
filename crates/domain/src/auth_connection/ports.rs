//! The ports of auth connections.

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use secrecy::SecretString;
use time::OffsetDateTime;

use super::{AuthConnection, ConnectionChange, ConnectionStatus, Flow, FlowKind, FlowRequirement, TimelineEvent};
use crate::credential::{Credential, CredentialChange, SealedSecrets, Sites, TotpSecret};
use crate::ids::{AuthConnectionId, AuthFlowId, CredentialId, NodeId, OrganizationId, ProjectId, SessionId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::store_error::StoreError;

/// The outcome of storing a connection.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStored {
    /// The connection is stored.
    Yes,
    /// The profile already has a connection to the domain. Nothing was stored.
    Exists,
    /// The project is at its limit. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted. Nothing was stored.
    ProjectGone,
    /// The resource that this field refers to was deleted meanwhile. Nothing was stored.
    ReferenceGone(&'static str),
}

/// The outcome of changing a connection.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionUpdated {
    /// The changed connection.
    Yes(Box<AuthConnection>),
    /// The resource that this field refers to was deleted meanwhile. Nothing was changed.
    ReferenceGone(&'static str),
    /// There is no such connection.
    NotFound,
}

/// The remains of a deleted connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionDeleted {
    /// The sessions of its flows, which must be ended. None of them saves its profile.
    pub sessions: Vec<SessionId>,
}

/// The outcome of storing a new flow.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowBegun {
    /// The flow is stored.
    Yes,
    /// Another flow is running. Nothing was stored.
    Running(Box<Flow>),
    /// The connection was deleted.
    Gone,
}

/// The permission of a flow's session to save its profile.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileSavePermission {
    /// The session may save the profile, or has saved it.
    Yes,
    /// Another flow is saving the profile.
    NotYet,
    /// The profile has a newer version than the session has loaded.
    Outdated,
    /// The session may not save the profile: the flow or the session has ended.
    No,
}

/// The credential that a successful login collected, stored at its end. If it cannot be stored, the login still
/// succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectedCredential {
    /// A new credential, if its name is free and the project has fewer than `max`.
    New {
        /// The credential.
        credential: Box<Credential>,
        /// The sealed secrets.
        secrets: SealedSecrets,
        /// The maximum number of credentials of a project.
        max: u32,
    },
    /// A change of an existing credential.
    Changed {
        /// The id of the credential.
        id: CredentialId,
        /// The change.
        change: CredentialChange,
    },
}

/// The effects of a flow's end on its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowEnd {
    /// The new status, if it is known.
    pub status: Option<ConnectionStatus>,
    /// The requirements of a successful login.
    pub needs: Option<Vec<FlowRequirement>>,
    /// The collected credential.
    pub collected: Option<CollectedCredential>,
    /// The name of the collected credential, for a connection without one.
    pub credential: Option<String>,
    /// The time at which a health check ended.
    pub checked_at: Option<OffsetDateTime>,
    /// The next flow, unless one is running.
    pub next: Option<Box<Flow>>,
}

/// A flow that no node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrphanedFlow {
    /// The flow.
    pub flow: AuthFlowId,
    /// The connection of the flow.
    pub connection: AuthConnectionId,
    /// Whether no node has run it before, so that it has no session yet.
    pub is_new: bool,
}

/// A filter of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// The exact domain, in lower case.
    pub domain: Option<String>,
    /// The exact profile name, without regard to case and accents.
    pub profile_name: Option<String>,
    /// A substring of the domain or profile name, without regard to case; or a whole id.
    pub query: Option<String>,
}

/// The port to the stored connections and flows. A connection is read with its latest login and its named credential.
/// Every change of a flow and every deletion of a connection causes a notification; see [`FlowChangeNotifier`].
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuthConnectionRepository: Send + Sync {
    /// Stores a new connection, if the project has fewer than `max` and its profile, proxy and credential still exist.
    async fn create(&self, connection: &AuthConnection, max: u32) -> Result<ConnectionStored, StoreError>;

    /// Finds a connection of the project.
    async fn find(&self, project: ProjectId, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError>;

    /// Finds a connection of any project.
    async fn any(&self, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError>;

    /// Lists the project's connections, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &ConnectionFilter,
        page: Page,
    ) -> Result<Listed<AuthConnection>, StoreError>;

    /// Applies the given changes if the proxy and the credential or its provider still exist.
    async fn update(
        &self,
        id: AuthConnectionId,
        change: &ConnectionChange,
        at: OffsetDateTime,
    ) -> Result<ConnectionUpdated, StoreError>;

    /// Deletes a connection with its flows, and revokes the permission of their sessions to save a profile in the same
    /// transaction; `None` if there is no connection. Flows that may have a session are canceled, and stay until the
    /// session [has ended](Self::closed).
    async fn delete(&self, id: AuthConnectionId) -> Result<Option<ConnectionDeleted>, StoreError>;

    /// Stores a new flow if no other one of its kind, login or health check, is running. Stores an overdue one as
    /// expired.
    async fn begin(&self, flow: &Flow) -> Result<FlowBegun, StoreError>;

    /// Finds a flow.
    async fn flow(&self, id: AuthFlowId) -> Result<Option<Flow>, StoreError>;

    /// Stores a flow with the next revision if it was not changed since `flow` was read; returns whether it was stored.
    async fn put(&self, flow: &Flow) -> Result<bool, StoreError>;

    /// Like [`put`](Self::put), for a flow that ends, with the effects of its end in one transaction. Stores nothing if
    /// its connection was deleted.
    async fn end(&self, flow: &Flow, end: &FlowEnd) -> Result<bool, StoreError>;

    /// Stores that the flow's session has ended. A flow without a connection is deleted.
    async fn closed(&self, id: AuthFlowId) -> Result<(), StoreError>;

    /// Returns the flows that are running or may have a session, and that no other node runs. A node that was silent
    /// for [`Node::LOST_AFTER`](crate::node::Node::LOST_AFTER), by the store's own clock, runs none.
    async fn orphaned_flows(&self, node: NodeId) -> Result<Vec<OrphanedFlow>, StoreError>;

    /// Takes over a flow of [`orphaned_flows`](Self::orphaned_flows).
    async fn take(&self, id: AuthFlowId, node: NodeId) -> Result<Option<Flow>, StoreError>;

    /// Permits the session of a running flow to save its profile at its end. `over` permits it even if the session has
    /// not loaded the newest version.
    async fn permit_save(&self, flow: &Flow, over: bool) -> Result<ProfileSavePermission, StoreError>;

    /// Returns up to `max` connections with a due health check: checks are on, the profile is logged in, the last
    /// check is an interval ago, and no login is running. Each is due again after a minute at the earliest. Connections
    /// whose profile a session has loaded are postponed.
    async fn due(&self, now: OffsetDateTime, max: u32) -> Result<Vec<AuthConnection>, StoreError>;

    /// Deletes flows that ended before `before`, except the latest of each connection.
    async fn forget(&self, before: OffsetDateTime) -> Result<(), StoreError>;

    /// Lists the flows of a connection, newest first.
    async fn timeline(
        &self,
        id: AuthConnectionId,
        kind: Option<FlowKind>,
        page: Page,
    ) -> Result<Listed<TimelineEvent>, StoreError>;
}

/// Notifies that the flows of a connection may have changed.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait FlowChangeNotifier: Send + Sync {
    /// Returns a stream with an item whenever the connection should be read again. The first item may come at once; one
    /// item covers all changes that were missed.
    fn follow(&self, connection: AuthConnectionId) -> BoxStream<'static, ()>;
}

/// The item that is requested from a credential provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalWanted<'a> {
    /// The item at this path.
    Path(&'a str),
    /// The item for this domain.
    Domain(&'a str),
}

/// The item of a provider for a login. `Debug` shows no value.
#[derive(Default)]
pub struct ExternalLogin {
    /// The values by name: `username`, `password` …
    pub values: std::collections::BTreeMap<String, SecretString>,
    /// The secret of one-time codes, if the provider returns it.
    pub totp: Option<TotpSecret>,
    /// The current code, if the provider returns only that.
    pub totp_code: Option<SecretString>,
    /// The sites at which the values and codes may be typed.
    pub sites: Sites,
}

/// The credential providers that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderScope {
    /// The organization of the providers.
    pub organization: OrganizationId,
    /// The project that the providers must be shared with; `None`: all providers of the organization.
    pub project: Option<ProjectId>,
}

impl std::fmt::Debug for ExternalLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalLogin").field("keys", &self.values.keys()).finish_non_exhaustive()
    }
}

/// The port of flows to the credential providers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExternalCredentials: Send + Sync {
    /// Returns whether the provider with this name or id is enabled; `None`: whether any provider is.
    async fn known<'a>(&self, scope: ProviderScope, provider: Option<&'a str>) -> Result<bool, StoreError>;

    /// Fetches the item from a provider, or from the first provider by priority that has one; `None`: no item fits.
    ///
    /// # Errors
    /// Returns the error of the provider as a text for people, without secrets.
    async fn fetch<'a>(
        &self,
        scope: ProviderScope,
        provider: Option<&'a str>,
        wanted: ExternalWanted<'a>,
    ) -> Result<Option<ExternalLogin>, String>;
}

/// The implementation for an installation without credential providers.
pub struct NoExternalCredentials;

#[async_trait]
impl ExternalCredentials for NoExternalCredentials {
    async fn known<'a>(&self, _: ProviderScope, _: Option<&'a str>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn fetch<'a>(
        &self,
        _: ProviderScope,
        _: Option<&'a str>,
        _: ExternalWanted<'a>,
    ) -> Result<Option<ExternalLogin>, String> {
        Err("there are no credential providers".to_owned())
    }
}
