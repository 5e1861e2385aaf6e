//! The port to stored invocations.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Invocation, InvocationStatus};
use crate::ids::{DeploymentId, InvocationId, NodeId, OrganizationId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::store_error::{Replaced, StoreError};

/// The result of storing an invocation.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvocationStored {
    /// Stored.
    Yes,
    /// The request exceeds a limit; nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The deployment no longer runs; nothing was stored.
    NotRunning,
    /// The project was deleted; nothing was stored.
    ProjectGone,
}

/// The filter of a list of invocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvocationFilter {
    /// The whole name of the app.
    pub app_name: Option<String>,
    /// The whole name of the action.
    pub action_name: Option<String>,
    /// The whole version.
    pub version: Option<String>,
    /// The status.
    pub status: Option<InvocationStatus>,
    /// The deployment.
    pub deployment: Option<DeploymentId>,
    /// The earliest time of acceptance.
    pub since: Option<OffsetDateTime>,
    /// A whole identifier, or a part of the name of an app or action, in any case.
    pub query: Option<String>,
}

/// The port to stored invocations.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait InvocationRepository: Send + Sync {
    /// Stores a new invocation of a running deployment, if [`admit`](crate::organization::admit) allows it. Creations
    /// of one organization do not run concurrently.
    async fn create(
        &self,
        organization: OrganizationId,
        invocation: &Invocation,
    ) -> Result<InvocationStored, StoreError>;

    /// Returns the project's invocation.
    async fn find(&self, project: ProjectId, id: InvocationId) -> Result<Option<Invocation>, StoreError>;

    /// Returns the invocation of any project.
    async fn get(&self, id: InvocationId) -> Result<Option<Invocation>, StoreError>;

    /// Returns only the status of the invocation.
    async fn status(&self, id: InvocationId) -> Result<Option<InvocationStatus>, StoreError>;

    /// Returns the project's invocations, newest first. A page with large payloads and outputs may have fewer items.
    async fn list(
        &self,
        project: ProjectId,
        filter: &InvocationFilter,
        page: Page,
    ) -> Result<Listed<Invocation>, StoreError>;

    /// Stores `next` only if the row still has the status of `current`.
    async fn replace(&self, current: &Invocation, next: &Invocation) -> Result<Replaced, StoreError>;

    /// Returns up to `max` queued invocations, the oldest of every project before the second of any, and so on.
    async fn queued(&self, max: u32) -> Result<Vec<Invocation>, StoreError>;

    /// Returns the running invocations of a node.
    async fn running_on(&self, node: NodeId) -> Result<Vec<Invocation>, StoreError>;

    /// Returns up to `max` unfinished invocations whose deadline has passed at `now`.
    async fn overdue(&self, now: OffsetDateTime, max: u32) -> Result<Vec<Invocation>, StoreError>;

    /// Returns the unfinished invocations of a deployment.
    async fn unfinished_of(&self, deployment: DeploymentId) -> Result<Vec<Invocation>, StoreError>;

    /// Returns up to `max` unfinished invocations of deployments that have ended.
    async fn stranded(&self, max: u32) -> Result<Vec<Invocation>, StoreError>;

    /// Returns up to `max` cancelled invocations with sessions that have not ended.
    async fn canceled_with_sessions(&self, max: u32) -> Result<Vec<InvocationId>, StoreError>;

    /// Deletes up to `max` invocations that ended before `before` and have no active session; returns their number.
    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError>;
}
