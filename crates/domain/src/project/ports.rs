//! What projects need from outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::Project;
use crate::ids::{OrganizationId, ProjectId};
use crate::organization::Organization;
use crate::page::{Listed, Page};
use crate::store_error::StoreError;

/// Which projects a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectFilter {
    /// Exactly this name, whatever the case and the accents.
    pub name: Option<String>,
    /// Substring of the name, whatever the case; or the whole identifier.
    pub query: Option<String>,
}

/// What became of a new project.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectStored {
    /// It is stored.
    Yes,
    /// Another one of the organization bears the name. Nothing was stored.
    NameTaken,
}

/// What became of a change.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectReplaced {
    /// It is stored.
    Yes,
    /// Somebody else changed the project first, or it is gone. Read again and decide again.
    LostRace,
    /// Another one of the organization bears the name. Nothing was stored.
    NameTaken,
}

/// How many of one kind a project has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceCount {
    /// For people: `sessions`.
    pub kind: &'static str,
    /// How many, at least one.
    pub count: u32,
}

/// What became of a deletion.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectDeleted {
    /// It is gone, with its keys.
    Yes,
    /// It was gone before, or is another organization's.
    Gone,
    /// It has active resources. Nothing was changed.
    InUse(Vec<ResourceCount>),
}

/// Where projects are kept. Soft-deleted ones are never found.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProjectRepository: Send + Sync {
    /// The project, if this organization has it. Another's is `None`, never an error.
    async fn find(&self, organization: OrganizationId, id: ProjectId) -> Result<Option<Project>, StoreError>;

    /// The project of that name, compared without case and accents.
    async fn find_by_name(&self, organization: OrganizationId, name: &str) -> Result<Option<Project>, StoreError>;

    /// The default project of the organization. Every organization has one; without, the store is broken.
    async fn default_of(&self, organization: OrganizationId) -> Result<Project, StoreError>;

    /// Stores a new one.
    async fn create(&self, project: &Project) -> Result<ProjectStored, StoreError>;

    /// The projects of an organization, newest first.
    async fn list(
        &self,
        organization: OrganizationId,
        filter: &ProjectFilter,
        page: Page,
    ) -> Result<Listed<Project>, StoreError>;

    /// Stores `next`, its name, status and limits, only if the row still is as `current` says.
    async fn replace(&self, current: &Project, next: &Project) -> Result<ProjectReplaced, StoreError>;

    /// Soft-deletes a project without active resources, and its keys with it, in one transaction that no creation in the
    /// organization can interleave.
    async fn delete(
        &self,
        organization: OrganizationId,
        id: ProjectId,
        at: OffsetDateTime,
    ) -> Result<ProjectDeleted, StoreError>;

    /// The organization itself, for its limits.
    async fn organization(&self, id: OrganizationId) -> Result<Organization, StoreError>;

    /// Sets what each project may have at once unless it says otherwise.
    async fn set_default_sessions(&self, id: OrganizationId, value: Option<u32>) -> Result<Organization, StoreError>;
}
