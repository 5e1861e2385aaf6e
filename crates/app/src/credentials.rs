//! Credentials, put together.

use std::sync::Arc;

use casement_domain::credential::{CredentialDeps, Credentials};
use casement_postgres::{Database, PgCredentials};

use crate::sealing::MasterKeys;
use crate::system::System;

/// The use cases.
pub(crate) fn use_cases(database: Database, keys: &MasterKeys) -> Credentials {
    Credentials::new(CredentialDeps {
        credentials: Arc::new(PgCredentials::new(database)),
        sealer: Arc::new(keys.clone()),
        clock: Arc::new(System),
        ids: Arc::new(System),
        most: Credentials::DEFAULT_MOST,
    })
}
