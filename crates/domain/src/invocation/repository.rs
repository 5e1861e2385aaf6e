//! The port to stored invocations.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Invocation, InvocationStatus};
use crate::ids::{DeploymentId, InvocationId, NodeId, OrganizationId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::store_error::{Replaced, StoreError};

/// What became of an invocation that was to be stored.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvocationStored {
    /// It is stored.
    Yes,
    /// The request exceeds a limit. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// Its deployment does not run any more. Nothing was stored.
    NotRunning,
    /// The project was deleted. Nothing was stored.
    ProjectGone,
}

/// Which invocations a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvocationFilter {
    /// Exactly.
    pub app_name: Option<String>,
    /// Exactly.
    pub action_name: Option<String>,
    /// Exactly.
    pub version: Option<String>,
    /// Exactly.
    pub status: Option<InvocationStatus>,
    /// Of this deployment.
    pub deployment: Option<DeploymentId>,
    /// Accepted then or later.
    pub since: Option<OffsetDateTime>,
    /// A whole identifier, or part of the name of an app or action, without case.
    pub query: Option<String>,
}

/// The port to stored invocations.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait InvocationRepository: Send + Sync {
    /// Stores a new invocation of a deployment that runs, in one transaction that no other of the organization can interleave; the limits
    /// decide by [`admit`](crate::organization::admit).
    async fn create(
        &self,
        organization: OrganizationId,
        invocation: &Invocation,
    ) -> Result<InvocationStored, StoreError>;

    /// The project's invocation.
    async fn find(&self, project: ProjectId, id: InvocationId) -> Result<Option<Invocation>, StoreError>;

    /// The invocation, whosever it is.
    async fn get(&self, id: InvocationId) -> Result<Option<Invocation>, StoreError>;

    /// Where the invocation stands, without all that it holds.
    async fn status(&self, id: InvocationId) -> Result<Option<InvocationStatus>, StoreError>;

    /// The project's invocations, newest first. A page whose payloads and outputs are large has fewer than it may.
    async fn list(
        &self,
        project: ProjectId,
        filter: &InvocationFilter,
        page: Page,
    ) -> Result<Listed<Invocation>, StoreError>;

    /// Stores `next` only if the row still has the status of `current`.
    async fn replace(&self, current: &Invocation, next: &Invocation) -> Result<Replaced, StoreError>;

    /// Up to `most` invocations that nobody runs: the oldest of every project before the second of any, and so on, else oldest first.
    async fn queued(&self, most: u32) -> Result<Vec<Invocation>, StoreError>;

    /// Those that a node runs.
    async fn running_on(&self, node: NodeId) -> Result<Vec<Invocation>, StoreError>;

    /// Up to `most` that have not ended although their time is over at `now`.
    async fn overdue(&self, now: OffsetDateTime, most: u32) -> Result<Vec<Invocation>, StoreError>;

    /// Those of a deployment that have not ended.
    async fn unfinished_of(&self, deployment: DeploymentId) -> Result<Vec<Invocation>, StoreError>;

    /// Up to `most` that have not ended although their deployment has.
    async fn stranded(&self, most: u32) -> Result<Vec<Invocation>, StoreError>;

    /// Up to `most` that were cancelled although they have sessions that have not ended.
    async fn canceled_with_sessions(&self, most: u32) -> Result<Vec<InvocationId>, StoreError>;

    /// Forgets up to `most` that ended before `before` and have no session that has not ended; how many there were.
    async fn forget(&self, before: OffsetDateTime, most: u32) -> Result<usize, StoreError>;
}
