//! Seals values with XChaCha20-Poly1305 under the master keys of this installation.
//!
//! The keys come from `CASEMENT_MASTER_KEY` or from the file `master-key` in the data directory, which the first start
//! creates. Either may contain several keys: the first one seals, all of them open. A sealed value contains the id of
//! its key. A server that finds an unknown id reads the file again, and `casement secrets rotate` finds the values that
//! are sealed under an old key.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use casement_domain::Entropy;
use casement_domain::sealing::{KeyId, SealError, Sealer};
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use secrecy::{ExposeSecret as _, SecretBox, SecretSlice, SecretString};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use crate::private_file;

/// The name of the key file in the data directory.
const FILE: &str = "master-key";
/// The name of the file that is locked while the key file is changed.
const LOCK: &str = "master-key.lock";
const NONCE_BYTES: usize = 24;
const HEAD_BYTES: usize = 1 + 8;
/// The minimum time from the replacement of a key to its removal. A value that was sealed just before the replacement
/// is stored by then.
const MIN_RETENTION: Duration = Duration::hours(1);

/// The reason why master keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// A key is not 32 bytes in base64. The text itself is never part of the error.
    #[error("{origin}: a master key is 32 bytes in base64, as of `openssl rand -base64 32`")]
    Invalid {
        /// The variable or file with the key.
        origin: String,
    },
    /// The key file contains no key.
    #[error("{} holds no key; without the right one, sealed values cannot be read", .0.display())]
    Empty(PathBuf),
    /// The key file cannot be locked, read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The operation, as a verb: `open`, `lock`, `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
}

impl MasterKeyError {
    fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// A master key with its id.
#[derive(Clone)]
struct MasterKey {
    id: KeyId,
    key: Arc<SecretBox<[u8; 32]>>,
    /// The time at which another key replaced this one.
    replaced_at: Option<OffsetDateTime>,
}

impl MasterKey {
    fn new(bytes: [u8; 32], replaced_at: Option<OffsetDateTime>) -> Self {
        let digest = Sha256::new().chain_update(b"casement master key id").chain_update(bytes).finalize();
        let mut id = [0; 8];
        id.copy_from_slice(&digest[..8]);
        Self { id: KeyId(id), key: Arc::new(SecretBox::new(Box::new(bytes))), replaced_at }
    }

    /// Parses `<base64 of 32 bytes>`, optionally followed by the Unix time of the key's replacement in seconds.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split_whitespace();
        let bytes = base64::engine::general_purpose::STANDARD.decode(parts.next()?).ok()?;
        let replaced_at = match parts.next() {
            Some(seconds) => Some(OffsetDateTime::from_unix_timestamp(seconds.parse().ok()?).ok()?),
            None => None,
        };
        Some(Self::new(bytes.try_into().ok()?, replaced_at))
    }

    /// Parses each of `texts`; `origin` is the variable or file, for the error.
    fn parse_all<'a>(texts: impl Iterator<Item = &'a str>, origin: &str) -> Result<Vec<Self>, MasterKeyError> {
        let keys: Option<Vec<_>> = texts.map(Self::parse).collect();
        keys.ok_or_else(|| MasterKeyError::Invalid { origin: origin.to_owned() })
    }

    fn line(&self) -> SecretString {
        let text = base64::engine::general_purpose::STANDARD.encode(self.key.expose_secret());
        match self.replaced_at {
            Some(at) => format!("{text} {}\n", at.unix_timestamp()).into(),
            None => format!("{text}\n").into(),
        }
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.key.expose_secret().into())
    }
}

/// The source of the keys.
#[derive(Clone)]
enum Source {
    Environment(Vec<MasterKey>),
    File(PathBuf),
}

/// The master keys of this installation.
#[derive(Clone)]
pub struct MasterKeys {
    source: Source,
    cached: Arc<Mutex<Vec<MasterKey>>>,
    pub(crate) entropy: Arc<dyn Entropy>,
}

impl std::fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKeys")
    }
}

