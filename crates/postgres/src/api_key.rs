//! API keys. Only the hashes of their secrets are stored.

use async_trait::async_trait;
use casement_domain::api_key::{
    ApiKey, ApiKeyDirectory, ApiKeyRepository, KeyEntry, KeyFilter, KeyOrder, KeyWithHash, SecretHash,
};
use casement_domain::name::LabelName;
use casement_domain::page::{Listed, Page};
use casement_domain::permission::{Policy, Statement};
use casement_domain::session::StatusFilter;
use casement_domain::{ApiKeyId, OrganizationId, ProjectId, StoreError, UserId};
use diesel::dsl::{Eq, Filter, Find, IsNull, sql};
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::changes::{Change, report};
use crate::column::{Column, ColumnValue, Stored, row};
use crate::database::Database;
use crate::error::{BadRow, CallError};
use crate::organization::UserRow;
use crate::project::ProjectRow;
use crate::query::contains;
use crate::recent_keys::RecentKeys;
use crate::schema::{api_keys, projects, users};

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = api_keys, check_for_backend(diesel::pg::Pg))]
    pub(crate) struct ApiKeyRow for ApiKey {
        id: Column<ApiKeyId>,
        organization: Column<OrganizationId> as organization_id,
        project: Option<Column<ProjectId>> as project_id,
        name: Column<LabelName>,
        hash: Column<SecretHash> as secret_sha256,
        last4: String,
        created_by: Column<UserId>,
        created_at: OffsetDateTime,
        expires_at: Option<OffsetDateTime>,
        deleted_at: Option<OffsetDateTime>,
        for_deployment: bool,
        policy: Option<Column<Policy>>,
    }
}

impl ColumnValue for SecretHash {
    type Raw = Vec<u8>;

    fn to_raw(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    fn from_raw(raw: Vec<u8>) -> Result<Self, String> {
        raw.try_into().map(Self).map_err(|_| "not 32 bytes".to_owned())
    }
}

/// A policy, stored as in the API: `{"statements": [{"action": …, "resource": …}]}`.
impl ColumnValue for Policy {
    type Raw = Value;

    fn to_raw(&self) -> Value {
        let text = |one: &Statement| json!({ "action": one.action(), "resource": one.resource() });
        json!({ "statements": self.statements().iter().map(text).collect::<Vec<_>>() })
    }

    fn from_raw(raw: Value) -> Result<Self, String> {
        let statements = raw["statements"].as_array().ok_or("no list of statements")?;
        let text = |one: &Value, member| one[member].as_str().unwrap_or_default().to_owned();
        let parsed = statements.iter().map(|one| Statement::parse(&text(one, "action"), &text(one, "resource")));
        let parsed = parsed.collect::<Result<Vec<_>, _>>().map_err(|bad| bad.to_string())?;
        Self::new(parsed).map_err(|bad| bad.to_string())
    }
}

/// API keys in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgApiKeys {
    database: Database,
    recent: Option<RecentKeys>,
}

impl PgApiKeys {
    /// Creates the repository on this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, recent: None }
    }

    /// Caches keys that were read, for less than a second.
    #[must_use]
    pub fn with_cache(self, recent: RecentKeys) -> Self {
        Self { recent: Some(recent), ..self }
    }

    /// Clears the cached keys. Called after each change, even if its outcome is unknown.
    fn forget(&self) {
        if let Some(recent) = &self.recent {
            recent.forget();
        }
    }

    async fn read(&self, id: ApiKeyId) -> Result<Option<KeyWithHash>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            // Without SQL fragments of our own: diesel prepares a statement with such a fragment anew each time.
            let own = projects::id.nullable().eq(api_keys::project_id);
            let default = projects::is_default.and(projects::deleted_at.is_null());
            let home = own.or(api_keys::project_id.is_null().and(default));
            let home = projects::table.on(projects::organization_id.eq(api_keys::organization_id).and(home));
            let row = api_keys::table.left_join(home).filter(api_keys::id.eq(Column(id)));
            let deleted = projects::deleted_at.nullable();
            let row = row.select((ApiKeyRow::as_select(), Option::<ProjectRow>::as_select(), deleted));
            let row: Option<(ApiKeyRow, Option<ProjectRow>, Option<OffsetDateTime>)> =
                row.get_result(&mut connection).await.optional()?;
            let Some((key, home, deleted)) = row else { return Ok(None) };
            let home = home.filter(|_| deleted.is_none()).value()?;
            Ok(Some(KeyWithHash { key: key.value()?, project_deleted: deleted.is_some(), home }))
        };
        self.database.read("api_key.find", work).await
    }
}

#[async_trait]
impl ApiKeyRepository for PgApiKeys {
    async fn insert(&self, key: &ApiKey) -> Result<(), StoreError> {
        let row = diesel::insert_into(api_keys::table).values(ApiKeyRow::of(key));
        self.database.change("api_key.insert", row).await
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
        let rows = api_keys::table.filter(api_keys::organization_id.eq(Column(organization)));
        let rows =
            rows.filter(api_keys::deleted_at.is_null()).order((api_keys::created_at.desc(), api_keys::id.desc()));
        let rows = rows.select(ApiKeyRow::as_select());
        self.database.page("api_key.list", page, rows).await
    }

    async fn delete(&self, organization: OrganizationId, id: ApiKeyId, at: OffsetDateTime) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = diesel::update(not_deleted(organization, id)).set(api_keys::deleted_at.eq(at));
            let changed = row.execute(connection).await?;
            reported(connection, changed).await
        };
        let done = self.database.transaction("api_key.delete", work).await;
        self.forget();
        done
    }
}

