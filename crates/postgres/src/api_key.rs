//! API keys; their secrets are never here, only hashes.

use async_trait::async_trait;
use casement_domain::api_key::{
    ApiKey, ApiKeyDirectory, ApiKeyRepository, KeyEntry, KeyFilter, KeyOrder, KeyWithHash, SecretHash,
};
use casement_domain::name::LabelName;
use casement_domain::organization::User;
use casement_domain::page::{Listed, Page};
use casement_domain::project::Project;
use casement_domain::session::StatusFilter;
use casement_domain::{ApiKeyId, OrganizationId, ProjectId, StoreError, UserId};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{contains, label, ulid, uuid};
use crate::database::{Database, window};
use crate::error::BadRow;
use crate::project::ProjectRow;
use crate::recent_keys::RecentKeys;
use crate::schema::{api_keys, projects, users};

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
    for_deployment: bool,
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
            for_deployment: key.for_deployment,
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
            for_deployment: row.for_deployment,
        })
    }
}

/// API keys in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgApiKeys {
    database: Database,
    recent: Option<RecentKeys>,
}

impl PgApiKeys {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, recent: None }
    }

    /// The same, which remembers keys for less than a second.
    #[must_use]
    pub fn remembering(self, recent: RecentKeys) -> Self {
        Self { recent: Some(recent), ..self }
    }

    /// After a change; also after one of which nobody knows whether it came through.
    fn forget(&self) {
        if let Some(recent) = &self.recent {
            recent.forget();
        }
    }

    async fn read(&self, id: ApiKeyId) -> Result<Option<KeyWithHash>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            // In diesel's own terms: a statement with text of ours in it would be prepared anew each time.
            let own = projects::id.nullable().eq(api_keys::project_id);
            let default = projects::is_default.and(projects::deleted_at.is_null());
            let home = own.or(api_keys::project_id.is_null().and(default));
            let home = projects::table.on(projects::organization_id.eq(api_keys::organization_id).and(home));
            let row = api_keys::table.left_join(home).filter(api_keys::id.eq(uuid(id.ulid())));
            let deleted = projects::deleted_at.nullable();
            let row = row.select((ApiKeyRow::as_select(), Option::<ProjectRow>::as_select(), deleted));
            let row: Option<(ApiKeyRow, Option<ProjectRow>, Option<OffsetDateTime>)> =
                row.get_result(&mut connection).await.optional()?;
            let Some((key, home, deleted)) = row else { return Ok(None) };
            let home = home.filter(|_| deleted.is_none()).map(Project::try_from).transpose()?;
            Ok(Some(KeyWithHash { key: key.try_into()?, project_deleted: deleted.is_some(), home }))
        };
        self.database.read("api_key.find", work).await
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
        let Some(recent) = &self.recent else { return self.read(id).await };
        let reading = match recent.find(id) {
            Ok(known) => return Ok(Some(known)),
            Err(reading) => reading,
        };
        let found = self.read(id).await?;
        if let Some(found) = &found {
            recent.note(reading, id, found);
        }
        Ok(found)
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
        self.database.fetch("api_key.list", work).await
    }

    async fn delete(&self, organization: OrganizationId, id: ApiKeyId, at: OffsetDateTime) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = api_keys::table.find(uuid(id.ulid())).filter(api_keys::deleted_at.is_null());
            let row = row.filter(api_keys::organization_id.eq(uuid(organization.ulid())));
            Ok(diesel::update(row).set(api_keys::deleted_at.eq(at)).execute(connection).await? == 1)
        };
        let done = self.database.call("api_key.delete", work).await;
        self.forget();
        done
    }
}

/// A key, who made it, and the project that it opens.
type EntryRow = (ApiKeyRow, Uuid, String, Option<String>, Option<String>);

fn entry((key, maker, email, name, project_name): EntryRow) -> Result<KeyEntry, BadRow> {
    let key = ApiKey::try_from(key)?;
    let created_by = User { id: UserId::from_ulid(ulid(maker)), organization: key.organization, email, name };
    Ok(KeyEntry { key, created_by, project_name })
}

/// What an [`EntryRow`] is read from, with the organization's keys as a boxed query of it.
macro_rules! entries {
    ($organization:expr) => {
        api_keys::table
            .inner_join(users::table.on(users::id.eq(api_keys::created_by)))
            .left_join(projects::table)
            .filter(api_keys::organization_id.eq(uuid($organization.ulid())))
            .select((ApiKeyRow::as_select(), users::id, users::email, users::name, projects::name.nullable()))
            .into_boxed()
    };
}

