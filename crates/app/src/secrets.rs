//! `casement secrets`: manages the master key of this installation.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use casement_domain::Clock as _;
use casement_domain::credential::Credentials;
use casement_domain::credential_provider::CredentialProviders;
use casement_domain::deployment::{self, DeploymentRepository};
use casement_domain::profile::Profiles;
use casement_domain::proxy::Proxies;
use casement_domain::sealing::{Resealed, Sealer as _};
use casement_domain::shared_secret::SharedSecrets;
use casement_domain::telemetry_destination::TelemetryDestinations;
use casement_egress::{Egress, Limits, Rules, SystemResolver};
use casement_postgres::{
    PgCredentialProviders, PgCredentials, PgDeployments, PgNodes, PgProfiles, PgProxies, PgTelemetryDestinations,
};

use crate::data_dir;
use crate::proxies::{self, EgressProxyChecker};
use crate::settings::SecretsCommand;
use crate::store::Store;
use crate::system::System;
use crate::{blob_store, credential_providers, credentials, profiles, shared_secret, telemetry_destinations};
use casement_sealing::MasterKeys;

/// Runs the command. A server may run at the same time: it reads the new key by itself.
pub(crate) async fn run(command: SecretsCommand) -> anyhow::Result<()> {
    let SecretsCommand::Rotate { store, master_key } = command;
    let place = store.data_dir.path()?;
    if master_key.is_none() && place.exists() {
        // The running server must be able to read the new key.
        data_dir::check_owner(&place)?;
    }
    let beside = Store::open_for(&store).await?;
    let done = async {
        let data_dir = store.data_dir.path()?;
        if master_key.is_none() {
            refuse_with_other_nodes(&beside.store, &data_dir).await?;
        }
        let keys = MasterKeys::open(&data_dir, master_key.as_ref(), Arc::new(System))?;
        let rows = Arc::new(PgProxies::new(beside.store.database.clone()));
        // This command opens no connection.
        let egress = Egress::new(Rules::default(), Arc::new(SystemResolver::default()), Limits::default());
        let secrets = proxies::use_cases(
            rows,
            &keys,
            EgressProxyChecker { egress, address_url: None },
            Arc::default(),
            Proxies::DEFAULT_MAX,
        );
        let versions = Arc::new(PgProfiles::new(beside.store.database.clone()));
        let states = profiles::versions(versions, blob_store::of_directory(&data_dir)?, &keys);
        let states = profiles::use_cases(states, Profiles::DEFAULT_MAX);
        let login_rows = Arc::new(PgCredentials::new(beside.store.database.clone()));
        let logins = credentials::use_cases(login_rows, &keys, Credentials::DEFAULT_MAX);
        let provider_rows = Arc::new(PgCredentialProviders::new(beside.store.database.clone()));
        let providers = credential_providers::without_network(provider_rows, &keys);
        let destination_rows = Arc::new(PgTelemetryDestinations::new(beside.store.database.clone()));
        let destinations = telemetry_destinations::without_network(destination_rows, &keys);
        let sealed = SealedTables {
            proxies: secrets,
            profiles: states,
            credentials: logins,
            providers,
            destinations,
            deployments: Arc::new(PgDeployments::new(beside.store.database.clone())),
            shared_secret: shared_secret::use_cases(&beside.store.database),
        };
        rotate(&keys, &sealed).await
    };
    let done = done.await;
    beside.close().await?;
    done
}

/// The tables with sealed values.
struct SealedTables {
    proxies: Proxies,
    profiles: Profiles,
    credentials: Credentials,
    deployments: Arc<dyn DeploymentRepository>,
    providers: CredentialProviders,
    destinations: TelemetryDestinations,
    shared_secret: SharedSecrets,
}

/// Refuses to add a key to the file of one node while other nodes run, which could not open what is sealed under it.
async fn refuse_with_other_nodes(store: &Store, data_dir: &Path) -> anyhow::Result<()> {
    let others = PgNodes::new(store.database.clone()).others_alive(data_dir::node_of(data_dir)).await?;
    anyhow::ensure!(
        others == 0,
        "{others} other nodes use the database, and this would add a key to the file of one node alone: set \
         CASEMENT_MASTER_KEY on all nodes, first to the keys of the file and then with a new key before them"
    );
    Ok(())
}

async fn rotate(keys: &MasterKeys, sealed: &SealedTables) -> anyhow::Result<()> {
    let added = keys.add(System.now())?;
    let Resealed { done, failed } = sealed.proxies.reseal().await?
        + sealed.profiles.reseal(keys).await?
        + sealed.credentials.reseal().await?
        + sealed.providers.reseal().await?
        + sealed.destinations.reseal().await?
        + deployment::reseal(&*sealed.deployments, keys).await?
        + sealed.shared_secret.reseal(keys).await?;
    let retained = keys.forget(&sealed.shared_secret.used_keys().await?, System.now())?;
    let mut out = std::io::stdout().lock();
    let current = keys.current()?;
    if added {
        writeln!(out, "sealing under a new key, {current}")?;
    } else {
        writeln!(out, "sealing under the first key of CASEMENT_MASTER_KEY, {current}")?;
    }
    writeln!(out, "resealed: {done}")?;
    if retained > 0 {
        writeln!(
            out,
            "older keys kept: {retained}; the next rotation forgets those replaced an hour before that seal nothing"
        )?;
    }
    for (place, error) in &failed {
        writeln!(out, "not resealed: {place}: {error}")?;
    }
    anyhow::ensure!(failed.is_empty(), "{} of what is sealed cannot be opened and stays as it is", failed.len());
    Ok(())
}