/// Notifies all nodes of a statement that changed any keys, and returns whether it did.
async fn reported(connection: &mut AsyncPgConnection, changed: usize) -> Result<bool, CallError> {
    if changed > 0 {
        report(connection, Change::Keys).await?;
    }
    Ok(changed > 0)
}

type LivingKey = Filter<
    Filter<Find<api_keys::table, Column<ApiKeyId>>, IsNull<api_keys::deleted_at>>,
    Eq<api_keys::organization_id, Column<OrganizationId>>,
>;

/// The key of the organization, if it is not deleted.
fn not_deleted(organization: OrganizationId, id: ApiKeyId) -> LivingKey {
    let row = api_keys::table.find(Column(id)).filter(api_keys::deleted_at.is_null());
    row.filter(api_keys::organization_id.eq(Column(organization)))
}

/// A key, the user who created it, and the name of its project.
#[derive(Queryable)]
struct EntryRow(ApiKeyRow, UserRow, Option<String>);

impl Stored<KeyEntry> for EntryRow {
    fn of(entry: &KeyEntry) -> Self {
        Self(ApiKeyRow::of(&entry.key), UserRow::of(&entry.created_by), entry.project_name.clone())
    }

    fn value(self) -> Result<KeyEntry, BadRow> {
        Ok(KeyEntry { key: self.0.value()?, created_by: self.1.value()?, project_name: self.2 })
    }
}

/// The boxed query that loads the keys of the organization as [`EntryRow`]s.
macro_rules! entries {
    ($organization:expr) => {
        api_keys::table
            .inner_join(users::table.on(users::id.eq(api_keys::created_by)))
            .left_join(projects::table)
            .filter(api_keys::organization_id.eq(Column($organization)))
            .select((ApiKeyRow::as_select(), UserRow::as_select(), projects::name.nullable()))
            .into_boxed()
    };
}

#[async_trait]
impl ApiKeyDirectory for PgApiKeys {
    async fn find(&self, organization: OrganizationId, id: ApiKeyId) -> Result<Option<KeyEntry>, StoreError> {
        let row = entries!(organization).filter(api_keys::id.eq(Column(id)));
        self.database.find::<EntryRow, _>("api_key.entry", row).await
    }

    async fn list(
        &self,
        organization: OrganizationId,
        filter: &KeyFilter,
        page: Page,
    ) -> Result<Listed<KeyEntry>, StoreError> {
        let mut rows = entries!(organization);
        rows = match filter.status {
            StatusFilter::Active => rows.filter(api_keys::deleted_at.is_null()),
            StatusFilter::Deleted => rows.filter(api_keys::deleted_at.is_not_null()),
            StatusFilter::All => rows,
        };
        if let Some(name) = &filter.name {
            // The collation of the column is for sorting; names are compared with another one.
            rows = rows.filter(sql::<Bool>("api_keys.name COLLATE name_ci = ").bind::<Text, _>(name.clone()));
        }
        if let Some(query) = &filter.query {
            let held = contains("api_keys.name", query)
                .or(contains("users.email", query))
                .or(contains("users.name", query))
                .or(contains("projects.name", query));
            rows = match beginning(query) {
                Some((from, to)) => rows.filter(held.or(api_keys::id.between(Column(from), Column(to)))),
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
        self.database.page::<EntryRow, _>("api_key.entries", page, rows).await
    }

    async fn rename(&self, organization: OrganizationId, id: ApiKeyId, name: &LabelName) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = diesel::update(not_deleted(organization, id)).set(api_keys::name.eq(name.as_str()));
            let changed = row.execute(connection).await?;
            reported(connection, changed).await
        };
        let done = self.database.transaction("api_key.rename", work).await;
        self.forget();
        done
    }

    async fn rotate(&self, id: ApiKeyId, expires_at: OffsetDateTime, next: &ApiKey) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = api_keys::table.find(Column(id)).filter(api_keys::deleted_at.is_null()).for_update();
            let end: Option<Option<OffsetDateTime>> =
                row.select(api_keys::expires_at).get_result(connection).await.optional()?;
            let Some(end) = end else { return Ok(false) };
            let end = end.map_or(expires_at, |end| end.min(expires_at));
            let row = api_keys::table.find(Column(id));
            diesel::update(row).set(api_keys::expires_at.eq(end)).execute(connection).await?;
            diesel::insert_into(api_keys::table).values(ApiKeyRow::of(next)).execute(connection).await?;
            report(connection, Change::Keys).await?;
            Ok(true)
        };
        let done = self.database.transaction("api_key.rotate", work).await;
        self.forget();
        done
    }
}

/// The first and the last possible id of the keys whose id or masked text begins with `text`. Ids sort like their
/// texts, so that a prefix is a range.
fn beginning(text: &str) -> Option<(ApiKeyId, ApiKeyId)> {
    let text = text.trim();
    let text = text.strip_prefix("csk_").unwrap_or(text);
    let id = text.split_once('_').map_or(text, |(id, _masked)| id);
    if id.is_empty() || id.len() > 26 {
        return None;
    }
    let filled = |with: &str| format!("{id}{}", with.repeat(26 - id.len())).parse::<ApiKeyId>().ok();
    Some((filled("0")?, filled("z")?))
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
            let parsed = |text: &str| text.parse::<casement_domain::ApiKeyId>().expect("an id");
            assert_eq!(beginning(text), span.map(|(from, to)| (parsed(from), parsed(to))), "{text}");
        }
    }
}
