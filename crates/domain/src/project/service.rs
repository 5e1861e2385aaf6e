//! The use cases of projects and of limits.

use std::sync::Arc;

use super::{
    Project, ProjectDeleted, ProjectEvent, ProjectFilter, ProjectRefused, ProjectReplaced, ProjectRepository,
    ProjectStatus, ProjectStored, ResourceCount,
};
use crate::clock::{Clock, IdSource};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, required};
use crate::ids::{OrganizationId, ProjectId};
use crate::name::LabelName;
use crate::organization::{Caps, Organization};
use crate::page::{Listed, Page};
use crate::session::IdOrName;
use crate::store_error::StoreError;

/// The organization has no such project.
#[derive(Debug, thiserror::Error)]
pub enum ProjectNotFound {
    /// It has none of that id or name.
    #[error("project {0} not found")]
    NotFound(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A project was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateProjectError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// Another one bears the name.
    #[error("a project named {0} exists already")]
    NameTaken(LabelName),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A project or its limits were not changed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateProjectError {
    /// There is no such project.
    #[error(transparent)]
    Find(#[from] ProjectNotFound),
    /// As at a creation.
    #[error(transparent)]
    Input(#[from] CreateProjectError),
    /// It cannot become that.
    #[error(transparent)]
    Refused(#[from] ProjectRefused),
}

/// A project was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteProjectError {
    /// There is no such project.
    #[error(transparent)]
    Find(#[from] ProjectNotFound),
    /// It cannot go.
    #[error(transparent)]
    Refused(#[from] ProjectRefused),
    /// Something of it is active.
    #[error("project {id} has active resources: {}", listed(.resources))]
    InUse {
        /// Which project.
        id: ProjectId,
        /// What it has.
        resources: Vec<ResourceCount>,
    },
}

fn listed(resources: &[ResourceCount]) -> String {
    resources.iter().map(|found| format!("{} {}", found.count, found.kind)).collect::<Vec<_>>().join(", ")
}

/// The limits of a project: its own, as they are set.
pub type ProjectLimits = Caps;

/// The use cases.
#[derive(Clone)]
pub struct Projects {
    projects: Arc<dyn ProjectRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl Projects {
    /// Creates the use cases on these ports.
    #[must_use]
    pub fn new(projects: Arc<dyn ProjectRepository>, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        Self { projects, clock, ids }
    }

    /// Makes a project, active and without limits of its own.
    ///
    /// # Errors
    /// See [`CreateProjectError`].
    pub async fn create(
        &self,
        organization: OrganizationId,
        name: Option<String>,
    ) -> Result<Project, CreateProjectError> {
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
            ProjectStored::NameTaken => Err(CreateProjectError::NameTaken(project.name)),
        }
    }

    /// The projects of an organization, newest first.
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

    /// The project of that id or name.
    ///
    /// # Errors
    /// See [`ProjectNotFound`].
    pub async fn get(&self, organization: OrganizationId, which: &str) -> Result<Project, ProjectNotFound> {
        let found = match IdOrName::parse(which) {
            IdOrName::Id(id) => self.projects.find(organization, id).await?,
            IdOrName::Name(name) => self.projects.find_by_name(organization, &name).await?,
        };
        found.ok_or_else(|| ProjectNotFound::NotFound(which.to_owned()))
    }

    /// Changes the name and the status, `active` or `archived`; what is absent stays.
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
        fields.finish().map_err(CreateProjectError::from)?;
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

    /// Sets the limits: concurrent sessions, concurrent invocations and pooled sessions. The outer `None` keeps a limit,
    /// the inner one and 0 clear it. A limit may be below the present use: nothing ends, and nothing new begins.
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
        let above = self.projects.organization(organization).await.map_err(ProjectNotFound::from)?.caps;
        let mut fields = Fields::new();
        let mut limit = |name, value, above| parse_limit(&mut fields, name, value, above);
        let sessions = limit("max_concurrent_sessions", max_concurrent_sessions, above.concurrent_sessions);
        let invocations = limit("max_concurrent_invocations", max_concurrent_invocations, above.concurrent_invocations);
        let pooled = limit("max_pooled_sessions", max_pooled_sessions, above.pooled_sessions);
        fields.finish().map_err(CreateProjectError::from)?;
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

    /// Reads, decides and stores until nobody else came in between.
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
            match self.projects.replace(&current, &next).await.map_err(ProjectNotFound::from)? {
                ProjectReplaced::Yes => return Ok(next),
                ProjectReplaced::LostRace => {}
                ProjectReplaced::NameTaken => return Err(CreateProjectError::NameTaken(next.name).into()),
            }
        }
    }

    /// Deletes a project in which nothing is active.
    ///
    /// # Errors
    /// See [`DeleteProjectError`].
    pub async fn delete(&self, organization: OrganizationId, which: &str) -> Result<(), DeleteProjectError> {
        let project = self.get(organization, which).await?;
        let now = self.clock.now();
        project.on(ProjectEvent::Delete, now)?;
        match self.projects.delete(organization, project.id, now).await.map_err(ProjectNotFound::from)? {
            ProjectDeleted::Yes => Ok(()),
            ProjectDeleted::Gone => Err(ProjectNotFound::NotFound(which.to_owned()).into()),
            ProjectDeleted::InUse(resources) => Err(DeleteProjectError::InUse { id: project.id, resources }),
        }
    }

    /// The organization, for its limits.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn organization(&self, id: OrganizationId) -> Result<Organization, StoreError> {
        self.projects.organization(id).await
    }

    /// Sets what each project may have at once unless it says otherwise; absent keeps, null and 0 clear.
    ///
    /// # Errors
    /// See [`CreateProjectError`].
    pub async fn set_default_sessions(
        &self,
        id: OrganizationId,
        value: Option<Option<i64>>,
    ) -> Result<Organization, CreateProjectError> {
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

/// The highest limit.
const MAX_LIMIT: u32 = 1_000_000;

/// Parses a limit: the outer `None` keeps it.
fn parse_limit(fields: &mut Fields, name: &str, value: Option<Option<i64>>, above: Option<u32>) -> Option<Option<u32>> {
    let value = match value? {
        None | Some(0) => return Some(None),
        Some(value) => value,
    };
    let most = above.unwrap_or(MAX_LIMIT);
    let parsed = u32::try_from(value).ok().filter(|value| (1..=most).contains(value));
    let bad = || InvalidValue::new(FieldCode::OutOfRange, format!("must be from 0 to {most}"));
    fields.take(name, parsed.ok_or_else(bad)).map(Some)
}

fn status_event(text: &str) -> Result<ProjectEvent, InvalidValue> {
    match text {
        "active" => Ok(ProjectEvent::Activate),
        "archived" => Ok(ProjectEvent::Archive),
        _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be active or archived")),
    }
}
