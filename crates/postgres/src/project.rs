//! Projects.

use async_trait::async_trait;
use casement_domain::project::{Project, ProjectRepository, ProjectStatus};
use casement_domain::{OrganizationId, ProjectId, StoreError};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{by_text, caps, int, label, ulid, uuid};
use crate::database::Database;
use crate::error::BadRow;
use crate::schema::projects;

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = projects, check_for_backend(diesel::pg::Pg))]
pub(crate) struct ProjectRow {
    id: Uuid,
    organization_id: Uuid,
    name: String,
    is_default: bool,
    status: String,
    max_concurrent_sessions: Option<i32>,
    max_pooled_sessions: Option<i32>,
    max_concurrent_invocations: Option<i32>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

fn status_text(status: ProjectStatus) -> &'static str {
    match status {
        ProjectStatus::Active => "active",
        ProjectStatus::Archived => "archived",
    }
}

impl From<&Project> for ProjectRow {
    fn from(project: &Project) -> Self {
        Self {
            id: uuid(project.id.ulid()),
            organization_id: uuid(project.organization.ulid()),
            name: project.name.as_str().to_owned(),
            is_default: project.is_default,
            status: status_text(project.status).to_owned(),
            max_concurrent_sessions: project.caps.concurrent_sessions.map(int),
            max_pooled_sessions: project.caps.pooled_sessions.map(int),
            max_concurrent_invocations: project.caps.concurrent_invocations.map(int),
            created_at: project.created_at,
            updated_at: project.updated_at,
        }
    }
}

impl TryFrom<ProjectRow> for Project {
    type Error = BadRow;

    fn try_from(row: ProjectRow) -> Result<Self, BadRow> {
        let statuses = [ProjectStatus::Active, ProjectStatus::Archived];
        Ok(Self {
            id: ProjectId::from_ulid(ulid(row.id)),
            organization: OrganizationId::from_ulid(ulid(row.organization_id)),
            name: label("projects.name", &row.name)?,
            is_default: row.is_default,
            status: by_text("projects.status", &statuses, status_text, row.status)?,
            caps: caps(row.max_concurrent_sessions, row.max_pooled_sessions, row.max_concurrent_invocations)?,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

/// Projects in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgProjects {
    database: Database,
}

impl PgProjects {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

/// The project, if it belongs to the organization and is not deleted.
pub(crate) async fn living(
    connection: &mut AsyncPgConnection,
    organization: OrganizationId,
    id: ProjectId,
) -> Result<Option<Project>, crate::error::CallError> {
    let row = projects::table.find(uuid(id.ulid())).filter(projects::deleted_at.is_null());
    let row = row.filter(projects::organization_id.eq(uuid(organization.ulid())));
    let row = row.select(ProjectRow::as_select()).get_result(connection).await.optional()?;
    Ok(row.map(Project::try_from).transpose()?)
}

#[async_trait]
impl ProjectRepository for PgProjects {
    async fn find(&self, organization: OrganizationId, id: ProjectId) -> Result<Option<Project>, StoreError> {
        self.database.call("project.find", async |connection| living(connection, organization, id).await).await
    }

    async fn find_by_name(&self, organization: OrganizationId, name: &str) -> Result<Option<Project>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = projects::table.filter(projects::organization_id.eq(uuid(organization.ulid())));
            let row = row.filter(projects::deleted_at.is_null()).filter(projects::name.eq(name));
            let row = row.select(ProjectRow::as_select()).get_result(connection).await.optional()?;
            Ok(row.map(Project::try_from).transpose()?)
        };
        self.database.call("project.find_by_name", work).await
    }

    async fn default_of(&self, organization: OrganizationId) -> Result<Project, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = projects::table.filter(projects::organization_id.eq(uuid(organization.ulid())));
            let row = row.filter(projects::deleted_at.is_null()).filter(projects::is_default);
            let row = row.select(ProjectRow::as_select()).get_result(connection).await?;
            Ok(Project::try_from(row)?)
        };
        self.database.call("project.default_of", work).await
    }
}
