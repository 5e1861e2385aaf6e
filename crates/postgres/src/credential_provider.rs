//! Credential providers, their tokens sealed.

use async_trait::async_trait;
use casement_domain::credential_provider::{
    CredentialProvider, CredentialProviderRepository, ProviderChange, ProviderDeleted, ProviderPlace, ProviderStored,
    ProviderType, ProviderUpdated,
};
use casement_domain::name::LabelName;
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::page::{Listed, Page};
use casement_domain::sealing::KeyId;
use casement_domain::{CredentialProviderId, OrganizationId, ProjectId, StoreError};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use url::Url;
use uuid::Uuid;

use crate::auth_connection::names;
use crate::convert::{by_text, contains, count, int, label, number, ulid, uuid};
use crate::database::{Database, window};
use crate::error::{BadRow, CallError};
use crate::schema::{credential_providers, organizations, projects};

/// What keeps names unique.
const NAME_KEY: &str = "credential_providers_name_key";

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = credential_providers, check_for_backend(diesel::pg::Pg))]
struct ProviderRow {
    id: Uuid,
    organization_id: Uuid,
    name: String,
    #[diesel(column_name = type_)]
    kind: String,
    server_url: Option<String>,
    vault: Option<String>,
    sealed_token: Vec<u8>,
    cache_ttl_seconds: i32,
    enabled: bool,
    priority: i32,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    project_ids: Vec<Uuid>,
}

/// The columns that say where a store is.
fn place_columns(place: &ProviderPlace) -> (Option<String>, Option<String>) {
    match place {
        ProviderPlace::PasswordManager(url) => (url.as_ref().map(Url::to_string), None),
        ProviderPlace::Keepass(vault) => (None, Some(vault.clone())),
    }
}

impl From<&CredentialProvider> for ProviderRow {
    fn from(provider: &CredentialProvider) -> Self {
        let (server_url, vault) = place_columns(&provider.place);
        Self {
            id: uuid(provider.id.ulid()),
            organization_id: uuid(provider.organization.ulid()),
            name: provider.name.as_str().to_owned(),
            kind: provider.place.kind().as_str().to_owned(),
            server_url,
            vault,
            sealed_token: provider.token.clone(),
            cache_ttl_seconds: int(provider.cache_ttl_seconds),
            enabled: provider.enabled,
            priority: int(provider.priority),
            created_at: provider.created_at,
            updated_at: provider.updated_at,
            project_ids: uuids(&provider.projects),
        }
    }
}

impl TryFrom<ProviderRow> for CredentialProvider {
    type Error = BadRow;

    fn try_from(row: ProviderRow) -> Result<Self, BadRow> {
        let place = match by_text("credential_providers.type", &ProviderType::ALL, ProviderType::as_str, row.kind)? {
            ProviderType::PasswordManager => {
                let url = row.server_url.map(|url| Url::parse(&url)).transpose();
                let url = url.map_err(|error| BadRow::new("credential_providers.server_url", error))?;
                ProviderPlace::PasswordManager(url)
            }
            ProviderType::Keepass => ProviderPlace::Keepass(
                row.vault.ok_or_else(|| BadRow::new("credential_providers.vault", "is missing"))?,
            ),
        };
        Ok(Self {
            id: CredentialProviderId::from_ulid(ulid(row.id)),
            organization: OrganizationId::from_ulid(ulid(row.organization_id)),
            name: label("credential_providers.name", &row.name)?,
            place,
            token: row.sealed_token,
            cache_ttl_seconds: number("credential_providers.cache_ttl_seconds", row.cache_ttl_seconds)?,
            enabled: row.enabled,
            priority: number("credential_providers.priority", row.priority)?,
            created_at: row.created_at,
            updated_at: row.updated_at,
            projects: row.project_ids.into_iter().map(|id| ProjectId::from_ulid(ulid(id))).collect(),
        })
    }
}

/// What is absent stays as it is.
#[derive(AsChangeset)]
#[diesel(table_name = credential_providers)]
struct RowChange<'a> {
    name: Option<&'a str>,
    server_url: Option<Option<String>>,
    vault: Option<Option<String>>,
    sealed_token: Option<&'a [u8]>,
    cache_ttl_seconds: Option<i32>,
    enabled: Option<bool>,
    priority: Option<i32>,
    project_ids: Option<Vec<Uuid>>,
    updated_at: OffsetDateTime,
}

impl<'a> RowChange<'a> {
    fn of(change: &'a ProviderChange, at: OffsetDateTime) -> Self {
        let (server_url, vault) = change.place.as_ref().map(place_columns).unzip();
        Self {
            name: change.name.as_ref().map(LabelName::as_str),
            server_url,
            vault,
            sealed_token: change.token.as_deref(),
            cache_ttl_seconds: change.cache_ttl_seconds.map(int),
            enabled: change.enabled,
            priority: change.priority.map(int),
            project_ids: change.projects.as_deref().map(uuids),
            updated_at: at,
        }
    }
}

