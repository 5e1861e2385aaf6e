//! Which project a request is about.

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
    /// Whether the request named no project: it then also sees rows from before projects.
    pub unscoped: bool,
    /// Whether the caller's key is of the whole organization, not of this project alone.
    pub organization_wide: bool,
}

/// A request reaches no project.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The header does not hold an identifier.
    #[error("the project header does not hold an identifier")]
    BadProject,
    /// The key opens another project only.
    #[error("the key does not open this project")]
    OtherProject,
    /// The organization has no such project.
    #[error("project {0} not found")]
    ProjectNotFound(ProjectId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A project that is archived takes nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("project {0} is archived")]
pub struct ProjectArchived(pub ProjectId);

impl Scope {
    /// The project's id.
    #[must_use]
    pub fn project_id(&self) -> ProjectId {
        self.project.id
    }

    /// The project's organization.
    #[must_use]
    pub fn organization(&self) -> OrganizationId {
        self.project.organization
    }

    /// # Errors
    /// [`ProjectArchived`] if the project takes nothing new.
    pub fn writable(&self) -> Result<(), ProjectArchived> {
        match self.project.status {
            ProjectStatus::Active => Ok(()),
            ProjectStatus::Archived => Err(ProjectArchived(self.project.id)),
        }
    }
}

/// Resolves projects.
#[derive(Clone)]
pub struct Access {
    projects: Arc<dyn ProjectRepository>,
}

impl Access {
    /// Resolution on this port.
    #[must_use]
    pub fn new(projects: Arc<dyn ProjectRepository>) -> Self {
        Self { projects }
    }

    /// The project that `caller` means with `header`, the text of the project header.
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
