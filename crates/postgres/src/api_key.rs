//! API keys; their secrets are never here, only hashes.

use async_trait::async_trait;
use casement_domain::api_key::{ApiKey, ApiKeyRepository, KeyWithHash, SecretHash};
use casement_domain::page::{Listed, Page};
use casement_domain::project::Project;
use casement_domain::{ApiKeyId, OrganizationId, ProjectId, StoreError, UserId};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{label, ulid, uuid};
use crate::database::{Database, window};
use crate::error::BadRow;
use crate::project::ProjectRow;
use crate::schema::{api_keys, projects};

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = api_keys, check_for_backend(diesel::pg::Pg))]
pub(crate) struct ApiKeyRow {
    id: Uuid,
    organization_id: Uuid,
    project_id: Option<Uuid>,
    name: String,
    secret_sha256: Vec<u8>,
    last4: String,
    created_by: Uuid,
    created_at: OffsetDateTime,
    expires_at: Option<OffsetDateTime>,
    deleted_at: Option<OffsetDateTime>,
}

impl From<&ApiKey> for ApiKeyRow {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: uuid(key.id.ulid()),
            organization_id: uuid(key.organization.ulid()),
            project_id: key.project.map(|id| uuid(id.ulid())),
            name: key.name.as_str().to_owned(),
            secret_sha256: key.hash.0.to_vec(),
            last4: key.last4.clone(),
            created_by: uuid(key.created_by.ulid()),
            created_at: key.created_at,
            expires_at: key.expires_at,
            deleted_at: key.deleted_at,
        }
    }
}

impl TryFrom<ApiKeyRow> for ApiKey {
    type Error = BadRow;

    fn try_from(row: ApiKeyRow) -> Result<Self, BadRow> {
        let hash = row.secret_sha256.try_into().map_err(|_| BadRow::new("secret_sha256", "not 32 bytes"))?;
        Ok(Self {
            id: ApiKeyId::from_ulid(ulid(row.id)),
            organization: OrganizationId::from_ulid(ulid(row.organization_id)),
            project: row.project_id.map(|id| ProjectId::from_ulid(ulid(id))),
            name: label("api_keys.name", &row.name)?,
            hash: SecretHash(hash),
            last4: row.last4,
            created_by: UserId::from_ulid(ulid(row.created_by)),
            created_at: row.created_at,
            expires_at: row.expires_at,
            deleted_at: row.deleted_at,
        })
    }
}

/// API keys in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgApiKeys {
    database: Database,
}

impl PgApiKeys {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ApiKeyRepository for PgApiKeys {
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::insert_into(api_keys::table).values(ApiKeyRow::from(key)).execute(connection).await?;
            Ok(())
        };
        self.database.call("api_key.insert", work).await
    }

    async fn find(&self, id: ApiKeyId) -> Result<Option<KeyWithHash>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // In diesel's own terms: a statement with text of ours in it would be prepared anew each time.
            let own = projects::id.nullable().eq(api_keys::project_id);
            let default = projects::is_default.and(projects::deleted_at.is_null());
            let home = own.or(api_keys::project_id.is_null().and(default));
            let home = projects::table.on(projects::organization_id.eq(api_keys::organization_id).and(home));
            let row = api_keys::table.left_join(home).filter(api_keys::id.eq(uuid(id.ulid())));
            let deleted = projects::deleted_at.nullable();
            let row = row.select((ApiKeyRow::as_select(), Option::<ProjectRow>::as_select(), deleted));
            let row: Option<(ApiKeyRow, Option<ProjectRow>, Option<OffsetDateTime>)> =
                row.get_result(connection).await.optional()?;
            let Some((key, home, deleted)) = row else { return Ok(None) };
            let home = home.filter(|_| deleted.is_none()).map(Project::try_from).transpose()?;
            Ok(Some(KeyWithHash { key: key.try_into()?, project_deleted: deleted.is_some(), home }))
        };
        self.database.call("api_key.find", work).await
    }

    async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<ApiKey>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let rows = api_keys::table.filter(api_keys::organization_id.eq(uuid(organization.ulid())));
            let rows =
                rows.filter(api_keys::deleted_at.is_null()).order((api_keys::created_at.desc(), api_keys::id.desc()));
            let rows = rows.limit(limit).offset(offset).select(ApiKeyRow::as_select()).load(connection).await?;
            let keys = rows.into_iter().map(ApiKey::try_from).collect::<Result<Vec<_>, _>>()?;
            Ok(page.cut(keys))
        };
        self.database.call("api_key.list", work).await
    }

    async fn delete(&self, organization: OrganizationId, id: ApiKeyId, at: OffsetDateTime) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = api_keys::table.find(uuid(id.ulid())).filter(api_keys::deleted_at.is_null());
            let row = row.filter(api_keys::organization_id.eq(uuid(organization.ulid())));
            Ok(diesel::update(row).set(api_keys::deleted_at.eq(at)).execute(connection).await? == 1)
        };
        self.database.call("api_key.delete", work).await
    }
}
