//! Where deployments and what programs say are kept, and how news of them travels.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AppVersion, Deployment, DeploymentSecret, DeploymentStatus, Line, SealedDeployment};
use crate::api_key::ApiKey;
use crate::ids::{DeploymentId, InvocationId, NodeId, OrganizationId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::store_error::{Replaced, StoreError};

/// What became of a deployment that was to be stored.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeploymentStored {
    /// It is stored.
    Yes,
    /// The project has as many as it may have. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project is gone. Nothing was stored.
    ProjectGone,
}

/// What became of apps that were to be registered.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    /// They are, and the deployment runs; these deployments gave way.
    Yes(Vec<Deployment>),
    /// An app has the version already. Nothing was changed.
    VersionExists {
        /// Which app.
        app: String,
    },
    /// Somebody else moved the deployment first. Nothing was changed.
    LostRace,
}

/// Which deployments a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentFilter {
    /// Those that registered an app of exactly this name.
    pub app_name: Option<String>,
    /// Those with exactly this version.
    pub app_version: Option<String>,
    /// A whole identifier, or part of the name of an app, without case.
    pub query: Option<String>,
}

/// Which apps a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppFilter {
    /// Exactly.
    pub app_name: Option<String>,
    /// Exactly.
    pub version: Option<String>,
    /// Part of the name, without case.
    pub query: Option<String>,
}

/// An app with the names of its deployment's variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedApp {
    /// The app.
    pub app: AppVersion,
    /// Sorted.
    pub env_names: Vec<String>,
}

/// One secret as it is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedDeploymentSecret {
    /// Whose.
    pub deployment: DeploymentId,
    /// Which one.
    pub secret: DeploymentSecret,
    /// Sealed in [`Deployment::place`].
    pub sealed: Vec<u8>,
}

/// Where deployments and the apps that they registered are kept. Whatever changes one tells those who wait for news of it.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait DeploymentRepository: Send + Sync {
    /// Stores a new deployment with its secrets and its key, if the project has fewer than `most` that have not ended.
    async fn create(
        &self,
        organization: OrganizationId,
        deployment: &Deployment,
        secrets: &SealedDeployment,
        key: &ApiKey,
        most: u32,
    ) -> Result<DeploymentStored, StoreError>;

    /// The project's deployment.
    async fn find(&self, project: ProjectId, id: DeploymentId) -> Result<Option<Deployment>, StoreError>;

    /// The deployment, whosever it is.
    async fn get(&self, id: DeploymentId) -> Result<Option<Deployment>, StoreError>;

    /// The project's deployments, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &DeploymentFilter,
        page: Page,
    ) -> Result<Listed<Deployment>, StoreError>;

    /// Its secrets, as they are sealed.
    async fn secrets(&self, id: DeploymentId) -> Result<Option<SealedDeployment>, StoreError>;

    /// Stores `next` only if the row still has the status and the lease of `current`. One that has ended has no app registered any more,
    /// and its key is deleted, both in the same transaction.
    async fn replace(&self, current: &Deployment, next: &Deployment) -> Result<Replaced, StoreError>;

    /// Stores `next`, which runs, as [`replace`](Self::replace) does, and registers its apps, in one transaction that no other
    /// registration of the project can interleave. An app that has the version already is an obstacle, unless the deployment may take
    /// its place and is the later one; then the deployment that it was of moves as [`DeploymentEvent::Replaced`](super::DeploymentEvent).
    async fn register(
        &self,
        current: &Deployment,
        next: &Deployment,
        apps: &[AppVersion],
    ) -> Result<Registered, StoreError>;

    /// Up to `most` deployments that `node` may build, the oldest of every project before the second of any, and so on, else oldest first: those that nobody builds, those whose lease is over at `now`, and
    /// those that the node itself holds with a lease that is over before `own_before`.
    async fn due(
        &self,
        node: NodeId,
        now: OffsetDateTime,
        own_before: OffsetDateTime,
        most: u32,
    ) -> Result<Vec<Deployment>, StoreError>;

    /// Prolongs the lease of that number; `false` if it is not in force any more.
    async fn renew(&self, id: DeploymentId, number: u32, until: OffsetDateTime) -> Result<bool, StoreError>;

    /// Up to `most` deployments that run, those that were invoked or registered last first.
    async fn running(&self, most: u32) -> Result<Vec<Deployment>, StoreError>;

    /// The apps that a deployment registered.
    async fn apps_of(&self, id: DeploymentId) -> Result<Vec<AppVersion>, StoreError>;

    /// The project's app at that version, and where its deployment stands: the one that runs, else the one that did last.
    async fn find_app(
        &self,
        project: ProjectId,
        name: &str,
        version: &str,
    ) -> Result<Option<(AppVersion, DeploymentStatus)>, StoreError>;

    /// The project's apps whose deployments run, newest first.
    async fn list_apps(
        &self,
        project: ProjectId,
        filter: &AppFilter,
        page: Page,
    ) -> Result<Listed<ListedApp>, StoreError>;

    /// Those of `ids` whose source is needed still: they are not built yet, and have not ended.
    async fn unbuilt(&self, ids: &[DeploymentId]) -> Result<Vec<DeploymentId>, StoreError>;

    /// Up to `most` artifacts of which every deployment ended before `before`, in projects where nothing is being built. From now on no
    /// deployment names them.
    async fn release_artifacts(&self, before: OffsetDateTime, most: u32) -> Result<Vec<String>, StoreError>;

    /// Those of the artifacts that no deployment names.
    async fn unnamed_artifacts(&self, artifacts: &[String]) -> Result<Vec<String>, StoreError>;

    /// Up to `most` secrets that are not sealed under `key`.
    async fn sealed_with_other_key(&self, key: KeyId, most: u32) -> Result<Vec<SealedDeploymentSecret>, StoreError>;

    /// Puts `next` in the place of `current`, unless that was changed meanwhile.
    async fn reseal(&self, current: &SealedDeploymentSecret, next: &[u8]) -> Result<(), StoreError>;

    /// The keys that secrets are sealed under.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// Whose lines they are, or what there is news of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A build.
    Deployment(DeploymentId),
    /// A call.
    Invocation(InvocationId),
}

