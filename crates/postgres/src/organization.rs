//! Organizations, their users, and what an empty database begins with.

use async_trait::async_trait;
use casement_domain::organization::{Caps, FirstStart, Organization, OrganizationRepository, User};
use casement_domain::{OrganizationId, StoreError, UserId};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::api_key::ApiKeyRow;
use crate::convert::{caps, int, label, number, ulid, uuid};
use crate::database::Database;
use crate::error::{BadRow, CallError};
use crate::project::ProjectRow;
use crate::schema::{api_keys, organizations, projects, users};

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = organizations, check_for_backend(diesel::pg::Pg))]
struct OrganizationRow {
    id: Uuid,
    name: String,
    max_concurrent_sessions: Option<i32>,
    max_pooled_sessions: Option<i32>,
    max_concurrent_invocations: Option<i32>,
    default_project_max_concurrent_sessions: Option<i32>,
    created_at: OffsetDateTime,
}

impl From<&Organization> for OrganizationRow {
    fn from(organization: &Organization) -> Self {
        let caps = organization.caps;
        Self {
            id: uuid(organization.id.ulid()),
            name: organization.name.as_str().to_owned(),
            max_concurrent_sessions: caps.concurrent_sessions.map(int),
            max_pooled_sessions: caps.pooled_sessions.map(int),
            max_concurrent_invocations: caps.concurrent_invocations.map(int),
            default_project_max_concurrent_sessions: organization.default_project_max_concurrent_sessions.map(int),
            created_at: organization.created_at,
        }
    }
}

impl TryFrom<OrganizationRow> for Organization {
    type Error = BadRow;

    fn try_from(row: OrganizationRow) -> Result<Self, BadRow> {
        let default = row.default_project_max_concurrent_sessions;
        Ok(Self {
            id: OrganizationId::from_ulid(ulid(row.id)),
            name: label("organizations.name", &row.name)?,
            caps: caps(row.max_concurrent_sessions, row.max_pooled_sessions, row.max_concurrent_invocations)?,
            default_project_max_concurrent_sessions: default
                .map(|value| number("default_project_max_concurrent_sessions", value))
                .transpose()?,
            created_at: row.created_at,
        })
    }
}

#[derive(Debug, Insertable)]
#[diesel(table_name = users)]
struct UserRow {
    id: Uuid,
    organization_id: Uuid,
    email: String,
    name: Option<String>,
}

impl From<&User> for UserRow {
    fn from(user: &User) -> Self {
        Self {
            id: uuid(user.id.ulid()),
            organization_id: uuid(user.organization.ulid()),
            email: user.email.clone(),
            name: user.name.clone(),
        }
    }
}

/// Organizations in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgOrganizations {
    database: Database,
}

impl PgOrganizations {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

/// The organization, held until the transaction ends: nobody else adds to it meanwhile.
pub(crate) async fn hold(
    connection: &mut AsyncPgConnection,
    id: OrganizationId,
) -> Result<Option<Organization>, CallError> {
    let row = organizations::table.find(uuid(id.ulid())).select(OrganizationRow::as_select());
    let row = row.for_update().get_result(connection).await.optional()?;
    Ok(row.map(Organization::try_from).transpose()?)
}

/// The organization, which there is.
pub(crate) async fn read(connection: &mut AsyncPgConnection, id: OrganizationId) -> Result<Organization, CallError> {
    let row = organizations::table.find(uuid(id.ulid())).select(OrganizationRow::as_select());
    Ok(row.get_result(connection).await?.try_into()?)
}

#[async_trait]
impl OrganizationRepository for PgOrganizations {
    async fn find(&self, id: OrganizationId) -> Result<Option<Organization>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = organizations::table.find(uuid(id.ulid())).select(OrganizationRow::as_select());
            let row = row.get_result(connection).await.optional()?;
            Ok(row.map(Organization::try_from).transpose()?)
        };
        self.database.fetch("organization.find", work).await
    }

    async fn first(&self) -> Result<Option<Organization>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = organizations::table.order((organizations::created_at, organizations::id));
            let row = row.select(OrganizationRow::as_select()).first(connection).await.optional()?;
            Ok(row.map(Organization::try_from).transpose()?)
        };
        self.database.fetch("organization.first", work).await
    }

    async fn owner(&self, id: OrganizationId) -> Result<Option<UserId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let first = users::table.filter(users::organization_id.eq(uuid(id.ulid()))).order(users::id);
            let first: Option<Uuid> = first.select(users::id).first(connection).await.optional()?;
            Ok(first.map(|id| UserId::from_ulid(ulid(id))))
        };
        self.database.fetch("organization.owner", work).await
    }

    async fn set_caps(&self, id: OrganizationId, caps: Caps) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let caps = (
                organizations::max_concurrent_sessions.eq(caps.concurrent_sessions.map(int)),
                organizations::max_pooled_sessions.eq(caps.pooled_sessions.map(int)),
                organizations::max_concurrent_invocations.eq(caps.concurrent_invocations.map(int)),
            );
            diesel::update(organizations::table.find(uuid(id.ulid()))).set(caps).execute(connection).await?;
            Ok(())
        };
        self.database.call("organization.set_caps", work).await
    }

    async fn begin(&self, start: &FirstStart) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Two servers on one empty database: the second waits here, and then finds what the first has made.
            diesel::sql_query("LOCK TABLE organizations IN SHARE ROW EXCLUSIVE MODE").execute(connection).await?;
            if organizations::table.count().get_result::<i64>(connection).await? > 0 {
                return Ok(false);
            }
            let organization = OrganizationRow::from(&start.organization);
            diesel::insert_into(organizations::table).values(organization).execute(connection).await?;
            diesel::insert_into(users::table).values(UserRow::from(&start.owner)).execute(connection).await?;
            let project = ProjectRow::from(&start.project);
            diesel::insert_into(projects::table).values(project).execute(connection).await?;
            diesel::insert_into(api_keys::table).values(ApiKeyRow::from(&start.key)).execute(connection).await?;
            Ok(true)
        };
        self.database.transaction("organization.begin", work).await
    }
}
