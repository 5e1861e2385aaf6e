//! Credential providers, with sealed tokens.

use async_trait::async_trait;
use casement_domain::credential_provider::{
    CredentialProvider, CredentialProviderRepository, ProviderChange, ProviderDeleted, ProviderPlace, ProviderStored,
    ProviderType, ProviderUpdated,
};
use casement_domain::name::LabelName;
use casement_domain::organization::{Limit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::sealing::KeyId;
use casement_domain::{CredentialProviderId, OrganizationId, ProjectId, StoreError};
use diesel::dsl::{Eq, Filter};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use url::Url;
use uuid::Uuid;

use crate::auth_connection::names;
use crate::column::{Column, Stored, columns, row};
use crate::database::repository;
use crate::error::{BadRow, CallError, if_violated};
use crate::query::{contains, counted, find};
use crate::schema::{credential_providers, organizations, projects};
use crate::sealed::{head, under_other_key};

/// The constraint that keeps names unique.
const NAME_KEY: &str = "credential_providers_name_key";

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = credential_providers, check_for_backend(diesel::pg::Pg))]
    struct ProviderRow for CredentialProvider {
        id: Column<CredentialProviderId>,
        organization: Column<OrganizationId> as organization_id,
        name: Column<LabelName>,
        #[diesel(embed)]
        place: PlaceColumns,
        token: Vec<u8> as sealed_token,
        cache_ttl_seconds: Column<u32>,
        enabled: bool,
        priority: Column<u32>,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
        projects: Vec<Column<ProjectId>> as project_ids,
        is_onepassword: bool,
    }
}

