//! Organizations, their users, and the first rows of an empty database.

use async_trait::async_trait;
use casement_domain::name::LabelName;
use casement_domain::organization::{Caps, FirstStart, Organization, OrganizationRepository, User};
use casement_domain::{OrganizationId, StoreError, UserId};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::api_key::ApiKeyRow;
use crate::column::{Column, Stored, row};
use crate::database::repository;
use crate::error::CallError;
use crate::project::ProjectRow;
use crate::query::find;
use crate::schema::{api_keys, organizations, projects, users};

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = organizations, check_for_backend(diesel::pg::Pg))]
    struct OrganizationRow for Organization {
        id: Column<OrganizationId>,
        name: Column<LabelName>,
        #[diesel(embed)]
        caps: CapsColumns,
        default_project_max_concurrent_sessions: Option<Column<u32>>,
        created_at: OffsetDateTime,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = organizations, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    struct CapsColumns for Caps {
        concurrent_sessions: Option<Column<u32>> as max_concurrent_sessions,
        pooled_sessions: Option<Column<u32>> as max_pooled_sessions,
        concurrent_invocations: Option<Column<u32>> as max_concurrent_invocations,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = users, check_for_backend(diesel::pg::Pg))]
    pub(crate) struct UserRow for User {
        id: Column<UserId>,
        organization: Column<OrganizationId> as organization_id,
        email: String,
        name: Option<String>,
    }
}

repository! {
    /// Organizations in PostgreSQL.
    PgOrganizations
}

/// Reads the organization, and locks it until the transaction ends, so that no other transaction adds to it meanwhile.
pub(crate) async fn lock(
    connection: &mut AsyncPgConnection,
    id: OrganizationId,
) -> Result<Option<Organization>, CallError> {
    let row = organizations::table.find(Column(id)).select(OrganizationRow::as_select());
    find(connection, row.for_update()).await
}

/// Reads the organization, which must exist.
pub(crate) async fn read(connection: &mut AsyncPgConnection, id: OrganizationId) -> Result<Organization, CallError> {
    let row = organizations::table.find(Column(id)).select(OrganizationRow::as_select());
    Ok(row.get_result(connection).await?.value()?)
}

#[async_trait]
impl OrganizationRepository for PgOrganizations {
    async fn find(&self, id: OrganizationId) -> Result<Option<Organization>, StoreError> {
        let row = organizations::table.find(Column(id)).select(OrganizationRow::as_select());
        self.database.find("organization.find", row).await
    }

    async fn first(&self) -> Result<Option<Organization>, StoreError> {
        let rows = organizations::table.order((organizations::created_at, organizations::id)).limit(1);
        self.database.find("organization.first", rows.select(OrganizationRow::as_select())).await
    }

    async fn owner(&self, id: OrganizationId) -> Result<Option<UserId>, StoreError> {
        let rows = users::table.filter(users::organization_id.eq(Column(id))).order(users::id).limit(1);
        self.database.find::<Column<UserId>, _>("organization.owner", rows.select(users::id)).await
    }

    async fn set_caps(&self, id: OrganizationId, caps: Caps) -> Result<(), StoreError> {
        let row = diesel::update(organizations::table.find(Column(id)));
        self.database.change("organization.set_caps", row.set(CapsColumns::of(&caps))).await
    }

    async fn begin(&self, start: &FirstStart) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Of two servers on one empty database, the second waits here and then finds the rows of the first.
            diesel::sql_query("LOCK TABLE organizations IN SHARE ROW EXCLUSIVE MODE").execute(connection).await?;
            if organizations::table.count().get_result::<i64>(connection).await? > 0 {
                return Ok(false);
            }
            let organization = OrganizationRow::of(&start.organization);
            diesel::insert_into(organizations::table).values(organization).execute(connection).await?;
            diesel::insert_into(users::table).values(UserRow::of(&start.owner)).execute(connection).await?;
            diesel::insert_into(projects::table).values(ProjectRow::of(&start.project)).execute(connection).await?;
            diesel::insert_into(api_keys::table).values(ApiKeyRow::of(&start.key)).execute(connection).await?;
            Ok(true)
        };
        self.database.transaction("organization.begin", work).await
    }
}