#[async_trait]
impl ApiKeyDirectory for PgApiKeys {
    async fn find(&self, organization: OrganizationId, id: ApiKeyId) -> Result<Option<KeyEntry>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = entries!(organization).filter(api_keys::id.eq(uuid(id.ulid())));
            let row: Option<EntryRow> = row.get_result(connection).await.optional()?;
            Ok(row.map(entry).transpose()?)
        };
        self.database.fetch("api_key.entry", work).await
    }

    async fn list(
        &self,
        organization: OrganizationId,
        filter: &KeyFilter,
        page: Page,
    ) -> Result<Listed<KeyEntry>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = entries!(organization);
            rows = match filter.status {
                StatusFilter::Active => rows.filter(api_keys::deleted_at.is_null()),
                StatusFilter::Deleted => rows.filter(api_keys::deleted_at.is_not_null()),
                StatusFilter::All => rows,
            };
            if let Some(name) = &filter.name {
                // The column keeps the order of its own collation; names are compared by another one.
                rows = rows.filter(sql::<Bool>("api_keys.name COLLATE name_ci = ").bind::<Text, _>(name.clone()));
            }
            if let Some(query) = &filter.query {
                let held = contains("api_keys.name", query)
                    .or(contains("users.email", query))
                    .or(contains("users.name", query))
                    .or(contains("projects.name", query));
                rows = match beginning(query) {
                    Some((from, to)) => rows.filter(held.or(api_keys::id.between(from, to))),
                    None => rows.filter(held),
                };
            }
            rows = match (filter.order, filter.ascending) {
                (KeyOrder::CreatedAt, true) => rows.order((api_keys::created_at.asc(), api_keys::id.asc())),
                (KeyOrder::CreatedAt, false) => rows.order((api_keys::created_at.desc(), api_keys::id.desc())),
                (KeyOrder::Name, true) => rows.order((api_keys::name.asc(), api_keys::id.asc())),
                (KeyOrder::Name, false) => rows.order((api_keys::name.desc(), api_keys::id.desc())),
                (KeyOrder::ExpiresAt, true) => rows.order((api_keys::expires_at.asc(), api_keys::id.asc())),
                (KeyOrder::ExpiresAt, false) => rows.order((api_keys::expires_at.desc(), api_keys::id.desc())),
            };
            let rows: Vec<EntryRow> = rows.limit(limit).offset(offset).load(connection).await?;
            Ok(page.cut(rows.into_iter().map(entry).collect::<Result<_, _>>()?))
        };
        self.database.fetch("api_key.entries", work).await
    }

    async fn rename(&self, organization: OrganizationId, id: ApiKeyId, name: &LabelName) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = api_keys::table.find(uuid(id.ulid())).filter(api_keys::deleted_at.is_null());
            let row = row.filter(api_keys::organization_id.eq(uuid(organization.ulid())));
            Ok(diesel::update(row).set(api_keys::name.eq(name.as_str())).execute(connection).await? == 1)
        };
        let done = self.database.call("api_key.rename", work).await;
        self.forget();
        done
    }

    async fn rotate(&self, id: ApiKeyId, expires_at: OffsetDateTime, next: &ApiKey) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = api_keys::table.find(uuid(id.ulid())).filter(api_keys::deleted_at.is_null()).for_update();
            let end: Option<Option<OffsetDateTime>> =
                row.select(api_keys::expires_at).get_result(connection).await.optional()?;
            let Some(end) = end else { return Ok(false) };
            let end = end.map_or(expires_at, |end| end.min(expires_at));
            let row = api_keys::table.find(uuid(id.ulid()));
            diesel::update(row).set(api_keys::expires_at.eq(end)).execute(connection).await?;
            diesel::insert_into(api_keys::table).values(ApiKeyRow::from(next)).execute(connection).await?;
            Ok(true)
        };
        let done = self.database.transaction("api_key.rotate", work).await;
        self.forget();
        done
    }
}

/// The first and the last key whose identifier, or whose masked text, begins like this: a beginning of the text is a span of the
/// order.
fn beginning(text: &str) -> Option<(Uuid, Uuid)> {
    let text = text.trim();
    let text = text.strip_prefix("csk_").unwrap_or(text);
    let id = text.split_once('_').map_or(text, |(id, _masked)| id);
    if id.is_empty() || id.len() > 26 {
        return None;
    }
    let filled = |with: &str| format!("{id}{}", with.repeat(26 - id.len())).parse::<ApiKeyId>().ok();
    Some((uuid(filled("0")?.ulid()), uuid(filled("z")?.ulid())))
}

#[cfg(test)]
mod tests {
    use super::beginning;

    #[test]
    fn the_beginning_of_an_identifier_is_a_span_of_identifiers() {
        for (text, span) in [
            ("01k", Some(("01k00000000000000000000000", "01kzzzzzzzzzzzzzzzzzzzzzzz"))),
            ("csk_01K", Some(("01k00000000000000000000000", "01kzzzzzzzzzzzzzzzzzzzzzzz"))),
            (
                "csk_01k00000000000000000000000_****abcd",
                Some(("01k00000000000000000000000", "01k00000000000000000000000")),
            ),
            ("", None),
            ("first key", None),
            ("z", None),
        ] {
            let parsed = |text: &str| super::uuid(text.parse::<casement_domain::ApiKeyId>().expect("an id").ulid());
            assert_eq!(beginning(text), span.map(|(from, to)| (parsed(from), parsed(to))), "{text}");
        }
    }
}