/// Credential providers in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgCredentialProviders {
    database: Database,
}

impl PgCredentialProviders {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

fn uuids(projects: &[ProjectId]) -> Vec<Uuid> {
    projects.iter().map(|project| uuid(project.ulid())).collect()
}

/// The first of the projects that the organization does not have. The others cannot be deleted before the transaction is over.
async fn unknown_project(
    connection: &mut AsyncPgConnection,
    organization: Uuid,
    wanted: &[Uuid],
) -> Result<Option<ProjectId>, CallError> {
    let found = projects::table.filter(projects::organization_id.eq(organization));
    let found = found.filter(projects::id.eq_any(wanted)).filter(projects::deleted_at.is_null());
    let known: Vec<Uuid> = found.select(projects::id).for_key_share().load(connection).await?;
    Ok(wanted.iter().find(|id| !known.contains(id)).map(|id| ProjectId::from_ulid(ulid(*id))))
}

fn read(row: Option<ProviderRow>) -> Result<Option<CredentialProvider>, CallError> {
    Ok(row.map(CredentialProvider::try_from).transpose()?)
}

fn all(rows: Vec<ProviderRow>) -> Result<Vec<CredentialProvider>, CallError> {
    Ok(rows.into_iter().map(CredentialProvider::try_from).collect::<Result<_, _>>()?)
}

#[async_trait]
impl CredentialProviderRepository for PgCredentialProviders {
    async fn create(&self, provider: &CredentialProvider, most: u32) -> Result<ProviderStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let organization = uuid(provider.organization.ulid());
            // Held, so that two do not both take the last place, or one priority.
            let owner = organizations::table.find(organization).select(organizations::id).for_no_key_update();
            owner.get_result::<Uuid>(connection).await?;
            let others = credential_providers::table.filter(credential_providers::organization_id.eq(organization));
            let used = count(others.count().get_result(connection).await?);
            if used >= most {
                let limit = Limit::OrganizationCredentialProviders;
                return Ok(ProviderStored::LimitExceeded(LimitExceeded { limit, value: most, used, requested: 1 }));
            }
            if let Some(project) = unknown_project(connection, organization, &uuids(&provider.projects)).await? {
                return Ok(ProviderStored::NoProject(project));
            }
            let last: Option<i32> =
                others.select(diesel::dsl::max(credential_providers::priority)).get_result(connection).await?;
            let next = last.map_or(0, |last| last.saturating_add(1).min(int(CredentialProvider::LAST_PRIORITY)));
            let row = ProviderRow { priority: next, ..provider.into() };
            diesel::insert_into(credential_providers::table).values(row).execute(connection).await?;
            Ok(ProviderStored::Yes(number("credential_providers.priority", next)?))
        };
        let name_taken = |error: CallError| {
            if error.violated() == Some(NAME_KEY) { Ok(ProviderStored::NameTaken) } else { Err(error) }
        };
        self.database.transaction_or("credential_provider.create", work, name_taken).await
    }

    async fn find(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
    ) -> Result<Option<CredentialProvider>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = credential_providers::table.find(uuid(id.ulid()));
            let row = row.filter(credential_providers::organization_id.eq(uuid(organization.ulid())));
            read(row.select(ProviderRow::as_select()).get_result(connection).await.optional()?)
        };
        self.database.fetch("credential_provider.find", work).await
    }

    async fn named(&self, organization: OrganizationId, name: &str) -> Result<Option<CredentialProvider>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = credential_providers::table.filter(credential_providers::name.eq(name));
            let row = row.filter(credential_providers::organization_id.eq(uuid(organization.ulid())));
            read(row.select(ProviderRow::as_select()).get_result(connection).await.optional()?)
        };
        self.database.fetch("credential_provider.named", work).await
    }

    async fn list<'a>(
        &self,
        organization: OrganizationId,
        query: Option<&'a str>,
        page: Page,
    ) -> Result<Listed<CredentialProvider>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let owner = uuid(organization.ulid());
            let mut rows =
                credential_providers::table.filter(credential_providers::organization_id.eq(owner)).into_boxed();
            if let Some(query) = query {
                let named = contains("credential_providers.name", query);
                rows = match query.parse::<CredentialProviderId>() {
                    Ok(id) => rows.filter(named.or(credential_providers::id.eq(uuid(id.ulid())))),
                    Err(_) => rows.filter(named),
                };
            }
            let rows = rows.order((
                credential_providers::priority,
                credential_providers::created_at,
                credential_providers::id,
            ));
            let rows = rows.limit(limit).offset(offset).select(ProviderRow::as_select());
            Ok(page.cut(all(rows.load(connection).await?)?))
        };
        self.database.fetch("credential_provider.list", work).await
    }

    async fn enabled(&self, organization: OrganizationId) -> Result<Vec<CredentialProvider>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = credential_providers::table.filter(credential_providers::enabled);
            let rows = rows.filter(credential_providers::organization_id.eq(uuid(organization.ulid())));
            let rows = rows.order((
                credential_providers::priority,
                credential_providers::created_at,
                credential_providers::id,
            ));
            all(rows.select(ProviderRow::as_select()).load(connection).await?)
        };
        self.database.fetch("credential_provider.enabled", work).await
    }

    async fn update(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
        change: &ProviderChange,
        at: OffsetDateTime,
    ) -> Result<ProviderUpdated, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let organization = uuid(organization.ulid());
            let row = credential_providers::table.find(uuid(id.ulid()));
            let row = row.filter(credential_providers::organization_id.eq(organization));
            // First the row, then the connections: one that is being stored with its name has the row, and is seen afterwards.
            let held = row.select((credential_providers::name, credential_providers::project_ids)).for_no_key_update();
            let Some((before, lent)) = held.get_result::<(String, Vec<Uuid>)>(connection).await.optional()? else {
                return Ok(ProviderUpdated::NotFound);
            };
            // One that was deleted since it was lent to may stay named.
            let mut new = uuids(change.projects.as_deref().unwrap_or_default());
            new.retain(|project| !lent.contains(project));
            if let Some(project) = unknown_project(connection, organization, &new).await? {
                return Ok(ProviderUpdated::NoProject(project));
            }
            let changed = diesel::update(row).set(RowChange::of(change, at)).returning(ProviderRow::as_select());
            let now: CredentialProvider = changed.get_result(connection).await?.try_into()?;
            if now.name.as_str() != before {
                names::provider_renamed(connection, organization, (&before, now.name.as_str())).await?;
            }
            Ok(ProviderUpdated::Yes(Box::new(now)))
        };
        let name_taken = |error: CallError| {
            if error.violated() == Some(NAME_KEY) { Ok(ProviderUpdated::NameTaken) } else { Err(error) }
        };
        self.database.transaction_or("credential_provider.update", work, name_taken).await
    }

    async fn delete(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
    ) -> Result<ProviderDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (id, organization) = (uuid(id.ulid()), uuid(organization.ulid()));
            let row = credential_providers::table.find(id);
            let row = row.filter(credential_providers::organization_id.eq(organization));
            // First the row, then the connections: one that is being stored with it has the row, and is seen afterwards.
            let held = row.select(credential_providers::name).for_update();
            let Some(name) = held.get_result::<String>(connection).await.optional()? else {
                return Ok(ProviderDeleted::NotFound);
            };
            if names::provider_is_named(connection, organization, (id, &name)).await? {
                return Ok(ProviderDeleted::InUse);
            }
            diesel::delete(row).execute(connection).await?;
            Ok(ProviderDeleted::Yes)
        };
        self.database.transaction("credential_provider.delete", work).await
    }

    async fn sealed_with_other_key(
        &self,
        key: KeyId,
        most: u32,
    ) -> Result<Vec<(CredentialProviderId, Vec<u8>)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let statement = diesel::sql_query(
                "SELECT id, sealed_token AS sealed FROM credential_providers
                 WHERE substring(sealed_token FROM 2 FOR 8) <> $1 ORDER BY id LIMIT $2",
            );
            let statement = statement.bind::<sql_types::Binary, _>(key.0.to_vec());
            let rows: Vec<Sealed> = statement.bind::<sql_types::BigInt, _>(i64::from(most)).load(connection).await?;
            Ok(rows.into_iter().map(|row| (CredentialProviderId::from_ulid(ulid(row.id)), row.sealed)).collect())
        };
        self.database.fetch("credential_provider.sealed_otherwise", work).await
    }

    async fn reseal(&self, id: CredentialProviderId, current: &[u8], next: &[u8]) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = credential_providers::table.find(uuid(id.ulid()));
            let row = row.filter(credential_providers::sealed_token.eq(current));
            diesel::update(row).set(credential_providers::sealed_token.eq(next)).execute(connection).await?;
            Ok(())
        };
        self.database.call("credential_provider.reseal", work).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let heads = diesel::dsl::sql::<sql_types::Binary>("substring(sealed_token FROM 1 FOR 9)");
            let found: Vec<Vec<u8>> = credential_providers::table.select(heads).distinct().load(connection).await?;
            Ok(found.iter().filter_map(|head| KeyId::of(head)).collect())
        };
        self.database.fetch("credential_provider.keys", work).await
    }
}

#[derive(QueryableByName)]
struct Sealed {
    #[diesel(sql_type = sql_types::Uuid)]
    id: Uuid,
    #[diesel(sql_type = sql_types::Binary)]
    sealed: Vec<u8>,
}