/// How many lines of a subject are kept, and how long they are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredLines {
    /// The number that the next line bears.
    pub next: u64,
    /// What is kept already, in bytes.
    pub bytes: u64,
    /// Whether nothing more is kept: the bound was reached, and a last line says so.
    pub full: bool,
}

/// What of the lines of a subject is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRange {
    /// Lines from this number on.
    pub from: u64,
    /// Only those written at this moment or later.
    pub since: Option<OffsetDateTime>,
    /// At most so many.
    pub most: u32,
}

/// Where the lines are kept that programs write.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LineStore: Send + Sync {
    /// Keeps those lines whose number is [`StoredLines::next`] or higher, as [`keep`](super::keep) cuts them, and tells those who wait for news.
    async fn append(&self, subject: Subject, lines: &[Line]) -> Result<StoredLines, StoreError>;

    /// How much is kept.
    async fn kept(&self, subject: Subject) -> Result<StoredLines, StoreError>;

    /// The lines, in their order.
    async fn page(&self, subject: Subject, span: LineRange) -> Result<Vec<Line>, StoreError>;

    /// Forgets some lines of builds and calls of which the last was written before `before`: of up to `most` of these, and not more than can
    /// be forgotten in a moment. How much was forgotten; nothing is left to forget if it was nothing.
    async fn forget(&self, before: OffsetDateTime, most: u32) -> Result<usize, StoreError>;
}

/// What ended a wait for news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// Something changed, or may have.
    Changed,
    /// The time was up.
    TimeUp,
    /// The server stops.
    Closed,
}

/// Somebody who waits for news. Misses nothing that is said after it was made.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ChangeWaiter: Send {
    /// Waits for news, until `until` at the longest. Safe to cancel.
    async fn next(&mut self, until: Option<OffsetDateTime>) -> WakeReason;
}

/// News of deployments and invocations, from whatever node.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait ChangeNotifier: Send + Sync {
    /// From now on.
    fn expect(&self, subject: Subject) -> Box<dyn ChangeWaiter>;
}
