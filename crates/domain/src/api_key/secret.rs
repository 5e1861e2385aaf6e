//! The text of a key: `csk_<id>_<secret>`, an id of 26 and a secret of 43 characters. It is shown once; only the hash
//! of the secret is stored.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::clock::Entropy;
use crate::ids::ApiKeyId;

const PREFIX: &str = "csk_";

/// The secret half of a key. It has no `Display`, and `Debug` does not show it.
#[derive(Clone)]
pub struct KeySecret([u8; 32]);

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(…)")
    }
}

/// The SHA-256 hash of a secret. The secret is random, so it needs no slow hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretHash(pub [u8; 32]);

impl SecretHash {
    /// Returns whether this is the hash of `secret`, in constant time.
    #[must_use]
    pub fn matches(&self, secret: &KeySecret) -> bool {
        self.0.ct_eq(&secret.hash().0).into()
    }
}

impl KeySecret {
    /// Creates a random secret.
    #[must_use]
    pub fn mint(entropy: &dyn Entropy) -> Self {
        Self(entropy.secret_bytes())
    }

    /// Returns the hash, which is stored.
    #[must_use]
    pub fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.0).into())
    }

    /// Returns the text of the key, which is shown once.
    #[must_use]
    pub fn key_text(&self, id: ApiKeyId) -> String {
        format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(self.0))
    }

    /// Returns the last four characters of the secret.
    #[must_use]
    pub fn last4(&self) -> String {
        let text = URL_SAFE_NO_PAD.encode(self.0);
        text.chars().skip(text.len() - 4).collect()
    }

    /// Parses the text of a key; returns `None` if it is not one.
    #[must_use]
    pub fn parse_key(text: &str) -> Option<(ApiKeyId, Self)> {
        let rest = text.strip_prefix(PREFIX)?;
        let (id, secret) = rest.split_once('_')?;
        let bytes = URL_SAFE_NO_PAD.decode(secret).ok()?;
        Some((id.parse().ok()?, Self(bytes.try_into().ok()?)))
    }
}

/// Returns the key as it is shown after its creation: `csk_<id>_****<last 4>`.
#[must_use]
pub fn masked(id: ApiKeyId, last4: &str) -> String {
    format!("{PREFIX}{id}_****{last4}")
}