impl MasterKeys {
    /// Takes the keys from `given`, separated by commas, or else from the file in `data_dir`, which is created if it is
    /// missing.
    ///
    /// # Errors
    /// If a given key is invalid, or the key file cannot be locked, read or written, or is invalid.
    pub fn open(
        data_dir: &Path,
        given: Option<&SecretString>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, MasterKeyError> {
        let source = match given {
            Some(text) => {
                let keys = text.expose_secret().split(',').map(str::trim);
                Source::Environment(MasterKey::parse_all(keys, "CASEMENT_MASTER_KEY")?)
            }
            None => Source::File(data_dir.join(FILE)),
        };
        if let Source::File(path) = &source {
            let _lock = lock(path)?;
            if !path.exists() {
                write(path, &[MasterKey::new(entropy.secret_bytes(), None)])?;
            }
        }
        let keys = Self { source, cached: Arc::default(), entropy };
        keys.read()?;
        Ok(keys)
    }

    /// Returns whether the keys come from the file in the data directory.
    #[must_use]
    pub fn are_in_file(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    /// Reads the file again.
    fn read(&self) -> Result<Vec<MasterKey>, MasterKeyError> {
        let keys = match &self.source {
            Source::Environment(keys) => keys.clone(),
            Source::File(path) => read(path)?,
        };
        self.cached.lock().clone_from(&keys);
        Ok(keys)
    }

    fn named(&self, id: KeyId) -> Result<MasterKey, SealError> {
        let find = |keys: &[MasterKey]| keys.iter().find(|key| key.id == id).cloned();
        let cached = find(&self.cached.lock());
        match cached {
            Some(key) => Ok(key),
            None => find(&self.read().map_err(no_key)?).ok_or_else(|| SealError::UnknownKey(id.to_string())),
        }
    }

    /// Returns the key that seals. Reads the file each time, because a replaced key must not seal any more, and sealing
    /// is rare.
    fn first(&self) -> Result<MasterKey, SealError> {
        let mut keys = self.read().map_err(no_key)?;
        if keys.is_empty() { Err(SealError::NoKey("there is none".to_owned())) } else { Ok(keys.swap_remove(0)) }
    }

    /// Adds a new key that seals from now on. Returns `false` and does nothing if the keys come from the environment.
    ///
    /// # Errors
    /// If the key file cannot be locked, read or written, or is invalid.
    pub fn add(&self, now: OffsetDateTime) -> Result<bool, MasterKeyError> {
        let Source::File(path) = &self.source else { return Ok(false) };
        let _lock = lock(path)?;
        let mut keys = read(path)?;
        for key in &mut keys {
            key.replaced_at.get_or_insert(now);
        }
        keys.insert(0, MasterKey::new(self.entropy.secret_bytes(), None));
        write(path, &keys)?;
        self.read()?;
        Ok(true)
    }

    /// Removes replaced keys that are not in `used` and were replaced at least an hour ago. Returns the
    /// number of remaining keys without the first. Removes nothing if the keys come from the environment.
    ///
    /// # Errors
    /// If the key file cannot be locked, read or written, or is invalid.
    pub fn forget(&self, used: &[KeyId], now: OffsetDateTime) -> Result<usize, MasterKeyError> {
        let Source::File(path) = &self.source else { return Ok(self.read()?.len().saturating_sub(1)) };
        let _lock = lock(path)?;
        let mut keys = read(path)?;
        let before = keys.len();
        keys.retain(|key| used.contains(&key.id) || key.replaced_at.is_none_or(|at| now - at < MIN_RETENTION));
        if keys.len() < before {
            write(path, &keys)?;
            self.read()?;
        }
        Ok(keys.len() - 1)
    }
}

fn no_key(error: MasterKeyError) -> SealError {
    SealError::NoKey(error.to_string())
}

/// Locks the key file of a data directory until the result is dropped: no key is added or removed meanwhile.
///
/// # Errors
/// If the lock cannot be taken.
pub fn lock_key_file(data_dir: &Path) -> Result<fs::File, MasterKeyError> {
    lock(&data_dir.join(FILE))
}

/// Locks the key file until the result is dropped.
fn lock(path: &Path) -> Result<fs::File, MasterKeyError> {
    let path = &path.with_file_name(LOCK);
    let lock = private_file::open(path, false).map_err(MasterKeyError::io("open", path))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|error| MasterKeyError::io("lock", path)(error.into()))?;
    Ok(lock)
}

fn read(path: &Path) -> Result<Vec<MasterKey>, MasterKeyError> {
    let text: SecretString = fs::read_to_string(path).map_err(MasterKeyError::io("read", path))?.into();
    let lines = text.expose_secret().lines().filter(|line| !line.trim().is_empty());
    let keys = MasterKey::parse_all(lines, &path.display().to_string())?;
    if keys.is_empty() { Err(MasterKeyError::Empty(path.to_owned())) } else { Ok(keys) }
}

fn write(path: &Path, keys: &[MasterKey]) -> Result<(), MasterKeyError> {
    let text: SecretString = keys.iter().map(|key| key.line().expose_secret().to_owned()).collect::<String>().into();
    private_file::replace(path, text.expose_secret().as_bytes()).map_err(MasterKeyError::io("write", path))
}

/// Returns the bytes that are authenticated in addition to the content: the head and the place.
fn context(head: &[u8], place: &str) -> Vec<u8> {
    [head, place.as_bytes()].concat()
}

impl Sealer for MasterKeys {
    fn seal(&self, place: &str, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let key = self.first()?;
        let mut sealed = vec![KeyId::FORM];
        sealed.extend_from_slice(&key.id.0);
        let random = self.entropy.secret_bytes();
        let nonce = &random[..NONCE_BYTES];
        let payload = Payload { msg: plain, aad: &context(&sealed, place) };
        let content = key.cipher().encrypt(XNonce::from_slice(nonce), payload).map_err(|_| SealError::Damaged)?;
        sealed.extend_from_slice(nonce);
        sealed.extend_from_slice(&content);
        Ok(sealed)
    }

