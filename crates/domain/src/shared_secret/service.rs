//! Opens the shared secret at the start of a node, and seals it anew when the master key is replaced.

use std::sync::Arc;

use secrecy::ExposeSecret as _;

use super::{SharedSecret, SharedSecretRepository};
use crate::clock::Entropy;
use crate::sealing::{KeyId, Resealed, SealError, Sealer};
use crate::store_error::StoreError;

/// The shared secret cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SharedSecretError {
    /// The node has none of the master keys of the other nodes.
    #[error("the database is sealed under the master key {0}, which this node does not have")]
    OtherMasterKey(KeyId),
    /// The secret or the master keys cannot be read.
    #[error("the shared secret cannot be opened: {0}")]
    Seal(#[from] SealError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The use cases of the shared secret.
pub struct SharedSecrets {
    rows: Arc<dyn SharedSecretRepository>,
}

impl SharedSecrets {
    /// Creates the use cases.
    #[must_use]
    pub fn new(rows: Arc<dyn SharedSecretRepository>) -> Self {
        Self { rows }
    }

    /// Returns a master key that a node must have to open this store; `None` if nothing is sealed yet.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn needed_key(&self) -> Result<Option<KeyId>, StoreError> {
        match self.rows.find().await? {
            Some(sealed) => Ok(KeyId::of(&sealed)),
            None => Ok(self.rows.keys_of_other_values().await?.first().copied()),
        }
    }

    /// Returns the secret, which the first node of a store creates.
    ///
    /// # Errors
    /// [`SharedSecretError::OtherMasterKey`] if the secret, or everything that was sealed before there was a secret, is
    /// sealed under keys that `sealer` does not have.
    pub async fn open(&self, sealer: &dyn Sealer, entropy: &dyn Entropy) -> Result<SharedSecret, SharedSecretError> {
        let sealed = match self.rows.find().await? {
            Some(sealed) => sealed,
            None => {
                let used = self.rows.keys_of_other_values().await?;
                if let Some(first) = used.first().filter(|_| !used.iter().any(|key| sealer.knows(*key))) {
                    return Err(SharedSecretError::OtherMasterKey(*first));
                }
                self.rows.keep(&sealer.seal(SharedSecret::PLACE, SharedSecret::draw(entropy).bytes())?).await?
            }
        };
        if let Some(key) = KeyId::of(&sealed).filter(|key| !sealer.knows(*key)) {
            return Err(SharedSecretError::OtherMasterKey(key));
        }
        let opened = sealer.open(SharedSecret::PLACE, &sealed)?;
        let bytes = opened.expose_secret().first_chunk().copied().ok_or(SealError::Damaged)?;
        Ok(SharedSecret::from_bytes(bytes))
    }

    /// Seals the secret with the current key.
    ///
    /// # Errors
    /// If the store fails or the keys cannot be read.
    pub async fn reseal(&self, sealer: &dyn Sealer) -> Result<Resealed, SharedSecretError> {
        let mut resealed = Resealed::default();
        let Some(before) = self.rows.find().await? else { return Ok(resealed) };
        if KeyId::of(&before) == Some(sealer.current()?) {
            return Ok(resealed);
        }
        if let Some(after) = resealed.reseal_value(sealer, SharedSecret::PLACE.to_owned(), &before)?
            && self.rows.replace(&before, &after).await?
        {
            resealed.done += 1;
        }
        Ok(resealed)
    }

    /// Returns the master keys under which anything is sealed.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn used_keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let own = self.rows.find().await?.and_then(|sealed| KeyId::of(&sealed));
        let mut keys = self.rows.keys_of_other_values().await?;
        keys.extend(own);
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_secret::{KeyPurpose, MockSharedSecretRepository};
    use crate::testing::{CountingIds, PlainSealer};

    /// The secret of a store with this sealed secret and these keys of other values.
    async fn opened(stored: Option<Vec<u8>>, others: Vec<KeyId>) -> Result<SharedSecret, SharedSecretError> {
        let mut rows = MockSharedSecretRepository::new();
        rows.expect_find().returning(move || Ok(stored.clone()));
        rows.expect_keys_of_other_values().returning(move || Ok(others.clone()));
        rows.expect_keep().returning(|sealed| Ok(sealed.to_vec()));
        SharedSecrets::new(Arc::new(rows)).open(&PlainSealer, &CountingIds::default()).await
    }

    fn strange() -> KeyId {
        KeyId([9; 8])
    }

    #[tokio::test]
    async fn the_first_node_creates_the_secret_and_others_open_the_same() {
        let first = opened(None, Vec::new()).await.expect("created");
        let sealed = PlainSealer.seal(SharedSecret::PLACE, first.bytes()).expect("sealed");
        let second = opened(Some(sealed), vec![strange()]).await.expect("opened");
        assert_eq!(first.key(KeyPurpose::SessionTokens), second.key(KeyPurpose::SessionTokens));
    }

    #[tokio::test]
    async fn a_node_without_the_master_key_of_the_others_is_refused() {
        let mut sealed = PlainSealer.seal(SharedSecret::PLACE, &[7; 32]).expect("sealed");
        sealed[1..9].copy_from_slice(&strange().0);
        for (stored, others) in [(Some(sealed), Vec::new()), (None, vec![strange()])] {
            let refused = opened(stored, others).await.expect_err("another key");
            assert!(matches!(refused, SharedSecretError::OtherMasterKey(key) if key == strange()), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_store_whose_values_are_sealed_under_an_own_key_gets_a_secret() {
        let own = PlainSealer.current().expect("a key");
        assert!(opened(None, vec![strange(), own]).await.is_ok());
    }
}
