//! Wires credentials.

use std::sync::Arc;

use casement_domain::credential::{CredentialDeps, CredentialRepository, Credentials};

use crate::system::System;
use casement_sealing::MasterKeys;

/// Returns the use cases.
pub(crate) fn use_cases(rows: Arc<dyn CredentialRepository>, keys: &MasterKeys, max: u32) -> Credentials {
    Credentials::new(CredentialDeps {
        credentials: rows,
        sealer: Arc::new(keys.clone()),
        clock: Arc::new(System),
        ids: Arc::new(System),
        max,
    })
}