    fn open(&self, place: &str, sealed: &[u8]) -> Result<SecretSlice<u8>, SealError> {
        let id = KeyId::of(sealed).ok_or(SealError::Damaged)?;
        let (head, rest) = sealed.split_at_checked(HEAD_BYTES).ok_or(SealError::Damaged)?;
        let (nonce, content) = rest.split_at_checked(NONCE_BYTES).ok_or(SealError::Damaged)?;
        let payload = Payload { msg: content, aad: &context(head, place) };
        let opened = self.named(id)?.cipher().decrypt(XNonce::from_slice(nonce), payload);
        opened.map(Into::into).map_err(|_| SealError::Damaged)
    }

    fn current(&self) -> Result<KeyId, SealError> {
        Ok(self.first()?.id)
    }

    fn knows(&self, key: KeyId) -> bool {
        self.named(key).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use casement_domain::testing::CountingIds;

    use super::*;

    /// Opens master keys with one source of entropy for all, so that no two keys are equal.
    fn open(data_dir: &Path, given: Option<&SecretString>) -> Result<MasterKeys, MasterKeyError> {
        static ENTROPY: LazyLock<Arc<CountingIds>> = LazyLock::new(Arc::default);
        MasterKeys::open(data_dir, given, ENTROPY.clone())
    }

    fn clear(sealer: &dyn Sealer, place: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        sealer.open(place, sealed).map(|secret| secret.expose_secret().to_vec())
    }

    #[test]
    fn a_sealed_value_opens_only_unaltered_and_in_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = open(folder.path(), None).expect("keys");
        let sealed = keys.seal("a", b"word").expect("sealed");
        assert_ne!(sealed, keys.seal("a", b"word").expect("sealed"));
        assert_eq!(clear(&keys, "a", &sealed).expect("opened"), b"word");
        assert_eq!(clear(&keys, "b", &sealed), Err(SealError::Damaged));
        for n in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[n] ^= 1;
            assert!(clear(&keys, "a", &altered).is_err(), "byte {n}");
            assert!(clear(&keys, "a", &sealed[..n]).is_err(), "{n} bytes");
        }
        assert!(!sealed.windows(4).any(|part| part == b"word"));
        assert!(!format!("{keys:?}").contains('='));
    }

    #[test]
    fn the_key_is_created_once_and_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().expect("a folder");
        let sealed = open(folder.path(), None).expect("keys").seal("a", b"word").expect("sealed");
        let again = open(folder.path(), None).expect("keys");
        assert_eq!(clear(&again, "a", &sealed).expect("opened"), b"word");
        let mode = fs::metadata(folder.path().join(FILE)).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_new_key_is_picked_up_and_an_unused_old_key_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = open(folder.path(), None).expect("keys");
        let old = server.seal("a", b"word").expect("sealed");
        let command = open(folder.path(), None).expect("keys");
        let now = OffsetDateTime::UNIX_EPOCH + Duration::days(1);
        assert!(command.add(now).expect("a new key"));
        let new = command.seal("a", b"word").expect("sealed");
        assert_ne!(KeyId::of(&old), KeyId::of(&new));
        assert_eq!(clear(&server, "a", &new).expect("opened"), b"word");
        assert_eq!(KeyId::of(&server.seal("a", b"word").expect("sealed")), KeyId::of(&new));

        let (later, used) = (now + MIN_RETENTION, KeyId::of(&old).expect("a key"));
        assert_eq!(command.forget(&[], now).expect("forgets"), 1, "too early");
        assert_eq!(command.forget(&[used], later).expect("forgets"), 1, "in use");
        assert_eq!(command.forget(&[], later).expect("forgets"), 0);
        let next = open(folder.path(), None).expect("keys");
        assert_eq!(clear(&next, "a", &old), Err(SealError::UnknownKey(used.to_string())));
        assert_eq!(clear(&next, "a", &new).expect("opened"), b"word");
    }

    #[test]
    fn keys_from_the_environment_work_and_are_never_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = |byte: u8| base64::engine::general_purpose::STANDARD.encode([byte; 32]);
        let one: SecretString = text(1).into();
        let both: SecretString = format!("{},{}", text(2), text(1)).into();
        let sealed = open(folder.path(), Some(&one)).expect("keys").seal("a", b"word").expect("sealed");
        let keys = open(folder.path(), Some(&both)).expect("keys");
        assert_eq!(clear(&keys, "a", &sealed).expect("opened"), b"word");
        assert_eq!(keys.current().expect("a key"), MasterKey::new([2; 32], None).id);
        let bad = open(folder.path(), Some(&"hunter2".to_owned().into())).expect_err("no key");
        assert!(!format!("{bad:#}").contains("hunter2"));
        assert!(!folder.path().join(FILE).exists());
    }
}
