//! Projects.

use async_trait::async_trait;
use casement_domain::name::LabelName;
use casement_domain::organization::{Caps, Organization, OrganizationUsage};
use casement_domain::page::{Listed, Page};
use casement_domain::project::{
    Project, ProjectDeleted, ProjectFilter, ProjectReplaced, ProjectRepository, ProjectStatus, ProjectStored,
};
use casement_domain::{OrganizationId, ProjectId, StoreError};
use diesel::dsl::{Eq, Filter, IsNull};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::changes::{Change, report};
use crate::column::{Column, Stored, row};
use crate::database::Database;
use crate::error::{CallError, if_violated};
use crate::organization;
use crate::query::{contains, find, is_there};
use crate::recent_keys::RecentKeys;
use crate::schema::{api_keys, organizations, projects};
use crate::usage;

/// The constraint that keeps names unique.
const NAME_KEY: &str = "projects_name_key";

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = projects, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    pub(crate) struct ProjectRow for Project {
        id: Column<ProjectId>,
        organization: Column<OrganizationId> as organization_id,
        name: Column<LabelName>,
        is_default: bool,
        status: Column<ProjectStatus>,
        #[diesel(embed)]
        caps: CapsColumns,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = projects, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    pub(crate) struct CapsColumns for Caps {
        concurrent_sessions: Option<Column<u32>> as max_concurrent_sessions,
        pooled_sessions: Option<Column<u32>> as max_pooled_sessions,
        concurrent_invocations: Option<Column<u32>> as max_concurrent_invocations,
    }
}

/// Projects in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgProjects {
    database: Database,
    recent: RecentKeys,
}

impl PgProjects {
    /// Creates the repository on this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, recent: RecentKeys::default() }
    }

    /// Clears `recent` after each change, so that changes apply to cached keys at once.
    #[must_use]
    pub fn clearing_cache(self, recent: RecentKeys) -> Self {
        Self { recent, ..self }
    }
}

type OfOrganization = Filter<
    Filter<projects::table, IsNull<projects::deleted_at>>,
    Eq<projects::organization_id, Column<OrganizationId>>,
>;

/// The projects of the organization that are not deleted.
fn of(organization: OrganizationId) -> OfOrganization {
    let not_deleted = projects::table.filter(projects::deleted_at.is_null());
    not_deleted.filter(projects::organization_id.eq(Column(organization)))
}

/// The project, if it belongs to the organization and is not deleted.
pub(crate) async fn not_deleted(
    mut connection: &AsyncPgConnection,
    organization: OrganizationId,
    id: ProjectId,
) -> Result<Option<Project>, CallError> {
    let row = of(organization).find(Column(id)).select(ProjectRow::as_select());
    find(&mut connection, row).await
}

/// Locks the project until the transaction ends, so that two transactions do not both use the last unit of a limit, and
/// it is not deleted meanwhile. `false` if there is no such project.
pub(crate) async fn lock(connection: &mut AsyncPgConnection, id: ProjectId) -> Result<bool, CallError> {
    let row = projects::table.find(Column(id)).filter(projects::deleted_at.is_null()).select(projects::id);
    is_there(connection, row.for_no_key_update()).await
}

#[async_trait]
impl ProjectRepository for PgProjects {
    async fn find(&self, organization: OrganizationId, id: ProjectId) -> Result<Option<Project>, StoreError> {
        self.database.read("project.find", async |connection| not_deleted(connection, organization, id).await).await
    }

    async fn find_by_name(&self, organization: OrganizationId, name: &str) -> Result<Option<Project>, StoreError> {
        let row = of(organization).filter(projects::name.eq(name)).select(ProjectRow::as_select());
        self.database.read_one("project.find_by_name", row).await
    }

    async fn default_of(&self, organization: OrganizationId) -> Result<Project, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let row = of(organization).filter(projects::is_default).select(ProjectRow::as_select());
            Ok(row.get_result(&mut connection).await?.value()?)
        };
        self.database.read("project.default_of", work).await
    }

    async fn create(&self, project: &Project) -> Result<ProjectStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::insert_into(projects::table).values(ProjectRow::of(project)).execute(connection).await?;
            Ok(ProjectStored::Yes)
        };
        let name_taken = if_violated(&[NAME_KEY], ProjectStored::NameTaken);
        self.database.transaction_or("project.create", work, name_taken).await
    }

    async fn list(
        &self,
        organization: OrganizationId,
        filter: &ProjectFilter,
        page: Page,
    ) -> Result<Listed<Project>, StoreError> {
        let mut rows = of(organization).into_boxed();
        if let Some(name) = &filter.name {
            rows = rows.filter(projects::name.eq(name));
        }
        if let Some(query) = &filter.query {
            let ids = query.parse::<ProjectId>().ok().map(Column);
            rows = rows.filter(contains("projects.name", query).or(projects::id.eq_any(ids)));
        }
        let rows = rows.order((projects::created_at.desc(), projects::id.desc()));
        self.database.page("project.list", page, rows.select(ProjectRow::as_select())).await
    }

    async fn replace(&self, current: &Project, next: &Project) -> Result<ProjectReplaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = projects::table.find(Column(current.id)).filter(projects::deleted_at.is_null());
            let now: Option<Project> = find(connection, row.select(ProjectRow::as_select()).for_update()).await?;
            if now.as_ref() != Some(current) {
                return Ok(ProjectReplaced::LostRace);
            }
            diesel::update(row).set(ProjectRow::of(next)).execute(connection).await?;
            report(connection, Change::Keys).await?;
            Ok(ProjectReplaced::Yes)
        };
        let name_taken = if_violated(&[NAME_KEY], ProjectReplaced::NameTaken);
        let done = self.database.transaction_or("project.replace", work, name_taken).await;
        self.recent.forget();
        done
    }

    async fn delete(
        &self,
        organization: OrganizationId,
        id: ProjectId,
        at: OffsetDateTime,
    ) -> Result<ProjectDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Every transaction that creates something in a project locks the organization or the project.
            organization::lock(connection, organization).await?;
            let row = projects::table.find(Column(id));
            row.select(projects::id).for_update().execute(connection).await?;
            if not_deleted(connection, organization, id).await?.is_none() {
                return Ok(ProjectDeleted::Gone);
            }
            let resources = usage::resources_of(connection, id).await?;
            if !resources.is_empty() {
                return Ok(ProjectDeleted::InUse(resources));
            }
            diesel::update(row).set(projects::deleted_at.eq(at)).execute(connection).await?;
            let keys =
                api_keys::table.filter(api_keys::project_id.eq(Column(id))).filter(api_keys::deleted_at.is_null());
            diesel::update(keys).set(api_keys::deleted_at.eq(at)).execute(connection).await?;
            report(connection, Change::Keys).await?;
            Ok(ProjectDeleted::Yes)
        };
        let done = self.database.transaction("project.delete", work).await;
        self.recent.forget();
        done
    }

    async fn organization(&self, id: OrganizationId) -> Result<Organization, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| organization::read(connection, id).await;
        self.database.fetch("project.organization", work).await
    }

    async fn usage(&self, id: OrganizationId) -> Result<OrganizationUsage, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| usage::of_organization(connection, id).await;
        self.database.fetch("project.usage", work).await
    }

    async fn set_default_sessions(&self, id: OrganizationId, value: Option<u32>) -> Result<Organization, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let default = organizations::default_project_max_concurrent_sessions.eq(value.map(Column));
            diesel::update(organizations::table.find(Column(id))).set(default).execute(connection).await?;
            organization::read(connection, id).await
        };
        self.database.transaction("project.set_default_sessions", work).await
    }
}