row! {
    /// An absent field leaves its column unchanged.
    #[derive(AsChangeset)]
    #[diesel(table_name = credential_providers)]
    struct ChangeRow for ProviderChange {
        name: Option<Column<LabelName>>,
        #[diesel(embed)]
        place: Option<PlaceColumns>,
        token: Option<Vec<u8>> as sealed_token,
        cache_ttl_seconds: Option<Column<u32>>,
        enabled: Option<bool>,
        priority: Option<Column<u32>>,
        projects: Option<Vec<Column<ProjectId>>> as project_ids,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = credential_providers, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    struct PlaceColumns {
        kind: Column<ProviderType> as type_,
        server_url: Option<Column<Url>>,
        vault: Option<String>,
    }
}

impl Stored<ProviderPlace> for PlaceColumns {
    fn of(place: &ProviderPlace) -> Self {
        let (server_url, vault) = match place.clone() {
            ProviderPlace::PasswordManager(url) => (url.map(Column), None),
            ProviderPlace::Keepass(vault) => (None, Some(vault)),
        };
        Self { kind: Column(place.kind()), server_url, vault }
    }

    fn value(self) -> Result<ProviderPlace, BadRow> {
        match (self.kind.0, self.vault) {
            (ProviderType::PasswordManager, _) => Ok(ProviderPlace::PasswordManager(self.server_url.value()?)),
            (ProviderType::Keepass, Some(vault)) => Ok(ProviderPlace::Keepass(vault)),
            (ProviderType::Keepass, None) => Err(BadRow::new("credential_providers.vault", "is missing")),
        }
    }
}

repository! {
    /// Credential providers in PostgreSQL.
    PgCredentialProviders
}

/// The credential providers of the organization.
fn of(organization: OrganizationId) -> OfOrganization {
    credential_providers::table.filter(credential_providers::organization_id.eq(Column(organization)))
}

type OfOrganization =
    Filter<credential_providers::table, Eq<credential_providers::organization_id, Column<OrganizationId>>>;

/// The order in which providers are used.
const BY_PRIORITY: (credential_providers::priority, credential_providers::created_at, credential_providers::id) =
    (credential_providers::priority, credential_providers::created_at, credential_providers::id);

/// The first of these projects that the organization does not have. Locks the others against deletion until the
/// transaction ends.
async fn unknown_project(
    connection: &mut AsyncPgConnection,
    organization: OrganizationId,
    wanted: &[ProjectId],
) -> Result<Option<ProjectId>, CallError> {
    let found = projects::table.filter(projects::organization_id.eq(Column(organization)));
    let found = found.filter(projects::id.eq_any(columns(wanted))).filter(projects::deleted_at.is_null());
    let known: Vec<Column<ProjectId>> = found.select(projects::id).for_key_share().load(connection).await?;
    Ok(wanted.iter().copied().find(|id| !known.contains(&Column(*id))))
}

#[async_trait]
impl CredentialProviderRepository for PgCredentialProviders {
    async fn create(&self, provider: &CredentialProvider, max: u32) -> Result<ProviderStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Locked, so that two transactions do not both use the last unit of the limit, or the same priority.
            let owner = organizations::table.find(Column(provider.organization)).select(organizations::id);
            owner.for_no_key_update().get_result::<Uuid>(connection).await?;
            let others = of(provider.organization);
            let used = counted(connection, others.count()).await?;
            if let Err(refused) = admit_one(Limit::OrganizationCredentialProviders, max, used) {
                return Ok(ProviderStored::LimitExceeded(refused));
            }
            if let Some(project) = unknown_project(connection, provider.organization, &provider.projects).await? {
                return Ok(ProviderStored::NoProject(project));
            }
            let last = others.select(diesel::dsl::max(credential_providers::priority));
            let last: Option<Column<u32>> = last.get_result(connection).await?;
            let next = last.map_or(0, |last| last.0.saturating_add(1).min(CredentialProvider::LAST_PRIORITY));
            let row = ProviderRow { priority: Column(next), ..ProviderRow::of(provider) };
            diesel::insert_into(credential_providers::table).values(row).execute(connection).await?;
            Ok(ProviderStored::Yes(next))
        };
        let name_taken = if_violated(&[NAME_KEY], ProviderStored::NameTaken);
        self.database.transaction_or("credential_provider.create", work, name_taken).await
    }

    async fn find(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
    ) -> Result<Option<CredentialProvider>, StoreError> {
        let row = of(organization).find(Column(id)).select(ProviderRow::as_select());
        self.database.find("credential_provider.find", row).await
    }

    async fn named(&self, organization: OrganizationId, name: &str) -> Result<Option<CredentialProvider>, StoreError> {
        let row = of(organization).filter(credential_providers::name.eq(name)).select(ProviderRow::as_select());
        self.database.find("credential_provider.named", row).await
    }

    async fn list<'a>(
        &self,
        organization: OrganizationId,
        query: Option<&'a str>,
        page: Page,
    ) -> Result<Listed<CredentialProvider>, StoreError> {
        let mut rows = of(organization).into_boxed();
        if let Some(query) = query {
            let ids = query.parse::<CredentialProviderId>().ok().map(Column);
            rows = rows.filter(contains("credential_providers.name", query).or(credential_providers::id.eq_any(ids)));
        }
        let rows = rows.order(BY_PRIORITY).select(ProviderRow::as_select());
        self.database.page("credential_provider.list", page, rows).await
    }

    async fn enabled(&self, organization: OrganizationId) -> Result<Vec<CredentialProvider>, StoreError> {
        let rows = of(organization).filter(credential_providers::enabled).order(BY_PRIORITY);
        self.database.all("credential_provider.enabled", rows.select(ProviderRow::as_select())).await
    }

    async fn update(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
        change: &ProviderChange,
        at: OffsetDateTime,
    ) -> Result<ProviderUpdated, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = of(organization).find(Column(id));
            // Locks the row before it looks for connections: storing a connection locks this row too, so that it is
            // visible afterwards.
            let held = row.select(ProviderRow::as_select()).for_no_key_update();
            let before: Option<CredentialProvider> = find(connection, held).await?;
            let Some(before) = before else { return Ok(ProviderUpdated::NotFound) };
            // A project that was deleted since it was added may stay in the list.
            let mut new = change.projects.clone().unwrap_or_default();
            new.retain(|project| !before.projects.contains(project));
            if let Some(project) = unknown_project(connection, organization, &new).await? {
                return Ok(ProviderUpdated::NoProject(project));
            }
            let changed = diesel::update(row).set((ChangeRow::of(change), credential_providers::updated_at.eq(at)));
            let changed = changed.returning(ProviderRow::as_returning());
            let now: CredentialProvider = changed.get_result(connection).await?.value()?;
            if now.name != before.name {
                let names = (before.name.as_str(), now.name.as_str());
                names::provider_renamed(connection, organization, names).await?;
            }
            Ok(ProviderUpdated::Yes(Box::new(now)))
        };
        let name_taken = if_violated(&[NAME_KEY], ProviderUpdated::NameTaken);
        self.database.transaction_or("credential_provider.update", work, name_taken).await
    }

    async fn delete(
        &self,
        organization: OrganizationId,
        id: CredentialProviderId,
    ) -> Result<ProviderDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = of(organization).find(Column(id));
            // Locks the row before it looks for connections, as in `update`.
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
        max: u32,
    ) -> Result<Vec<(CredentialProviderId, Vec<u8>)>, StoreError> {
        let rows = credential_providers::table.filter(under_other_key("sealed_token", key));
        let rows = rows.order(credential_providers::id).limit(max.into());
        let rows = rows.select((credential_providers::id, credential_providers::sealed_token));
        self.database.all::<(Column<_>, Vec<u8>), _>("credential_provider.sealed_otherwise", rows).await
    }

    async fn reseal(&self, id: CredentialProviderId, current: &[u8], next: &[u8]) -> Result<(), StoreError> {
        let row = credential_providers::table.find(Column(id)).filter(credential_providers::sealed_token.eq(current));
        let row = diesel::update(row).set(credential_providers::sealed_token.eq(next));
        self.database.change("credential_provider.reseal", row).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let heads = credential_providers::table.select(head("sealed_token")).distinct();
        self.database.keys("credential_provider.keys", heads).await
    }
}
