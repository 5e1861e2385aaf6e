//! The project of a request.

use std::sync::Arc;

use crate::api_key::Caller;
use crate::ids::{OrganizationId, ProjectId};
use crate::project::{Project, ProjectRepository, ProjectStatus};
use crate::store_error::StoreError;

/// The project that a request may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The project.
    pub project: Project,
    /// True if the request named no project. The request then also sees rows without a project.
    pub unscoped: bool,
    /// True if the caller's key belongs to the whole organization, not to one project.
    pub organization_wide: bool,
}

/// The error of resolving the project of a request.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The project header is not an identifier.
    #[error("the project header does not hold an identifier")]
    BadProject,
    /// The key belongs to another project.
    #[error("the key does not open this project")]
    OtherProject,
    /// The organization has no such project.
    #[error("project {0} not found")]
    ProjectNotFound(ProjectId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The error of a change in an archived project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("project {0} is archived")]
pub struct ProjectArchived(pub ProjectId);

impl Scope {
    /// Returns the project's id.
    #[must_use]
    pub fn project_id(&self) -> ProjectId {
        self.project.id
    }

    /// Returns the project's organization.
    #[must_use]
    pub fn organization(&self) -> OrganizationId {
        self.project.organization
    }

    /// # Errors
    /// [`ProjectArchived`] if the project accepts nothing new.
    pub fn writable(&self) -> Result<(), ProjectArchived> {
        match self.project.status {
            ProjectStatus::Active => Ok(()),
            ProjectStatus::Archived => Err(ProjectArchived(self.project.id)),
        }
    }
}

/// Resolves the projects of requests.
#[derive(Clone)]
pub struct Access {
    projects: Arc<dyn ProjectRepository>,
}

impl Access {
    /// Creates the resolver.
    #[must_use]
    pub fn new(projects: Arc<dyn ProjectRepository>) -> Self {
        Self { projects }
    }

    /// Returns the scope of `caller` with `header`, the text of the project header.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub async fn resolve(&self, caller: &Caller, header: Option<&str>) -> Result<Scope, AccessError> {
        let wanted = header.map(|text| text.parse::<ProjectId>().map_err(|_| AccessError::BadProject)).transpose()?;
        let organization_wide = caller.project.is_none();
        let id = match (caller.project, wanted) {
            (Some(own), Some(other)) if own != other => return Err(AccessError::OtherProject),
            (Some(own), _) => own,
            (None, Some(wanted)) => wanted,
            (None, None) => {
                let project = match &caller.home {
                    Some(home) => home.clone(),
                    None => self.projects.default_of(caller.organization).await?,
                };
                return Ok(Scope { project, unscoped: true, organization_wide });
            }
        };
        if let Some(home) = caller.home.as_ref().filter(|home| home.id == id) {
            return Ok(Scope { project: home.clone(), unscoped: false, organization_wide });
        }
        let project = self.projects.find(caller.organization, id).await?.ok_or(AccessError::ProjectNotFound(id))?;
        Ok(Scope { project, unscoped: false, organization_wide })
    }
}
