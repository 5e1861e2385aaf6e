//! Opens what all nodes of a database share: the master keys, and the secret from which common keys are derived.

use std::sync::Arc;

use anyhow::bail;
use casement_domain::shared_secret::{KeyPurpose, SharedSecret, SharedSecretError, SharedSecrets};
use casement_http::SessionTokens;
use casement_postgres::{Database, PgSharedSecret};
use casement_sealing::MasterKeys;
use secrecy::SecretString;

use crate::data_dir::DataDir;
use crate::system::System;

/// The use cases of the shared secret.
pub(crate) fn use_cases(database: &Database) -> SharedSecrets {
    SharedSecrets::new(Arc::new(PgSharedSecret::new(database.clone())))
}

/// Opens the master keys and the shared secret.
///
/// # Errors
/// If other nodes of the database have another master key.
pub(crate) async fn open(
    database: &Database,
    data_dir: &DataDir,
    given: Option<&SecretString>,
) -> anyhow::Result<(MasterKeys, SharedSecret)> {
    let secrets = use_cases(database);
    let file = data_dir.master_key_file();
    // Refuses before a new key is created, which would have to be removed again.
    if given.is_none()
        && !file.exists()
        && let Some(needed) = secrets.needed_key().await?
    {
        bail!(
            "the database belongs to an installation whose master key is {needed}, and this data directory has none: set \
             CASEMENT_MASTER_KEY as on the other nodes, or copy their file `master-key` to {}",
            file.display()
        );
    }
    let keys = MasterKeys::open(data_dir.path(), given, Arc::new(System))?;
    match secrets.open(&keys, &System).await {
        Ok(secret) => Ok((keys, secret)),
        Err(error @ SharedSecretError::OtherMasterKey(_)) if given.is_some() => {
            bail!("{error}: CASEMENT_MASTER_KEY must have it, as on the other nodes")
        }
        Err(error @ SharedSecretError::OtherMasterKey(_)) => {
            bail!("{error}: set CASEMENT_MASTER_KEY as on the other nodes, or replace {} by their file", file.display())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the codec of session tokens.
pub(crate) fn session_tokens(secret: &SharedSecret, data_dir: &DataDir) -> anyhow::Result<SessionTokens> {
    let tokens = SessionTokens::new(&secret.key(KeyPurpose::SessionTokens));
    Ok(match data_dir.former_token_key()? {
        Some(former) => tokens.with_former_key(&former),
        None => tokens,
    })
}
