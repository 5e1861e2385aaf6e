//! What projects need from outside.

use async_trait::async_trait;

use super::Project;
use crate::ids::{OrganizationId, ProjectId};
use crate::store_error::StoreError;

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
}
