//! The sealed secrets of deployments, one per row.

use casement_domain::DeploymentId;
use casement_domain::deployment::{DeploymentSecret, SealedDeployment, SealedDeploymentSecret};
use casement_domain::sealing::KeyId;
use diesel::dsl::{Eq, Filter, Find};
use diesel::prelude::*;
use diesel_async::methods::LoadQuery;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::column::{Column, Stored, row};
use crate::error::{BadRow, CallError};
use crate::query::all;
use crate::schema::deployment_secrets;
use crate::sealed;

const ENV_VAR: &str = "env_var";
const TOKEN: &str = "token";
const API_KEY: &str = "api_key";

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = deployment_secrets, check_for_backend(diesel::pg::Pg))]
    pub(super) struct SecretRow {
        deployment_id: Column<DeploymentId>,
        kind: String,
        name: String,
        sealed: Vec<u8>,
    }
}

fn kind(secret: &DeploymentSecret) -> (&'static str, &str) {
    match secret {
        DeploymentSecret::EnvVar(name) => (ENV_VAR, name),
        DeploymentSecret::Token => (TOKEN, ""),
        DeploymentSecret::ApiKey => (API_KEY, ""),
    }
}

impl Stored<SealedDeploymentSecret> for SecretRow {
    fn of(secret: &SealedDeploymentSecret) -> Self {
        let (kind, name) = kind(&secret.secret);
        let (deployment_id, sealed) = (Column(secret.deployment), secret.sealed.clone());
        Self { deployment_id, kind: kind.to_owned(), name: name.to_owned(), sealed }
    }

    fn value(self) -> Result<SealedDeploymentSecret, BadRow> {
        let secret = match self.kind.as_str() {
            ENV_VAR => DeploymentSecret::EnvVar(self.name),
            TOKEN => DeploymentSecret::Token,
            API_KEY => DeploymentSecret::ApiKey,
            other => return Err(BadRow::new("deployment_secrets.kind", other)),
        };
        Ok(SealedDeploymentSecret { deployment: self.deployment_id.0, secret, sealed: self.sealed })
    }
}

pub(super) async fn put(
    connection: &mut AsyncPgConnection,
    id: DeploymentId,
    secrets: &SealedDeployment,
) -> Result<(), CallError> {
    let row = |secret, sealed: &[u8]| {
        SecretRow::of(&SealedDeploymentSecret { deployment: id, secret, sealed: sealed.to_owned() })
    };
    let mut rows = vec![row(DeploymentSecret::ApiKey, &secrets.api_key)];
    rows.extend(secrets.token.as_ref().map(|sealed| row(DeploymentSecret::Token, sealed)));
    rows.extend(secrets.env_vars.iter().map(|(name, sealed)| row(DeploymentSecret::EnvVar(name.clone()), sealed)));
    diesel::insert_into(deployment_secrets::table).values(rows).execute(connection).await?;
    Ok(())
}

pub(super) async fn of(
    connection: &mut AsyncPgConnection,
    id: DeploymentId,
) -> Result<Option<SealedDeployment>, CallError> {
    let rows = deployment_secrets::table.filter(deployment_secrets::deployment_id.eq(Column(id)));
    let rows: Vec<SealedDeploymentSecret> = all(connection, rows.select(SecretRow::as_select())).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut found = SealedDeployment::default();
    for one in rows {
        match one.secret {
            DeploymentSecret::EnvVar(name) => drop(found.env_vars.insert(name, one.sealed)),
            DeploymentSecret::Token => found.token = Some(one.sealed),
            DeploymentSecret::ApiKey => found.api_key = one.sealed,
        }
    }
    Ok(Some(found))
}

pub(super) fn under_other_key(key: KeyId, max: u32) -> impl LoadQuery<'static, AsyncPgConnection, SecretRow> + Send {
    let rows = deployment_secrets::table.filter(sealed::under_other_key("sealed", key));
    rows.limit(max.into()).select(SecretRow::as_select())
}

type StoredSecret<'a> = Filter<
    Find<deployment_secrets::table, (Column<DeploymentId>, &'a str, &'a str)>,
    Eq<deployment_secrets::sealed, &'a Vec<u8>>,
>;

/// The row of the secret, if its sealed bytes are still the same.
pub(super) fn stored(secret: &SealedDeploymentSecret) -> StoredSecret<'_> {
    let (kind, name) = kind(&secret.secret);
    let row = deployment_secrets::table.find((Column(secret.deployment), kind, name));
    row.filter(deployment_secrets::sealed.eq(&secret.sealed))
}
