//! Credentials. Each of their secrets is sealed in a row or column of its own.

use std::collections::BTreeMap;

use async_trait::async_trait;
use casement_domain::credential::{
    Credential, CredentialChange, CredentialFilter, CredentialRepository, CredentialSecret, CredentialStored,
    CredentialUpdated, MAX_VALUES, SealedSecret, SealedSecrets, SealedTotp, TotpAlgorithm, TotpOptions, TotpParameters,
};
use casement_domain::name::LabelName;
use casement_domain::organization::{Limit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::sealing::KeyId;
use casement_domain::session::IdOrName;
use casement_domain::{CredentialId, ProjectId, StoreError};
use diesel::prelude::*;
use diesel::upsert::excluded;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::auth_connection::names;
use crate::column::{Column, row};
use crate::database::repository;
use crate::error::{CallError, if_violated};
use crate::project;
use crate::query::{contains, counted, window};
use crate::schema::{credential_values, credentials};
use crate::sealed::{head, under_other_key};

/// The constraint that keeps names unique.
const NAME_KEY: &str = "credentials_name_key";

row! {
    #[derive(Debug, Queryable, Selectable)]
    #[diesel(table_name = credentials, check_for_backend(diesel::pg::Pg))]
    struct CredentialRow {
        id: Column<CredentialId>,
        project_id: Column<ProjectId>,
        name: Column<LabelName>,
        domain: String,
        sso_provider: Option<String>,
        #[diesel(select_expression = credentials::sealed_totp.is_not_null())]
        has_totp_secret: bool,
        #[diesel(embed)]
        totp: TotpColumns,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Clone, Copy, Default, Insertable)]
    #[diesel(table_name = credentials, check_for_backend(diesel::pg::Pg))]
    /// The parameters of one-time codes; those that are null are the default ones.
    struct TotpColumns {
        totp_algorithm: Option<Column<TotpAlgorithm>>,
        totp_digits: Option<Column<u16>>,
        totp_period_seconds: Option<Column<u16>>,
    }
}

impl TotpColumns {
    fn of(totp: Option<&SealedTotp>) -> Self {
        let Some(TotpParameters { algorithm, digits, period_seconds }) = totp.map(|totp| totp.parameters) else {
            return Self::default();
        };
        Self {
            totp_algorithm: Some(Column(algorithm)),
            totp_digits: Some(Column(digits)),
            totp_period_seconds: Some(Column(period_seconds)),
        }
    }

    fn parameters(self) -> TotpParameters {
        let given = TotpOptions {
            algorithm: self.totp_algorithm.map(|column| column.0),
            digits: self.totp_digits.map(|column| column.0),
            period_seconds: self.totp_period_seconds.map(|column| column.0),
        };
        given.over(TotpParameters::default())
    }
}

repository! {
    /// Credentials in PostgreSQL.
    PgCredentials
}

/// The credentials of these rows, with the names of their values.
async fn complete(connection: &mut AsyncPgConnection, rows: Vec<CredentialRow>) -> Result<Vec<Credential>, CallError> {
    let ids: Vec<Column<CredentialId>> = rows.iter().map(|row| row.id).collect();
    let names = credential_values::table.filter(credential_values::credential_id.eq_any(ids));
    let names = names.select((credential_values::credential_id, credential_values::name));
    let mut by_id = BTreeMap::<Column<CredentialId>, Vec<String>>::new();
    for (id, name) in names.load(connection).await? {
        by_id.entry(id).or_default().push(name);
    }
    let one = |row: CredentialRow| {
        let mut value_keys = by_id.remove(&row.id).unwrap_or_default();
        value_keys.sort_unstable();
        Credential {
            id: row.id.0,
            project: row.project_id.0,
            name: row.name.0,
            domain: row.domain,
            sso_provider: row.sso_provider,
            value_keys,
            totp: row.has_totp_secret.then(|| row.totp.parameters()),
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    };
    Ok(rows.into_iter().map(one).collect())
}

/// The credentials with these names in these projects, in the order of `names`.
pub(crate) async fn named(
    connection: &mut AsyncPgConnection,
    names: &[(Column<ProjectId>, String)],
) -> Result<Vec<Option<Credential>>, CallError> {
    let mut found = Vec::new();
    for (project, name) in names {
        let rows = credentials::table.filter(credentials::project_id.eq(project)).filter(credentials::name.eq(name));
        let rows = rows.select(CredentialRow::as_select()).load(connection).await?;
        found.push(complete(connection, rows).await?.pop());
    }
    Ok(found)
}

async fn put_values(
    connection: &mut AsyncPgConnection,
    id: Column<CredentialId>,
    values: &BTreeMap<String, Vec<u8>>,
) -> Result<(), CallError> {
    let rows = values.iter().map(|(name, sealed)| {
        (
            credential_values::credential_id.eq(id),
            credential_values::name.eq(name),
            credential_values::sealed.eq(sealed),
        )
    });
    diesel::insert_into(credential_values::table)
        .values(rows.collect::<Vec<_>>())
        .on_conflict((credential_values::credential_id, credential_values::name))
        .do_update()
        .set(credential_values::sealed.eq(excluded(credential_values::sealed)))
        .execute(connection)
        .await?;
    Ok(())
}

/// An absent field leaves its column unchanged.
#[derive(AsChangeset)]
#[diesel(table_name = credentials)]
struct RowChange<'a> {
    name: Option<&'a str>,
    sso_provider: Option<Option<&'a str>>,
    sealed_totp: Option<Option<&'a [u8]>>,
    totp_algorithm: Option<Option<Column<TotpAlgorithm>>>,
    totp_digits: Option<Option<Column<u16>>>,
    totp_period_seconds: Option<Option<Column<u16>>>,
    updated_at: OffsetDateTime,
}

