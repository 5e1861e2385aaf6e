//! What auth connections need from outside.

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

/// What became of a connection that was to be stored.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStored {
    /// It is stored.
    Yes,
    /// The profile has a connection to that domain. Nothing was stored.
    Exists,
    /// The project has as many as it may have. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project is gone. Nothing was stored.
    ProjectGone,
    /// What that field names was deleted meanwhile. Nothing was stored.
    ReferenceGone(&'static str),
}

/// What became of a connection that was to be changed.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionUpdated {
    /// As it is now.
    Yes(Box<AuthConnection>),
    /// What that field names was deleted meanwhile. Nothing was changed.
    ReferenceGone(&'static str),
    /// There is no such connection.
    NotFound,
}

/// What a connection that was deleted leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionDeleted {
    /// The sessions of its flows, which are to end. None of them saves its profile any more.
    pub sessions: Vec<SessionId>,
}

/// What became of a flow that was to begin.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowBegun {
    /// It is stored.
    Yes,
    /// One goes on already. Nothing was stored.
    Running(Box<Flow>),
    /// The connection is gone.
    Gone,
}

/// Whether a flow's session may save its profile.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileSavePermission {
    /// It may, or has already.
    Yes,
    /// Another flow is saving the profile just now.
    NotYet,
    /// The profile has got another version since the session has loaded it.
    Outdated,
    /// It may not: the flow has ended, or its session.
    No,
}

/// What a login that succeeded was given, as it is kept with its end. That it cannot be kept does not undo the login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectedCredential {
    /// As a new credential, if its name is free and the project has fewer than `most`.
    New {
        /// The credential.
        credential: Box<Credential>,
        /// Sealed.
        secrets: SealedSecrets,
        /// How many credentials a project may have.
        most: u32,
    },
    /// In one that is there.
    Changed {
        /// Which.
        id: CredentialId,
        /// How.
        change: CredentialChange,
    },
}

/// What a flow that ends does to its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowEnd {
    /// Whether the profile is logged in, if that is known now.
    pub status: Option<ConnectionStatus>,
    /// What a login that succeeded was asked for.
    pub needs: Option<Vec<FlowRequirement>>,
    /// What it was given, to be kept.
    pub kept: Option<CollectedCredential>,
    /// What the credential that it is kept as is called, for a connection that names none.
    pub credential: Option<String>,
    /// When it was looked whether the login holds.
    pub checked_at: Option<OffsetDateTime>,
    /// The flow that follows on it, unless one goes on already.
    pub next: Option<Box<Flow>>,
}

/// A flow that nobody carries, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrphanedFlow {
    /// The flow.
    pub flow: AuthFlowId,
    /// Its connection.
    pub connection: AuthConnectionId,
}

/// Which connections a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// Exactly, in lower case.
    pub domain: Option<String>,
    /// Exactly, without case and accents.
    pub profile_name: Option<String>,
    /// Substring of domain or profile name, without case; or a whole identifier.
    pub query: Option<String>,
}

