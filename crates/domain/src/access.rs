//! The project of a request.

use std::sync::Arc;

use ulid::Ulid;

use crate::api_key::Caller;
use crate::field::{FieldCode, InvalidValue};
use crate::ids::{OrganizationId, ProjectId};
use crate::permission::{Action, Kind, Permissions, Target, Verb, Which};
use crate::project::{Project, ProjectRepository, ProjectStatus};
use crate::store_error::StoreError;

/// The project that a request may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The project.
    pub project: Project,
    /// True if the request named no project.
    pub unscoped: bool,
    /// True if the caller's key belongs to the whole organization, not to one project, and has no policy.
    pub organization_wide: bool,
    /// What the caller's key allows.
    pub permissions: Permissions,
}

/// The project that a request names, in either of two headers or in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedProject<'a> {
    /// The text of the header with an identifier.
    pub id: Option<&'a str>,
    /// The text of the header with an identifier or a name.
    pub id_or_name: Option<&'a str>,
}

/// The error of resolving the project of a request.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The header with the identifier of a project has no identifier.
    #[error("the project header does not hold an identifier")]
    BadProject,
    /// The two headers name different projects.
    #[error("the two project headers name different projects")]
    DifferentProjects,
    /// The key belongs to another project.
    #[error("the key does not open this project")]
    OtherProject,
    /// The organization has no such project.
    #[error("project {0} not found")]
    ProjectNotFound(String),
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

    /// Returns whether the request also sees rows without a project: it names none, and its key has no policy.
    #[must_use]
    pub fn sees_rows_without_project(&self) -> bool {
        self.unscoped && self.permissions.is_unrestricted()
    }

    /// Returns the resource of the project with this id, as a target of actions.
    #[must_use]
    pub fn target(&self, kind: Kind, id: Ulid) -> Target {
        Target::InProject(self.project.id, kind, Which::Id(id))
    }

    /// Checks that the caller may do this with a resource that the field of a request names.
    ///
    /// # Errors
    /// `insufficient_scope`, with the action.
    pub fn allow(&self, verb: Verb, target: Target) -> Result<(), InvalidValue> {
        let allowed = self.permissions.require(Action::new(target.kind(), verb), target);
        allowed.map_err(|error| InvalidValue::new(FieldCode::InsufficientScope, error.to_string()))
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

    /// Returns the scope of `caller` for the project that the request names.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub async fn resolve(&self, caller: &Caller, named: NamedProject<'_>) -> Result<Scope, AccessError> {
        let wanted = self.wanted(caller, named).await?;
        let permissions = caller.permissions.clone();
        let organization_wide = caller.project.is_none() && permissions.is_unrestricted();
        let id = match (caller.project, wanted) {
            (Some(own), Some(other)) if own != other => return Err(AccessError::OtherProject),
            (Some(own), _) => own,
            (None, Some(wanted)) => wanted,
            (None, None) => {
                let project = match &caller.home {
                    Some(home) => home.clone(),
                    None => self.projects.default_of(caller.organization).await?,
                };
                return Ok(Scope { project, unscoped: true, organization_wide, permissions });
            }
        };
        if let Some(home) = caller.home.as_ref().filter(|home| home.id == id) {
            return Ok(Scope { project: home.clone(), unscoped: false, organization_wide, permissions });
        }
        let project = self.projects.find(caller.organization, id).await?;
        let project = project.ok_or_else(|| AccessError::ProjectNotFound(id.to_string()))?;
        Ok(Scope { project, unscoped: false, organization_wide, permissions })
    }

    /// Returns the project that the request names. A key of one project is told the same of a name that does not exist
    /// and of the name of another project.
    async fn wanted(&self, caller: &Caller, named: NamedProject<'_>) -> Result<Option<ProjectId>, AccessError> {
        let id = named.id.map(|text| text.parse::<ProjectId>().map_err(|_| AccessError::BadProject)).transpose()?;
        let Some(text) = named.id_or_name else { return Ok(id) };
        let other = match text.parse() {
            Ok(other) => Some(other),
            Err(_) => self.project_named(caller, text).await?,
        };
        match (id, other, caller.project) {
            (_, Some(other), Some(own)) if other != own => Err(AccessError::OtherProject),
            (Some(id), Some(other), _) if id != other => Err(AccessError::DifferentProjects),
            (_, Some(other), _) => Ok(Some(other)),
            (_, None, None) => Err(AccessError::ProjectNotFound(text.to_owned())),
            (_, None, Some(_)) => Err(AccessError::OtherProject),
        }
    }

    async fn project_named(&self, caller: &Caller, name: &str) -> Result<Option<ProjectId>, AccessError> {
        if let Some(home) = caller.home.as_ref().filter(|home| home.name.as_str() == name) {
            return Ok(Some(home.id));
        }
        // The store cannot search for NUL.
        let found = match name.contains('\0') {
            true => None,
            false => self.projects.find_by_name(caller.organization, name).await?,
        };
        Ok(found.map(|project| project.id))
    }
}
