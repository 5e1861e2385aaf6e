//! Projects.

use async_trait::async_trait;
use casement_domain::organization::Organization;
use casement_domain::page::{Listed, Page};
use casement_domain::project::{
    Project, ProjectDeleted, ProjectFilter, ProjectReplaced, ProjectRepository, ProjectStatus, ProjectStored,
};
use casement_domain::{OrganizationId, ProjectId, StoreError};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{by_text, caps, contains, int, label, ulid, uuid};
use crate::database::{Database, window};
use crate::error::{BadRow, CallError};
use crate::column::Column;
use crate::organization;
use crate::query::is_there;
use crate::recent_keys::RecentKeys;
use crate::schema::{api_keys, organizations, projects};
use crate::usage;

/// What keeps names unique.
const NAME_KEY: &str = "projects_name_key";

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

impl From<&Project> for ProjectRow {
    fn from(project: &Project) -> Self {
        Self {
            id: uuid(project.id.ulid()),
            organization_id: uuid(project.organization.ulid()),
            name: project.name.as_str().to_owned(),
            is_default: project.is_default,
            status: project.status.as_str().to_owned(),
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
            status: by_text("projects.status", &statuses, ProjectStatus::as_str, row.status)?,
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
    recent: Option<RecentKeys>,
}

impl PgProjects {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, recent: None }
    }

    /// The same, whose changes hold for remembered keys at once.
    #[must_use]
    pub fn forgetting(self, recent: RecentKeys) -> Self {
        Self { recent: Some(recent), ..self }
    }

    /// After a change; also after one of which nobody knows whether it came through.
    fn forget(&self) {
        if let Some(recent) = &self.recent {
            recent.forget();
        }
    }
}

/// The project, if it belongs to the organization and is not deleted.
pub(crate) async fn living(
    mut connection: &AsyncPgConnection,
    organization: OrganizationId,
    id: ProjectId,
) -> Result<Option<Project>, CallError> {
    let row = projects::table.find(uuid(id.ulid())).filter(projects::deleted_at.is_null());
    let row = row.filter(projects::organization_id.eq(uuid(organization.ulid())));
    let row = row.select(ProjectRow::as_select()).get_result(&mut connection).await.optional()?;
    Ok(row.map(Project::try_from).transpose()?)
}

/// Holds the project until the transaction ends, so that two do not both take a last place in it, and it is not deleted meanwhile. `false`
/// if it is not there.
pub(crate) async fn hold(connection: &mut AsyncPgConnection, id: ProjectId) -> Result<bool, CallError> {
    let row = projects::table.find(Column(id)).filter(projects::deleted_at.is_null()).select(projects::id);
    is_there(connection, row.for_no_key_update()).await
}

#[async_trait]
impl ProjectRepository for PgProjects {
    async fn find(&self, organization: OrganizationId, id: ProjectId) -> Result<Option<Project>, StoreError> {
        self.database.read("project.find", async |connection| living(connection, organization, id).await).await
    }