/// Stores a new credential, inside of a transaction. See [`CredentialRepository::create`].
pub(crate) async fn insert(
    connection: &mut AsyncPgConnection,
    credential: &Credential,
    secrets: &SealedSecrets,
    max: u32,
) -> Result<CredentialStored, CallError> {
    let project = Column(credential.project);
    if !project::lock(connection, credential.project).await? {
        return Ok(CredentialStored::ProjectGone);
    }
    let used = credentials::table.filter(credentials::project_id.eq(project)).count();
    if let Err(refused) = admit_one(Limit::ProjectCredentials, max, counted(connection, used).await?) {
        return Ok(CredentialStored::LimitExceeded(refused));
    }
    let id = Column(credential.id);
    let row = (
        credentials::id.eq(id),
        credentials::project_id.eq(project),
        credentials::name.eq(credential.name.as_str()),
        credentials::domain.eq(&credential.domain),
        credentials::sso_provider.eq(&credential.sso_provider),
        credentials::sealed_totp.eq(secrets.totp.as_ref().map(|totp| totp.sealed.as_slice())),
        TotpColumns::of(secrets.totp.as_ref()),
        credentials::created_at.eq(credential.created_at),
        credentials::updated_at.eq(credential.updated_at),
    );
    // A taken name must not abort the transaction, which may have more to do.
    let inserted =
        diesel::insert_into(credentials::table).values(row).on_conflict((credentials::project_id, credentials::name));
    if inserted.do_nothing().execute(connection).await? == 0 {
        return Ok(CredentialStored::NameTaken);
    }
    put_values(connection, id, &secrets.values).await?;
    Ok(CredentialStored::Yes)
}

/// Changes a credential, inside of a transaction. See [`CredentialRepository::update`].
pub(crate) async fn set(
    connection: &mut AsyncPgConnection,
    id: CredentialId,
    change: &CredentialChange,
    at: OffsetDateTime,
) -> Result<CredentialUpdated, CallError> {
    let id = Column(id);
    let row = credentials::table.find(id);
    // Locked, so that two concurrent changes do not both add the last allowed value.
    let held = row.select((credentials::project_id, credentials::name)).for_no_key_update();
    let held: Option<(Column<ProjectId>, String)> = held.get_result(connection).await.optional()?;
    let Some((project, before)) = held else { return Ok(CredentialUpdated::NotFound) };
    let values = credential_values::table.filter(credential_values::credential_id.eq(id));
    let stored = values.filter(credential_values::name.ne_all(&change.remove));
    let stored = stored.filter(credential_values::name.ne_all(change.values.keys())).count();
    if (counted(connection, stored).await? as usize).saturating_add(change.values.len()) > MAX_VALUES {
        return Ok(CredentialUpdated::TooManyValues);
    }
    let forgotten = values.filter(credential_values::name.eq_any(&change.remove));
    diesel::delete(forgotten).execute(connection).await?;
    put_values(connection, id, &change.values).await?;
    let totp = change.totp.as_ref().map(Option::as_ref);
    let columns = totp.map(TotpColumns::of);
    let changed = RowChange {
        name: change.name.as_ref().map(LabelName::as_str),
        sso_provider: change.sso_provider.as_ref().map(Option::as_deref),
        sealed_totp: totp.map(|totp| totp.map(|totp| totp.sealed.as_slice())),
        totp_algorithm: columns.map(|columns| columns.totp_algorithm),
        totp_digits: columns.map(|columns| columns.totp_digits),
        totp_period_seconds: columns.map(|columns| columns.totp_period_seconds),
        updated_at: at,
    };
    let changed = diesel::update(row).set(changed).returning(CredentialRow::as_select());
    let rows: Vec<CredentialRow> = changed.load(connection).await?;
    if let Some(name) = &change.name {
        names::credential_renamed(connection, project, (&before, name.as_str())).await?;
    }
    let now = complete(connection, rows).await?.pop();
    Ok(now.map_or(CredentialUpdated::NotFound, |credential| CredentialUpdated::Yes(Box::new(credential))))
}

