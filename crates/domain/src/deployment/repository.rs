//! The ports to stored deployments and log lines, and to notifications of their changes.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AppVersion, Deployment, DeploymentSecret, DeploymentStatus, Line, SealedDeployment};
use crate::api_key::ApiKey;
use crate::ids::{DeploymentId, InvocationId, NodeId, OrganizationId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::store_error::{Replaced, StoreError};

/// The result of storing a deployment.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeploymentStored {
    /// Stored.
    Yes,
    /// The project has the maximum number of deployments; nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted; nothing was stored.
    ProjectGone,
}

/// The result of registering apps.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    /// Registered, and the deployment runs. These deployments were replaced.
    Yes(Vec<Deployment>),
    /// An app has the version already; nothing was changed.
    VersionExists {
        /// The app.
        app: String,
    },
    /// Another call changed the deployment first; nothing was changed.
    LostRace,
}

/// The filter of a list of deployments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentFilter {
    /// The whole name of an app that the deployment registered.
    pub app_name: Option<String>,
    /// The whole version.
    pub app_version: Option<String>,
    /// A whole id, or a part of the name of an app, in any case.
    pub query: Option<String>,
}

/// The filter of a list of apps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppFilter {
    /// The whole name.
    pub app_name: Option<String>,
    /// The whole version.
    pub version: Option<String>,
    /// A part of the name, in any case.
    pub query: Option<String>,
}

/// An app with the names of its deployment's environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedApp {
    /// The app.
    pub app: AppVersion,
    /// The names, sorted.
    pub env_names: Vec<String>,
}

/// One sealed secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedDeploymentSecret {
    /// The deployment.
    pub deployment: DeploymentId,
    /// The kind of the secret, with the name of a variable.
    pub secret: DeploymentSecret,
    /// The secret, sealed for [`Deployment::place`].
    pub sealed: Vec<u8>,
}

/// The port to the stored deployments and their apps. Every change notifies the waiters of the deployment.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait DeploymentRepository: Send + Sync {
    /// Stores a new deployment with its secrets and its API key, if the project has fewer than `max` that have not
    /// ended.
    async fn create(
        &self,
        organization: OrganizationId,
        deployment: &Deployment,
        secrets: &SealedDeployment,
        key: &ApiKey,
        max: u32,
    ) -> Result<DeploymentStored, StoreError>;

    /// Returns the project's deployment.
    async fn find(&self, project: ProjectId, id: DeploymentId) -> Result<Option<Deployment>, StoreError>;

    /// Returns the deployment of any project.
    async fn get(&self, id: DeploymentId) -> Result<Option<Deployment>, StoreError>;

    /// Returns the project's deployments, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &DeploymentFilter,
        page: Page,
    ) -> Result<Listed<Deployment>, StoreError>;

    /// Returns the sealed secrets of a deployment.
    async fn secrets(&self, id: DeploymentId) -> Result<Option<SealedDeployment>, StoreError>;

    /// Stores `next` only if the row still has the status and the lease of `current`. If `next` has ended, its apps and
    /// its API key are deleted in the same transaction.
    async fn replace(&self, current: &Deployment, next: &Deployment) -> Result<Replaced, StoreError>;

    /// Stores `next`, which runs, as [`replace`](Self::replace) does, and registers its apps. Registrations of one
    /// project do not run concurrently. If an app has the version already, nothing is registered, unless the deployment
    /// is forced and newer; then the previous deployment ends as by
    /// [`DeploymentEvent::Replaced`](super::DeploymentEvent).
    async fn register(
        &self,
        current: &Deployment,
        next: &Deployment,
        apps: &[AppVersion],
    ) -> Result<Registered, StoreError>;

    /// Returns up to `max` deployments that `node` may build: queued ones, those whose lease is over at `now`, and
    /// those that the node itself holds with a lease that is over before `own_before`. The oldest of every project
    /// comes before the second of any, and so on.
    async fn due(
        &self,
        node: NodeId,
        now: OffsetDateTime,
        own_before: OffsetDateTime,
        max: u32,
    ) -> Result<Vec<Deployment>, StoreError>;

    /// Extends the lease with this number; returns `false` if the lease is no longer in force.
    async fn renew(&self, id: DeploymentId, number: u32, until: OffsetDateTime) -> Result<bool, StoreError>;

    /// Returns up to `max` running deployments, the last invoked or registered ones first.
    async fn running(&self, max: u32) -> Result<Vec<Deployment>, StoreError>;

    /// Returns the apps that a deployment registered.
    async fn apps_of(&self, id: DeploymentId) -> Result<Vec<AppVersion>, StoreError>;

    /// Returns the project's app at this version and the status of its deployment: the running one, else the one that
    /// ran last.
    async fn find_app(
        &self,
        project: ProjectId,
        name: &str,
        version: &str,
    ) -> Result<Option<(AppVersion, DeploymentStatus)>, StoreError>;

    /// Returns the project's apps with a running deployment, newest first.
    async fn list_apps(
        &self,
        project: ProjectId,
        filter: &AppFilter,
        page: Page,
    ) -> Result<Listed<ListedApp>, StoreError>;

    /// Returns those of `ids` whose source is still needed: they are not built and have not ended.
    async fn unbuilt(&self, ids: &[DeploymentId]) -> Result<Vec<DeploymentId>, StoreError>;

    /// Releases and returns up to `max` artifacts whose deployments all ended before `before`, in projects without a
    /// build in progress. No deployment refers to them from then on.
    async fn release_artifacts(&self, before: OffsetDateTime, max: u32) -> Result<Vec<String>, StoreError>;

    /// Returns those of the artifacts that no deployment refers to.
    async fn unnamed_artifacts(&self, artifacts: &[String]) -> Result<Vec<String>, StoreError>;

    /// Returns up to `max` secrets that are sealed with another key than `key`.
    async fn sealed_with_other_key(&self, key: KeyId, max: u32) -> Result<Vec<SealedDeploymentSecret>, StoreError>;

    /// Replaces `current` by `next`, unless it was changed meanwhile.
    async fn reseal(&self, current: &SealedDeploymentSecret, next: &[u8]) -> Result<(), StoreError>;

    /// Returns the keys that secrets are sealed with.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// The subject of lines and notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A deployment, or its build.
    Deployment(DeploymentId),
    /// An invocation.
    Invocation(InvocationId),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deployment(id) => id.fmt(f),
            Self::Invocation(id) => id.fmt(f),
        }
    }
}

