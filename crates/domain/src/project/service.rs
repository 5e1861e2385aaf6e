//! The use cases of projects and of limits.

use std::sync::Arc;

use super::{
    Project, ProjectDeleted, ProjectEvent, ProjectFilter, ProjectRefused, ProjectReplaced, ProjectRepository,
    ProjectStatus, ProjectStored, ResourceCount,
};
use crate::clock::{Clock, IdSource};
use crate::error::{NameTaken, NotFound, SpecificError, UseCaseError};
use crate::field::{FieldCode, Fields, InvalidValue, required};
use crate::ids::{OrganizationId, ProjectId};
use crate::name::LabelName;
use crate::organization::{Caps, Organization, OrganizationUsage};
use crate::page::{Listed, Page};
use crate::session::IdOrName;
use crate::store_error::StoreError;

/// The error of changing a project or its limits.
pub type UpdateProjectError = UseCaseError<ProjectRefused>;

/// The error of deleting a project.
pub type DeleteProjectError = UseCaseError<DeleteProjectFailure>;

/// An error that only the deletion of a project has.
#[derive(Debug, thiserror::Error)]
pub enum DeleteProjectFailure {
    /// The project cannot be deleted.
    #[error(transparent)]
    Refused(#[from] ProjectRefused),
    /// The project has active resources.
    #[error("project {id} has active resources: {}", listed(.resources))]
    InUse {
        /// The project.
        id: ProjectId,
        /// The active resources.
        resources: Vec<ResourceCount>,
    },
}

impl SpecificError for ProjectRefused {}
impl SpecificError for DeleteProjectFailure {}

fn listed(resources: &[ResourceCount]) -> String {
    resources.iter().map(|found| format!("{} {}", found.count, found.kind)).collect::<Vec<_>>().join(", ")
}

/// The limits that are set for a project itself.
pub type ProjectLimits = Caps;

/// The use cases of projects.
#[derive(Clone)]
pub struct Projects {
    projects: Arc<dyn ProjectRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl Projects {
    /// Creates the use cases.
    #[must_use]
    pub fn new(projects: Arc<dyn ProjectRepository>, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        Self { projects, clock, ids }
    }

    /// Creates an active project without limits of its own.
    ///
    /// # Errors
    /// See [`UseCaseError`].
    pub async fn create(&self, organization: OrganizationId, name: Option<String>) -> Result<Project, UseCaseError> {
        let name = required("name", name, |text| LabelName::parse_in_path(&text))?;
        let now = self.clock.now();
        let project = Project {
            id: ProjectId::mint(self.ids.as_ref()),
            organization,
            name,
            is_default: false,
            status: ProjectStatus::Active,
            caps: Caps::default(),
            created_at: now,
            updated_at: now,
        };
        match self.projects.create(&project).await? {
            ProjectStored::Yes => Ok(project),
            ProjectStored::NameTaken => Err(name_taken(&project.name).into()),
        }
    }

    /// Returns the projects of an organization, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        organization: OrganizationId,
        filter: &ProjectFilter,
        page: Page,
    ) -> Result<Listed<Project>, StoreError> {
        self.projects.list(organization, filter, page).await
    }

    /// Returns the project with an id or name.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, organization: OrganizationId, which: &str) -> Result<Project, UseCaseError> {
        let found = match IdOrName::parse(which) {
            IdOrName::Id(id) => self.projects.find(organization, id).await?,
            IdOrName::Name(name) => self.projects.find_by_name(organization, &name).await?,
        };
        found.ok_or_else(|| NotFound::new("project", which).into())
    }

    /// Changes the name and the status, which is `active` or `archived`. Absent values stay unchanged.
    ///
    /// # Errors
    /// See [`UpdateProjectError`].
    pub async fn update(
        &self,
        organization: OrganizationId,
        which: &str,
        name: Option<String>,
        status: Option<String>,
    ) -> Result<Project, UpdateProjectError> {
        let mut fields = Fields::new();
        let name = fields.take_optional("name", name, |text| LabelName::parse_in_path(&text));
        let event = fields.take_optional("status", status, |text| status_event(&text));
        fields.finish()?;
        self.change(organization, which, |current, now| {
            let mut next = match event {
                Some(event) => current.on(event, now)?.unwrap_or_else(|| unreachable!("no update deletes")),
                None => current.clone(),
            };
            if let Some(name) = name.as_ref().filter(|name| **name != next.name) {
                next = Project { name: name.clone(), updated_at: now, ..next };
            }
            Ok(next)
        })
        .await
    }

