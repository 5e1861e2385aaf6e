//! The secret and its keys.

use hkdf::Hkdf;
use secrecy::{ExposeSecret as _, SecretBox};
use sha2::Sha256;

use crate::clock::Entropy;

/// What a derived key is for. Keys of different purposes are independent of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPurpose {
    /// Signs session tokens and connect tokens.
    SessionTokens,
}

impl KeyPurpose {
    /// The label, which must never change.
    fn label(self) -> &'static [u8] {
        match self {
            Self::SessionTokens => b"casement session tokens",
        }
    }
}

/// The secret that all nodes of a store share.
pub struct SharedSecret(SecretBox<[u8; 32]>);

impl SharedSecret {
    /// The place for which the secret is sealed.
    pub const PLACE: &str = "shared_secret";

    /// Creates a new secret.
    #[must_use]
    pub fn draw(entropy: &dyn Entropy) -> Self {
        Self::from_bytes(entropy.secret_bytes())
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(SecretBox::new(Box::new(bytes)))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        self.0.expose_secret()
    }

    /// Derives the key of a purpose with HKDF-SHA256. Equal secrets give equal keys.
    #[must_use]
    pub fn key(&self, purpose: KeyPurpose) -> [u8; 32] {
        let mut key = [0; 32];
        let derived = Hkdf::<Sha256>::new(None, self.bytes()).expand(purpose.label(), &mut key);
        derived.unwrap_or_else(|_| unreachable!("HKDF gives up to 8,160 bytes"));
        key
    }
}

impl std::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_the_secret_and_on_nothing_else() {
        let key = |byte| SharedSecret::from_bytes([byte; 32]).key(KeyPurpose::SessionTokens);
        assert_eq!(key(1), key(1));
        assert_ne!(key(1), key(2));
        assert_ne!(key(1), [1; 32]);
        assert_eq!(format!("{:?}", SharedSecret::from_bytes([1; 32])), "SharedSecret(…)");
    }
}