#[async_trait]
impl CredentialRepository for PgCredentials {
    async fn create(
        &self,
        credential: &Credential,
        secrets: &SealedSecrets,
        max: u32,
    ) -> Result<CredentialStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| insert(connection, credential, secrets, max).await;
        self.database.transaction("credential.create", work).await
    }

    async fn find(&self, project: ProjectId, which: &IdOrName<CredentialId>) -> Result<Option<Credential>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = credentials::table.filter(credentials::project_id.eq(Column(project))).into_boxed();
            let rows = match which {
                IdOrName::Id(id) => rows.filter(credentials::id.eq(Column(*id))),
                IdOrName::Name(name) => rows.filter(credentials::name.eq(name)),
            };
            let rows = rows.select(CredentialRow::as_select()).load(connection).await?;
            Ok(complete(connection, rows).await?.pop())
        };
        self.database.fetch("credential.find", work).await
    }

    async fn secrets(&self, id: CredentialId) -> Result<Option<SealedSecrets>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = Column(id);
            let row = credentials::table.find(id).select((credentials::sealed_totp, TotpColumns::as_select()));
            // Locked, so that both reads see the same state.
            let row: Option<(Option<Vec<u8>>, TotpColumns)> =
                row.for_share().get_result(connection).await.optional()?;
            let Some((sealed, columns)) = row else { return Ok(None) };
            let totp = sealed.map(|sealed| SealedTotp { sealed, parameters: columns.parameters() });
            let values = credential_values::table.filter(credential_values::credential_id.eq(id));
            let values = values.select((credential_values::name, credential_values::sealed));
            let values: Vec<(String, Vec<u8>)> = values.load(connection).await?;
            Ok(Some(SealedSecrets { values: values.into_iter().collect(), totp }))
        };
        self.database.transaction("credential.secrets", work).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &CredentialFilter,
        page: Page,
    ) -> Result<Listed<Credential>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = credentials::table.filter(credentials::project_id.eq(Column(project))).into_boxed();
            if let Some(domain) = &filter.domain {
                rows = rows.filter(credentials::domain.eq(domain.to_lowercase()));
            }
            if let Some(query) = &filter.query {
                let texts = contains("credentials.name", query).or(contains("credentials.domain", query));
                rows = rows.filter(texts.or(credentials::id.eq_any(query.parse::<CredentialId>().ok().map(Column))));
            }
            let rows = rows.order((credentials::created_at.desc(), credentials::id.desc())).limit(limit).offset(offset);
            let rows = rows.select(CredentialRow::as_select()).load(connection).await?;
            Ok(page.cut(complete(connection, rows).await?))
        };
        self.database.fetch("credential.list", work).await
    }

    async fn update(
        &self,
        id: CredentialId,
        change: &CredentialChange,
        at: OffsetDateTime,
    ) -> Result<CredentialUpdated, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| set(connection, id, change, at).await;
        let name_taken = if_violated(&[NAME_KEY], CredentialUpdated::NameTaken);
        self.database.transaction_or("credential.update", work, name_taken).await
    }

    async fn delete(&self, id: CredentialId) -> Result<bool, StoreError> {
        self.database.changed("credential.delete", diesel::delete(credentials::table.find(Column(id)))).await
    }

    async fn sealed_with_other_key(&self, key: KeyId, max: u32) -> Result<Vec<SealedSecret>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let values = credential_values::table.filter(under_other_key("sealed", key)).limit(max.into());
            let values: Vec<(Column<CredentialId>, String, Vec<u8>)> = values.load(connection).await?;
            let totp = credentials::table.filter(under_other_key("sealed_totp", key)).limit(max.into());
            let totp = totp.select((credentials::id, credentials::sealed_totp.assume_not_null()));
            let totp: Vec<(Column<CredentialId>, Vec<u8>)> = totp.load(connection).await?;
            let values = values.into_iter().map(|(id, name, sealed)| (id, CredentialSecret::Value(name), sealed));
            let all = values.chain(totp.into_iter().map(|(id, sealed)| (id, CredentialSecret::Totp, sealed)));
            let all = all.map(|(id, secret, sealed)| SealedSecret { credential: id.0, secret, sealed });
            Ok(all.take(max as usize).collect())
        };
        self.database.fetch("credential.sealed_otherwise", work).await
    }

    async fn reseal(&self, current: &SealedSecret, next: &[u8]) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = Column(current.credential);
            match &current.secret {
                CredentialSecret::Value(name) => {
                    let row = credential_values::table.find((id, name));
                    let row = row.filter(credential_values::sealed.eq(&current.sealed));
                    diesel::update(row).set(credential_values::sealed.eq(next)).execute(connection).await?;
                }
                CredentialSecret::Totp => {
                    let row = credentials::table.find(id).filter(credentials::sealed_totp.eq(&current.sealed));
                    diesel::update(row).set(credentials::sealed_totp.eq(next)).execute(connection).await?;
                }
            }
            Ok(())
        };
        self.database.call("credential.reseal", work).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let totp = credentials::table.filter(credentials::sealed_totp.is_not_null()).select(head("sealed_totp"));
        self.database.keys("credential.keys", credential_values::table.select(head("sealed")).union(totp)).await
    }
}