/// Where connections and their flows are kept. Whoever reads a connection gets it with its latest login and with the credential that it
/// names. Every change of a flow, and the end of a connection, is told to those who follow: see [`FlowChangeNotifier`].
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait AuthConnectionRepository: Send + Sync {
    /// Stores a new connection, if the project has fewer than `most` and its profile, its proxy and what has its credential are still there.
    async fn create(&self, connection: &AuthConnection, most: u32) -> Result<ConnectionStored, StoreError>;

    /// The project's connection.
    async fn find(&self, project: ProjectId, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError>;

    /// The connection, whoever's it is.
    async fn any(&self, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError>;

    /// The project's connections, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &ConnectionFilter,
        page: Page,
    ) -> Result<Listed<AuthConnection>, StoreError>;

    /// Changes what is given, if the proxy and what has the credential are still there.
    async fn update(
        &self,
        id: AuthConnectionId,
        change: &ConnectionChange,
        at: OffsetDateTime,
    ) -> Result<ConnectionUpdated, StoreError>;

    /// Deletes it with its flows, and takes from their sessions, in the same transaction, the right to save a profile; `None` if it was not
    /// there. Flows that may have a session are cancelled, and stay until that [has ended](Self::closed).
    async fn delete(&self, id: AuthConnectionId) -> Result<Option<ConnectionDeleted>, StoreError>;

    /// Stores a new flow if none of its sort goes on: a login, or a look. One whose time is over at the new one's beginning is stored
    /// as expired.
    async fn begin(&self, flow: &Flow) -> Result<FlowBegun, StoreError>;

    /// The flow.
    async fn flow(&self, id: AuthFlowId) -> Result<Option<Flow>, StoreError>;

    /// Stores what a flow is now, with its revision counted up, if nobody stored it since `flow` was read; whether it was.
    async fn put(&self, flow: &Flow) -> Result<bool, StoreError>;

    /// As [`put`](Self::put), of a flow that ends, with all that its end does, or nothing of both. Nothing if its connection is gone.
    async fn end(&self, flow: &Flow, end: &FlowEnd) -> Result<bool, StoreError>;

    /// Nothing of the flow's session is left. A flow without a connection is forgotten.
    async fn closed(&self, id: AuthFlowId) -> Result<(), StoreError>;

    /// The flows that go on, or that may have a session, and that nobody else carries. A node that was silent for
    /// [`Node::LOST_AFTER`](crate::node::Node::LOST_AFTER), by the store's own clock, carries none.
    async fn to_carry(&self, node: NodeId) -> Result<Vec<OrphanedFlow>, StoreError>;

    /// Takes a flow on that [is to be carried](Self::to_carry).
    async fn take(&self, id: AuthFlowId, node: NodeId) -> Result<Option<Flow>, StoreError>;

    /// Lets the session of a flow that goes on save its profile at its end; also `over` a version that it has not loaded.
    async fn let_save(&self, flow: &Flow, over: bool) -> Result<ProfileSavePermission, StoreError>;

    /// Connections whose login is to be looked at: checked, logged in and not looked at for their interval, and not logging in. Up to
    /// `most`, each of which is due again only after a minute. Those whose profile a session has loaded are put off.
    async fn due(&self, now: OffsetDateTime, most: u32) -> Result<Vec<AuthConnection>, StoreError>;

    /// Forgets flows that ended before, but the latest of each connection.
    async fn forget(&self, before: OffsetDateTime) -> Result<(), StoreError>;

    /// What happened, newest first.
    async fn timeline(
        &self,
        id: AuthConnectionId,
        kind: Option<FlowKind>,
        page: Page,
    ) -> Result<Listed<TimelineEvent>, StoreError>;
}

/// Tells when something about a connection's flows may have changed.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait FlowChangeNotifier: Send + Sync {
    /// An item each time to look again. The first may come at once; what was missed is made up for by one.
    fn follow(&self, connection: AuthConnectionId) -> BoxStream<'static, ()>;
}

/// What is wanted of a credential provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalWanted<'a> {
    /// One item, in the provider's own words.
    Path(&'a str),
    /// The item for a domain.
    Domain(&'a str),
}

/// What a provider has for a login. `Debug` shows no value.
#[derive(Default)]
pub struct ExternalLogin {
    /// By name: `username`, `password` …
    pub values: std::collections::BTreeMap<String, SecretString>,
    /// What codes are made of, if it gives that.
    pub totp: Option<TotpSecret>,
    /// The code that holds now, if it gives that alone.
    pub totp_code: Option<SecretString>,
    /// Where all of that may be typed.
    pub sites: Sites,
}

/// Which credential providers may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderScope {
    /// Whose.
    pub organization: OrganizationId,
    /// Only those lent to this project, and the others are as if there were none; `None`: all of the organization's.
    pub project: Option<ProjectId>,
}

impl std::fmt::Debug for ExternalLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalLogin").field("keys", &self.values.keys()).finish_non_exhaustive()
    }
}

/// Credential providers, as flows ask them.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExternalCredentials: Send + Sync {
    /// Whether there is a provider of that name that is in use; `None`: whether any is.
    async fn known<'a>(&self, scope: ProviderScope, provider: Option<&'a str>) -> Result<bool, StoreError>;

    /// What it has, or the first in their order that has something; `None`: nothing that fits.
    ///
    /// # Errors
    /// Why it cannot be asked, for people, without secrets.
    async fn fetch<'a>(
        &self,
        scope: ProviderScope,
        provider: Option<&'a str>,
        wanted: ExternalWanted<'a>,
    ) -> Result<Option<ExternalLogin>, String>;
}

/// For an installation without credential providers.
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
