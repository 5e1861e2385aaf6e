//! The sealed secrets of deployments, a row each.

use casement_domain::DeploymentId;
use casement_domain::deployment::{DeploymentSecret, SealedDeployment, SealedDeploymentSecret};
use casement_domain::sealing::KeyId;
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use crate::convert::{ulid, uuid};
use crate::error::{BadRow, CallError};
use crate::schema::deployment_secrets;

const ENV_VAR: &str = "env_var";
const TOKEN: &str = "token";
const API_KEY: &str = "api_key";

#[derive(QueryableByName, Queryable, Insertable)]
#[diesel(table_name = deployment_secrets)]
struct SecretRow {
    #[diesel(sql_type = sql_types::Uuid)]
    deployment_id: Uuid,
    #[diesel(sql_type = sql_types::Text)]
    kind: String,
    #[diesel(sql_type = sql_types::Text)]
    name: String,
    #[diesel(sql_type = sql_types::Binary)]
    sealed: Vec<u8>,
}

fn kind(secret: &DeploymentSecret) -> (&'static str, &str) {
    match secret {
        DeploymentSecret::EnvVar(name) => (ENV_VAR, name),
        DeploymentSecret::Token => (TOKEN, ""),
        DeploymentSecret::ApiKey => (API_KEY, ""),
    }
}

impl TryFrom<SecretRow> for SealedDeploymentSecret {
    type Error = BadRow;

    fn try_from(row: SecretRow) -> Result<Self, BadRow> {
        let secret = match row.kind.as_str() {
            ENV_VAR => DeploymentSecret::EnvVar(row.name),
            TOKEN => DeploymentSecret::Token,
            API_KEY => DeploymentSecret::ApiKey,
            other => return Err(BadRow::new("deployment_secrets.kind", other)),
        };
        Ok(Self { deployment: DeploymentId::from_ulid(ulid(row.deployment_id)), secret, sealed: row.sealed })
    }
}

pub(super) async fn put(
    connection: &mut AsyncPgConnection,
    id: DeploymentId,
    secrets: &SealedDeployment,
) -> Result<(), CallError> {
    let row = |kind: &str, name: &str, sealed: &[u8]| SecretRow {
        deployment_id: uuid(id.ulid()),
        kind: kind.to_owned(),
        name: name.to_owned(),
        sealed: sealed.to_owned(),
    };
    let mut rows = vec![row(API_KEY, "", &secrets.api_key)];
    rows.extend(secrets.token.as_ref().map(|sealed| row(TOKEN, "", sealed)));
    rows.extend(secrets.env_vars.iter().map(|(name, sealed)| row(ENV_VAR, name, sealed)));
    diesel::insert_into(deployment_secrets::table).values(rows).execute(connection).await?;
    Ok(())
}

pub(super) async fn of(
    connection: &mut AsyncPgConnection,
    id: DeploymentId,
) -> Result<Option<SealedDeployment>, CallError> {
    let rows = deployment_secrets::table.filter(deployment_secrets::deployment_id.eq(uuid(id.ulid())));
    let rows: Vec<SecretRow> = rows.load(connection).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut found = SealedDeployment::default();
    for row in rows {
        let one = SealedDeploymentSecret::try_from(row)?;
        match one.secret {
            DeploymentSecret::EnvVar(name) => drop(found.env_vars.insert(name, one.sealed)),
            DeploymentSecret::Token => found.token = Some(one.sealed),
            DeploymentSecret::ApiKey => found.api_key = one.sealed,
        }
    }
    Ok(Some(found))
}

pub(super) async fn sealed_with_other_key(
    connection: &mut AsyncPgConnection,
    key: KeyId,
    most: u32,
) -> Result<Vec<SealedDeploymentSecret>, CallError> {
    let statement = diesel::sql_query(
        "SELECT deployment_id, kind, name, sealed FROM deployment_secrets
         WHERE substring(sealed FROM 2 FOR 8) <> $1 LIMIT $2",
    );
    let statement = statement.bind::<sql_types::Binary, _>(key.0.to_vec());
    let rows: Vec<SecretRow> = statement.bind::<sql_types::BigInt, _>(i64::from(most)).load(connection).await?;
    Ok(rows.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?)
}

pub(super) async fn reseal(
    connection: &mut AsyncPgConnection,
    current: &SealedDeploymentSecret,
    next: &[u8],
) -> Result<(), CallError> {
    let (kind, name) = kind(&current.secret);
    let row = deployment_secrets::table.find((uuid(current.deployment.ulid()), kind, name));
    let row = row.filter(deployment_secrets::sealed.eq(&current.sealed));
    diesel::update(row).set(deployment_secrets::sealed.eq(next)).execute(connection).await?;
    Ok(())
}

pub(super) async fn keys(connection: &mut AsyncPgConnection) -> Result<Vec<KeyId>, CallError> {
    let statement = diesel::sql_query("SELECT DISTINCT substring(sealed FROM 1 FOR 9) AS head FROM deployment_secrets");
    let found: Vec<Head> = statement.load(connection).await?;
    Ok(found.iter().filter_map(|row| KeyId::of(&row.head)).collect())
}

#[derive(QueryableByName)]
struct Head {
    #[diesel(sql_type = sql_types::Binary)]
    head: Vec<u8>,
}
