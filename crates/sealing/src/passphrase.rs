//! Seals a value under a passphrase of a person, with Argon2id and XChaCha20-Poly1305.
//!
//! The form is one byte with the version, the salt, the nonce and the sealed content. The version fixes the cost of the
//! key derivation, so that an altered value cannot make the derivation take all memory.

use argon2::{Config, ThreadMode, Variant, Version};
use casement_domain::Entropy;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

/// The version of the form.
const FORM: u8 = 1;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 24;
const KEY_BYTES: u32 = 32;
/// The memory of a derivation, in KiB: 64 MiB.
const MEMORY_KIB: u32 = 64 << 10;
const PASSES: u32 = 3;
const LANES: u32 = 1;

/// The reason why a passphrase cannot be used, or a value not be opened with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassphraseError {
    /// The passphrase is too short.
    #[error("a passphrase has at least {} characters", Passphrase::MIN_CHARS)]
    TooShort,
    /// The passphrase is too long.
    #[error("a passphrase has at most {} bytes", Passphrase::MAX_BYTES)]
    TooLong,
    /// The value has an unknown form.
    #[error("it is not sealed under a passphrase, or by a later version")]
    UnknownForm,
    /// The passphrase is wrong, or the value or its context was altered. The two cannot be distinguished.
    #[error("the passphrase is wrong, or the sealed data was altered")]
    Refused,
    /// The key cannot be derived, for lack of memory.
    #[error("no key can be derived from the passphrase")]
    Derivation,
}

/// A passphrase that is long enough.
#[derive(Clone, Debug)]
pub struct Passphrase(SecretString);

impl Passphrase {
    /// The minimum length, in characters.
    pub const MIN_CHARS: usize = 12;
    /// The maximum length, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Checks the length.
    ///
    /// # Errors
    /// [`PassphraseError::TooShort`] or [`PassphraseError::TooLong`].
    pub fn new(text: SecretString) -> Result<Self, PassphraseError> {
        if text.expose_secret().len() > Self::MAX_BYTES {
            return Err(PassphraseError::TooLong);
        }
        match text.expose_secret().chars().count() {
            0..Self::MIN_CHARS => Err(PassphraseError::TooShort),
            _ => Ok(Self(text)),
        }
    }

    /// Seals `plain`. It opens only with the same `context`, which is authenticated but not stored. Takes about 0.1 s
    /// and 64 MiB.
    ///
    /// # Errors
    /// [`PassphraseError::Derivation`].
    pub fn seal(&self, context: &[u8], plain: &[u8], entropy: &dyn Entropy) -> Result<Vec<u8>, PassphraseError> {
        let (salt, nonce) = (entropy.secret_bytes(), entropy.secret_bytes());
        let mut sealed = vec![FORM];
        sealed.extend_from_slice(&salt[..SALT_BYTES]);
        sealed.extend_from_slice(&nonce[..NONCE_BYTES]);
        let payload = Payload { msg: plain, aad: &[&sealed, context].concat() };
        let cipher = self.cipher(&salt[..SALT_BYTES])?;
        let content = cipher.encrypt(XNonce::from_slice(&nonce[..NONCE_BYTES]), payload);
        sealed.extend_from_slice(&content.map_err(|_| PassphraseError::Derivation)?);
        Ok(sealed)
    }

    /// Opens a value that was sealed with the same passphrase and `context`. Costs as much as [`seal`](Self::seal).
    ///
    /// # Errors
    /// [`PassphraseError`].
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<SecretSlice<u8>, PassphraseError> {
        if sealed.first() != Some(&FORM) {
            return Err(PassphraseError::UnknownForm);
        }
        let split = sealed.split_at_checked(1 + SALT_BYTES + NONCE_BYTES);
        let (head, content) = split.ok_or(PassphraseError::UnknownForm)?;
        let (salt, nonce) = head[1..].split_at(SALT_BYTES);
        let payload = Payload { msg: content, aad: &[head, context].concat() };
        let opened = self.cipher(salt)?.decrypt(XNonce::from_slice(nonce), payload);
        opened.map(Into::into).map_err(|_| PassphraseError::Refused)
    }

    fn cipher(&self, salt: &[u8]) -> Result<XChaCha20Poly1305, PassphraseError> {
        let config = Config {
            variant: Variant::Argon2id,
            version: Version::Version13,
            mem_cost: MEMORY_KIB,
            time_cost: PASSES,
            lanes: LANES,
            thread_mode: ThreadMode::Sequential,
            hash_length: KEY_BYTES,
            ..Config::default()
        };
        let key = argon2::hash_raw(self.0.expose_secret().as_bytes(), salt, &config);
        let key: SecretSlice<u8> = key.map_err(|_| PassphraseError::Derivation)?.into();
        XChaCha20Poly1305::new_from_slice(key.expose_secret()).map_err(|_| PassphraseError::Derivation)
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::CountingIds;

    use super::*;

    fn passphrase(text: &str) -> Result<Passphrase, PassphraseError> {
        Passphrase::new(text.to_owned().into())
    }

    #[test]
    fn a_passphrase_opens_what_it_sealed_and_no_other_does() -> Result<(), PassphraseError> {
        let (entropy, right) = (CountingIds::default(), passphrase("correct horse")?);
        let sealed = right.seal(b"here", b"a key", &entropy)?;
        assert_ne!(sealed, right.seal(b"here", b"a key", &entropy)?, "the salt differs");
        assert_eq!(right.open(b"here", &sealed)?.expose_secret(), b"a key");
        assert_eq!(right.open(b"there", &sealed).err(), Some(PassphraseError::Refused));
        assert_eq!(passphrase("correct house")?.open(b"here", &sealed).err(), Some(PassphraseError::Refused));
        Ok(())
    }

    #[test]
    fn altered_and_truncated_values_are_refused() -> Result<(), PassphraseError> {
        let right = passphrase("correct horse")?;
        let sealed = right.seal(b"", b"a key", &CountingIds::default())?;
        for n in [0, 1, SALT_BYTES + 1, 1 + SALT_BYTES + NONCE_BYTES, sealed.len() - 1] {
            let mut altered = sealed.clone();
            altered[n] ^= 1;
            assert!(right.open(b"", &altered).is_err(), "byte {n}");
            assert!(right.open(b"", &sealed[..n]).is_err(), "{n} bytes");
        }
        Ok(())
    }

    #[test]
    fn the_length_of_a_passphrase_is_counted_in_characters() {
        assert_eq!(passphrase("elf zeichen").err(), Some(PassphraseError::TooShort));
        assert_eq!(passphrase("ääääääääää").err(), Some(PassphraseError::TooShort));
        assert!(passphrase("zwölfzeichen").is_ok());
        assert_eq!(passphrase(&"x".repeat(Passphrase::MAX_BYTES + 1)).err(), Some(PassphraseError::TooLong));
    }
}