/// The totals of the stored lines of a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredLines {
    /// The number of the next line.
    pub next: u64,
    /// The stored bytes.
    pub bytes: u64,
    /// True if the limit is reached: a last line reports it, and no more lines are stored.
    pub full: bool,
}

/// A range of the lines of a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRange {
    /// The first number.
    pub from: u64,
    /// The earliest time of writing.
    pub since: Option<OffsetDateTime>,
    /// The maximum number of lines.
    pub max: u32,
}

/// The port to the stored lines.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LineStore: Send + Sync {
    /// Stores the lines from number [`StoredLines::next`] on, as [`keep`](super::keep) cuts them, and notifies the
    /// waiters.
    async fn append(&self, subject: Subject, lines: &[Line]) -> Result<StoredLines, StoreError>;

    /// Returns the totals of the stored lines.
    async fn stored(&self, subject: Subject) -> Result<StoredLines, StoreError>;

    /// Returns the lines in order.
    async fn page(&self, subject: Subject, span: LineRange) -> Result<Vec<Line>, StoreError>;

    /// Deletes lines of up to `max` builds and invocations whose last line was written before `before`, as many as can
    /// be deleted in a short time. Returns the number of deleted lines, 0 if none are left.
    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError>;
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// The subject changed, or may have changed.
    Changed,
    /// The time was up.
    TimeUp,
    /// The server is stopping.
    Closed,
}

/// A waiter for changes. It receives every notification after its creation.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ChangeWaiter: Send {
    /// Waits for a change, at most until `until`. Safe to cancel.
    async fn next(&mut self, until: Option<OffsetDateTime>) -> WakeReason;
}

/// The notifications of changes of deployments and invocations, from all nodes.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait ChangeNotifier: Send + Sync {
    /// Subscribes to a subject.
    fn expect(&self, subject: Subject) -> Box<dyn ChangeWaiter>;
}