    async fn find_by_name(&self, organization: OrganizationId, name: &str) -> Result<Option<Project>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let row = projects::table.filter(projects::organization_id.eq(uuid(organization.ulid())));
            let row = row.filter(projects::deleted_at.is_null()).filter(projects::name.eq(name));
            let row = row.select(ProjectRow::as_select()).get_result(&mut connection).await.optional()?;
            Ok(row.map(Project::try_from).transpose()?)
        };
        self.database.read("project.find_by_name", work).await
    }

    async fn default_of(&self, organization: OrganizationId) -> Result<Project, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let row = projects::table.filter(projects::organization_id.eq(uuid(organization.ulid())));
            let row = row.filter(projects::deleted_at.is_null()).filter(projects::is_default);
            let row = row.select(ProjectRow::as_select()).get_result(&mut connection).await?;
            Ok(Project::try_from(row)?)
        };
        self.database.read("project.default_of", work).await
    }

    async fn create(&self, project: &Project) -> Result<ProjectStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::insert_into(projects::table).values(ProjectRow::from(project)).execute(connection).await?;
            Ok(ProjectStored::Yes)
        };
        let taken = |error: CallError| match error.violated() {
            Some(NAME_KEY) => Ok(ProjectStored::NameTaken),
            _ => Err(error),
        };
        self.database.transaction_or("project.create", work, taken).await
    }

    async fn list(
        &self,
        organization: OrganizationId,
        filter: &ProjectFilter,
        page: Page,
    ) -> Result<Listed<Project>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = projects::table
                .filter(projects::organization_id.eq(uuid(organization.ulid())))
                .filter(projects::deleted_at.is_null())
                .into_boxed();
            if let Some(name) = &filter.name {
                rows = rows.filter(projects::name.eq(name));
            }
            if let Some(query) = &filter.query {
                let id = query.parse::<ProjectId>().map(|id| uuid(id.ulid())).unwrap_or_default();
                rows = rows.filter(contains("projects.name", query).or(projects::id.eq(id)));
            }
            let rows = rows.order((projects::created_at.desc(), projects::id.desc())).limit(limit).offset(offset);
            let rows = rows.select(ProjectRow::as_select()).load(connection).await?;
            Ok(page.cut(rows.into_iter().map(Project::try_from).collect::<Result<_, _>>()?))
        };
        self.database.fetch("project.list", work).await
    }

    async fn replace(&self, current: &Project, next: &Project) -> Result<ProjectReplaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let now = projects::table.find(uuid(current.id.ulid())).filter(projects::deleted_at.is_null()).for_update();
            let now = now.select(ProjectRow::as_select()).get_result(connection).await.optional()?;
            if now.map(Project::try_from).transpose()?.as_ref() != Some(current) {
                return Ok(ProjectReplaced::LostRace);
            }
            let next = ProjectRow::from(next);
            diesel::update(projects::table.find(next.id))
                .set((
                    projects::name.eq(next.name),
                    projects::status.eq(next.status),
                    projects::max_concurrent_sessions.eq(next.max_concurrent_sessions),
                    projects::max_pooled_sessions.eq(next.max_pooled_sessions),
                    projects::max_concurrent_invocations.eq(next.max_concurrent_invocations),
                    projects::updated_at.eq(next.updated_at),
                ))
                .execute(connection)
                .await?;
            Ok(ProjectReplaced::Yes)
        };
        let taken = |error: CallError| match error.violated() {
            Some(NAME_KEY) => Ok(ProjectReplaced::NameTaken),
            _ => Err(error),
        };
        let done = self.database.transaction_or("project.replace", work, taken).await;
        self.forget();
        done
    }

    async fn delete(
        &self,
        organization: OrganizationId,
        id: ProjectId,
        at: OffsetDateTime,
    ) -> Result<ProjectDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Whoever makes something in a project holds its organization, or the project.
            organization::hold(connection, organization).await?;
            let held = projects::table.find(uuid(id.ulid())).select(projects::id).for_update();
            held.execute(connection).await?;
            if living(connection, organization, id).await?.is_none() {
                return Ok(ProjectDeleted::Gone);
            }
            let resources = usage::resources_of(connection, id).await?;
            if !resources.is_empty() {
                return Ok(ProjectDeleted::InUse(resources));
            }
            let id = uuid(id.ulid());
            diesel::update(projects::table.find(id)).set(projects::deleted_at.eq(at)).execute(connection).await?;
            let keys = api_keys::table.filter(api_keys::project_id.eq(id)).filter(api_keys::deleted_at.is_null());
            diesel::update(keys).set(api_keys::deleted_at.eq(at)).execute(connection).await?;
            Ok(ProjectDeleted::Yes)
        };
        let done = self.database.transaction("project.delete", work).await;
        self.forget();
        done
    }

    async fn organization(&self, id: OrganizationId) -> Result<Organization, StoreError> {
        self.database.fetch("project.organization", async |connection| organization::read(connection, id).await).await
    }

    async fn set_default_sessions(&self, id: OrganizationId, value: Option<u32>) -> Result<Organization, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::update(organizations::table.find(uuid(id.ulid())))
                .set(organizations::default_project_max_concurrent_sessions.eq(value.map(int)))
                .execute(connection)
                .await?;
            organization::read(connection, id).await
        };
        self.database.transaction("project.set_default_sessions", work).await
    }
}
