//! The ports of projects.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::Project;
use crate::ids::{OrganizationId, ProjectId};
use crate::organization::{Organization, OrganizationUsage};
use crate::page::{Listed, Page};
use crate::store_error::StoreError;

/// The filter of a list of projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectFilter {
    /// The exact name, compared without case and accents.
    pub name: Option<String>,
    /// A substring of the name, compared without case, or the whole identifier.
    pub query: Option<String>,
}

/// The result of storing a new project.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectStored {
    /// The project is stored.
    Yes,
    /// Another project of the organization has the name. Nothing was stored.
    NameTaken,
}

/// The result of a change.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectReplaced {
    /// The change is stored.
    Yes,
    /// The project was changed or deleted in the meantime. The caller must read it again.
    LostRace,
    /// Another project of the organization has the name. Nothing was stored.
    NameTaken,
}

/// The number of active resources of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceCount {
    /// The kind as text, such as `sessions`.
    pub kind: &'static str,
    /// The number, at least one.
    pub count: u32,
}

/// The result of a deletion.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectDeleted {
    /// The project is deleted, with its API keys.
    Yes,
    /// The project does not exist or belongs to another organization.
    Gone,
    /// The project has active resources. Nothing was changed.
    InUse(Vec<ResourceCount>),
}

/// The port to the stored projects. Deleted projects are never returned.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProjectRepository: Send + Sync {
    /// Returns the project if it belongs to this organization, else `None`.
    async fn find(&self, organization: OrganizationId, id: ProjectId) -> Result<Option<Project>, StoreError>;

    /// Returns the project with this name, compared without case and accents.
    async fn find_by_name(&self, organization: OrganizationId, name: &str) -> Result<Option<Project>, StoreError>;

    /// Returns the default project of the organization; an error of the store if there is none.
    async fn default_of(&self, organization: OrganizationId) -> Result<Project, StoreError>;

    /// Stores a new project.
    async fn create(&self, project: &Project) -> Result<ProjectStored, StoreError>;

    /// Returns the projects of an organization, newest first.
    async fn list(
        &self,
        organization: OrganizationId,
        filter: &ProjectFilter,
        page: Page,
    ) -> Result<Listed<Project>, StoreError>;

    /// Stores name, status and limits of `next` if the row still equals `current`.
    async fn replace(&self, current: &Project, next: &Project) -> Result<ProjectReplaced, StoreError>;

    /// Marks a project without active resources and its API keys as deleted, in one transaction that excludes
    /// concurrent creations in the organization.
    async fn delete(
        &self,
        organization: OrganizationId,
        id: ProjectId,
        at: OffsetDateTime,
    ) -> Result<ProjectDeleted, StoreError>;

    /// Returns the organization with its limits.
    async fn organization(&self, id: OrganizationId) -> Result<Organization, StoreError>;

    /// Returns the usage of the organization.
    async fn usage(&self, id: OrganizationId) -> Result<OrganizationUsage, StoreError>;

    /// Sets the default limits of projects.
    async fn set_default_sessions(&self, id: OrganizationId, value: Option<u32>) -> Result<Organization, StoreError>;
}