    /// Sets the limits of concurrent sessions, concurrent invocations and pooled sessions. An outer `None` leaves a
    /// limit unchanged; an inner `None` and 0 remove it. A limit may be below the current usage: nothing ends then, and
    /// nothing new begins.
    ///
    /// # Errors
    /// See [`UpdateProjectError`].
    pub async fn set_limits(
        &self,
        organization: OrganizationId,
        which: &str,
        max_concurrent_sessions: Option<Option<i64>>,
        max_concurrent_invocations: Option<Option<i64>>,
        max_pooled_sessions: Option<Option<i64>>,
    ) -> Result<ProjectLimits, UpdateProjectError> {
        let above = self.projects.organization(organization).await?.caps;
        let mut fields = Fields::new();
        let mut limit = |name, value, above| parse_limit(&mut fields, name, value, above);
        let sessions = limit("max_concurrent_sessions", max_concurrent_sessions, above.concurrent_sessions);
        let invocations = limit("max_concurrent_invocations", max_concurrent_invocations, above.concurrent_invocations);
        let pooled = limit("max_pooled_sessions", max_pooled_sessions, above.pooled_sessions);
        fields.finish()?;
        let changed = self.change(organization, which, |current, now| {
            let caps = Caps {
                concurrent_sessions: sessions.unwrap_or(current.caps.concurrent_sessions),
                concurrent_invocations: invocations.unwrap_or(current.caps.concurrent_invocations),
                pooled_sessions: pooled.unwrap_or(current.caps.pooled_sessions),
            };
            let updated_at = if caps == current.caps { current.updated_at } else { now };
            Ok(Project { caps, updated_at, ..current.clone() })
        });
        Ok(changed.await?.caps)
    }

    /// Reads, changes and stores a project; repeats this if another call changed the project in between.
    async fn change(
        &self,
        organization: OrganizationId,
        which: &str,
        next: impl Fn(&Project, time::OffsetDateTime) -> Result<Project, ProjectRefused> + Send,
    ) -> Result<Project, UpdateProjectError> {
        loop {
            let current = self.get(organization, which).await?;
            let next = next(&current, self.clock.now())?;
            if next == current {
                return Ok(current);
            }
            match self.projects.replace(&current, &next).await? {
                ProjectReplaced::Yes => return Ok(next),
                ProjectReplaced::LostRace => {}
                ProjectReplaced::NameTaken => return Err(name_taken(&next.name).into()),
            }
        }
    }

    /// Deletes a project that has no active resources.
    ///
    /// # Errors
    /// See [`DeleteProjectError`].
    pub async fn delete(&self, organization: OrganizationId, which: &str) -> Result<(), DeleteProjectError> {
        let project = self.get(organization, which).await?;
        let now = self.clock.now();
        project.on(ProjectEvent::Delete, now).map_err(DeleteProjectFailure::from)?;
        match self.projects.delete(organization, project.id, now).await? {
            ProjectDeleted::Yes => Ok(()),
            ProjectDeleted::Gone => Err(NotFound::new("project", which).into()),
            ProjectDeleted::InUse(resources) => Err(DeleteProjectFailure::InUse { id: project.id, resources }.into()),
        }
    }

    /// Returns the organization with its limits.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn organization(&self, id: OrganizationId) -> Result<Organization, StoreError> {
        self.projects.organization(id).await
    }

    /// Returns the usage of the organization.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn usage(&self, id: OrganizationId) -> Result<OrganizationUsage, StoreError> {
        self.projects.usage(id).await
    }

    /// Sets the default limit of sessions per project. `None` changes nothing; `Some(None)` and 0 remove the limit.
    ///
    /// # Errors
    /// [`UseCaseError::Invalid`] if the value is out of range; the error of the store.
    pub async fn set_default_sessions(
        &self,
        id: OrganizationId,
        value: Option<Option<i64>>,
    ) -> Result<Organization, UseCaseError> {
        let organization = self.projects.organization(id).await?;
        let mut fields = Fields::new();
        let name = "default_project_max_concurrent_sessions";
        let value = parse_limit(&mut fields, name, value, organization.caps.concurrent_sessions);
        fields.finish()?;
        match value {
            Some(value) => Ok(self.projects.set_default_sessions(id, value).await?),
            None => Ok(organization),
        }
    }
}

/// The maximum value of a limit.
pub const MAX_LIMIT: u32 = 1_000_000;

/// Parses a limit. An outer `None` leaves it unchanged.
fn parse_limit(fields: &mut Fields, name: &str, value: Option<Option<i64>>, above: Option<u32>) -> Option<Option<u32>> {
    let value = match value? {
        None | Some(0) => return Some(None),
        Some(value) => value,
    };
    let max = above.unwrap_or(MAX_LIMIT);
    let parsed = u32::try_from(value).ok().filter(|value| (1..=max).contains(value));
    let bad = || InvalidValue::new(FieldCode::OutOfRange, format!("must be from 0 to {max}"));
    fields.take(name, parsed.ok_or_else(bad)).map(Some)
}

fn name_taken(name: &LabelName) -> NameTaken {
    NameTaken::new("a project", name.as_str())
}

fn status_event(text: &str) -> Result<ProjectEvent, InvalidValue> {
    match text {
        "active" => Ok(ProjectEvent::Activate),
        "archived" => Ok(ProjectEvent::Archive),
        _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be active or archived")),
    }
}
