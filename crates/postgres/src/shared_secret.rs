//! The secret that all nodes share, sealed.

use async_trait::async_trait;
use casement_domain::StoreError;
use casement_domain::credential::CredentialRepository as _;
use casement_domain::credential_provider::CredentialProviderRepository as _;
use casement_domain::deployment::DeploymentRepository as _;
use casement_domain::profile::ProfileRepository as _;
use casement_domain::proxy::ProxyRepository as _;
use casement_domain::sealing::KeyId;
use casement_domain::shared_secret::SharedSecretRepository;
use casement_domain::telemetry_destination::TelemetryDestinationRepository as _;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::database::repository;
use crate::schema::shared_secret;
use crate::{PgCredentialProviders, PgCredentials, PgDeployments, PgProfiles, PgProxies, PgTelemetryDestinations};

repository! {
    /// The shared secret in PostgreSQL.
    PgSharedSecret
}

#[async_trait]
impl SharedSecretRepository for PgSharedSecret {
    async fn find(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            Ok(shared_secret::table.select(shared_secret::sealed).get_result(connection).await.optional()?)
        };
        self.database.fetch("shared_secret.find", work).await
    }

    async fn keep(&self, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = diesel::insert_into(shared_secret::table).values(shared_secret::sealed.eq(sealed));
            // Waits for the transaction of another node that has just inserted the row.
            row.on_conflict_do_nothing().execute(connection).await?;
            Ok(shared_secret::table.select(shared_secret::sealed).get_result(connection).await?)
        };
        self.database.transaction("shared_secret.keep", work).await
    }

    async fn replace(&self, before: &[u8], after: &[u8]) -> Result<bool, StoreError> {
        let row = diesel::update(shared_secret::table.filter(shared_secret::sealed.eq(before)));
        self.database.changed("shared_secret.replace", row.set(shared_secret::sealed.eq(after))).await
    }

    async fn keys_of_other_values(&self) -> Result<Vec<KeyId>, StoreError> {
        let database = || self.database.clone();
        Ok([
            PgProxies::new(database()).keys().await?,
            PgProfiles::new(database()).keys().await?,
            PgCredentials::new(database()).keys().await?,
            PgCredentialProviders::new(database()).keys().await?,
            PgDeployments::new(database()).keys().await?,
            PgTelemetryDestinations::new(database()).keys().await?,
        ]
        .concat())
    }
}
