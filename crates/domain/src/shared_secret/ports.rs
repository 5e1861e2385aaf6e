//! The port of the shared secret.

use async_trait::async_trait;

use crate::sealing::KeyId;
use crate::store_error::StoreError;

/// The port to the stored secret, of which there is at most one.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait SharedSecretRepository: Send + Sync {
    /// Returns the sealed secret, if there is one.
    async fn find(&self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Stores the sealed secret unless there is one, and returns the stored one. Of concurrent calls, all return the
    /// same.
    async fn keep(&self, sealed: &[u8]) -> Result<Vec<u8>, StoreError>;

    /// Replaces the sealed secret `before`. Returns `false` if it is another one.
    async fn replace(&self, before: &[u8], after: &[u8]) -> Result<bool, StoreError>;

    /// Returns the master keys under which the values of all resources are sealed, the secret itself excepted.
    async fn keys_of_other_values(&self) -> Result<Vec<KeyId>, StoreError>;
}
