//! Sealing with XChaCha20-Poly1305 under the master key of this installation.
//!
//! The key comes from `CASEMENT_MASTER_KEY` or from the file `master-key` in the data directory, made at the first start. Both
//! may hold several: the first seals, all of them open. What is sealed names its key, so that a server learns of a key that came
//! later by looking at the file again, and so that `casement secrets rotate` finds what is still under an old one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use casement_domain::Entropy;
use casement_domain::sealing::{KeyId, SealError, Sealer};
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use rustix::fs::FlockOperation;
use secrecy::{ExposeSecret as _, SecretBox, SecretSlice, SecretString};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use crate::data_dir::{open_private, write_whole};
use crate::system::System;

/// The file's name in the data directory.
const FILE: &str = "master-key";
/// Held by whoever changes the file.
const LOCK: &str = "master-key.lock";
const NONCE: usize = 24;
const HEAD: usize = 1 + 8;
/// How long a key that was replaced is kept at least: who sealed under it at that moment has long stored it.
const KEPT: Duration = Duration::hours(1);

/// One key.
#[derive(Clone)]
pub(crate) struct MasterKey {
    id: KeyId,
    key: Arc<SecretBox<[u8; 32]>>,
    /// When another took its place.
    replaced_at: Option<OffsetDateTime>,
}

impl MasterKey {
    fn new(bytes: [u8; 32], replaced_at: Option<OffsetDateTime>) -> Self {
        let digest = Sha256::new().chain_update(b"casement master key id").chain_update(bytes).finalize();
        let mut id = [0; 8];
        id.copy_from_slice(&digest[..8]);
        Self { id: KeyId(id), key: Arc::new(SecretBox::new(Box::new(bytes))), replaced_at }
    }

    /// Reads `<base64 of 32 bytes>`, or that and the moment of its replacement, in seconds.
    fn parse(line: &str) -> anyhow::Result<Self> {
        let mut parts = line.split_whitespace();
        let text = parts.next().unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok();
        let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
        // Never the text itself.
        let bytes = bytes.context("a master key is 32 bytes in base64, as of `openssl rand -base64 32`")?;
        let replaced_at = match parts.next() {
            Some(seconds) => Some(OffsetDateTime::from_unix_timestamp(seconds.parse()?)?),
            None => None,
        };
        Ok(Self::new(bytes, replaced_at))
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

/// Where the keys come from.
#[derive(Clone)]
enum Source {
    Given(Vec<MasterKey>),
    File(PathBuf),
}

/// The master keys of this installation.
#[derive(Clone)]
pub(crate) struct MasterKeys {
    source: Source,
    known: Arc<Mutex<Vec<MasterKey>>>,
}

impl std::fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKeys")
    }
}

impl MasterKeys {
    /// The keys that `given` holds, separated by commas, else those of the file, which is made if it is missing.
    pub(crate) fn open(data_dir: &Path, given: Option<&SecretString>) -> anyhow::Result<Self> {
        let source = match given {
            Some(text) => {
                let keys = text.expose_secret().split(',').map(|key| MasterKey::parse(key.trim()));
                Source::Given(keys.collect::<anyhow::Result<_>>().context("CASEMENT_MASTER_KEY")?)
            }
            None => Source::File(data_dir.join(FILE)),
        };
        if let Source::File(path) = &source {
            let _lock = lock(path)?;
            if !path.exists() {
                write(path, &[MasterKey::new(System.secret_bytes(), None)])?;
            }
        }
        let keys = Self { source, known: Arc::default() };
        keys.read()?;
        Ok(keys)
    }

    /// Looks at the file again.
    fn read(&self) -> anyhow::Result<Vec<MasterKey>> {
        let keys = match &self.source {
            Source::Given(keys) => keys.clone(),
            Source::File(path) => read(path)?,
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&keys);
        Ok(keys)
    }

    fn named(&self, id: KeyId) -> Result<MasterKey, SealError> {
        let find = |keys: &[MasterKey]| keys.iter().find(|key| key.id == id).cloned();
        let known = find(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        match known {
            Some(key) => Ok(key),
            None => find(&self.read().map_err(no_key)?).ok_or_else(|| SealError::UnknownKey(id.to_string())),
        }
    }

    /// The file is read for each: what was replaced a moment ago must not seal any more, and little is ever sealed.
    fn first(&self) -> Result<MasterKey, SealError> {
        let mut keys = self.read().map_err(no_key)?;
        if keys.is_empty() { Err(SealError::NoKey("there is none".to_owned())) } else { Ok(keys.swap_remove(0)) }
    }

    /// Puts a new key before the others. Keys that come from the environment are whoever's who gives them.
    pub(crate) fn add(&self, now: OffsetDateTime) -> anyhow::Result<bool> {
        let Source::File(path) = &self.source else { return Ok(false) };
        let _lock = lock(path)?;
        let mut keys = read(path)?;
        for key in &mut keys {
            key.replaced_at.get_or_insert(now);
        }
        keys.insert(0, MasterKey::new(System.secret_bytes(), None));
        write(path, &keys)?;
        self.read()?;
        Ok(true)
    }

    /// Forgets keys that nothing is sealed under and that were replaced long enough ago; says how many are kept beside the first.
    pub(crate) fn forget(&self, used: &[KeyId], now: OffsetDateTime) -> anyhow::Result<usize> {
        let Source::File(path) = &self.source else { return Ok(self.read()?.len().saturating_sub(1)) };
        let _lock = lock(path)?;
        let mut keys = read(path)?;
        let before = keys.len();
        keys.retain(|key| used.contains(&key.id) || key.replaced_at.is_none_or(|at| now - at < KEPT));
        if keys.len() < before {
            write(path, &keys)?;
            self.read()?;
        }
        Ok(keys.len() - 1)
    }
}

fn no_key(error: anyhow::Error) -> SealError {
    SealError::NoKey(format!("{error:#}"))
}

/// Kept until it is dropped.
fn lock(path: &Path) -> anyhow::Result<fs::File> {
    let lock = open_private(&path.with_file_name(LOCK), false)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).context("cannot lock the master key")?;
    Ok(lock)
}

fn read(path: &Path) -> anyhow::Result<Vec<MasterKey>> {
    let text: SecretString =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?.into();
    let lines = text.expose_secret().lines().filter(|line| !line.trim().is_empty());
    let keys: Vec<MasterKey> =
        lines.map(MasterKey::parse).collect::<anyhow::Result<_>>().with_context(|| path.display().to_string())?;
    if keys.is_empty() {
        bail!("{} holds no key; without the right one, what is sealed cannot be read again", path.display());
    }
    Ok(keys)
}

fn write(path: &Path, keys: &[MasterKey]) -> anyhow::Result<()> {
    let text: SecretString = keys.iter().map(|key| key.line().expose_secret().to_owned()).collect::<String>().into();
    write_whole(path, text.expose_secret().as_bytes())
}

/// What is authenticated beside the content: its head, and where it belongs.
fn context(head: &[u8], place: &str) -> Vec<u8> {
    [head, place.as_bytes()].concat()
}

impl Sealer for MasterKeys {
    fn seal(&self, place: &str, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let key = self.first()?;
        let mut sealed = vec![KeyId::FORM];
        sealed.extend_from_slice(&key.id.0);
        let random = System.secret_bytes();
        let nonce = &random[..NONCE];
        let payload = Payload { msg: plain, aad: &context(&sealed, place) };
        let content = key.cipher().encrypt(XNonce::from_slice(nonce), payload).map_err(|_| SealError::Damaged)?;
        sealed.extend_from_slice(nonce);
        sealed.extend_from_slice(&content);
        Ok(sealed)
    }

    fn open(&self, place: &str, sealed: &[u8]) -> Result<SecretSlice<u8>, SealError> {
        let id = KeyId::of(sealed).ok_or(SealError::Damaged)?;
        let (head, rest) = sealed.split_at_checked(HEAD).ok_or(SealError::Damaged)?;
        let (nonce, content) = rest.split_at_checked(NONCE).ok_or(SealError::Damaged)?;
        let payload = Payload { msg: content, aad: &context(head, place) };
        let opened = self.named(id)?.cipher().decrypt(XNonce::from_slice(nonce), payload);
        opened.map(Into::into).map_err(|_| SealError::Damaged)
    }

    fn current(&self) -> Result<KeyId, SealError> {
        Ok(self.first()?.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clear(sealer: &dyn Sealer, place: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        sealer.open(place, sealed).map(|secret| secret.expose_secret().to_vec())
    }

    #[test]
    fn what_is_sealed_opens_in_its_place_only_and_unaltered_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = MasterKeys::open(folder.path(), None).expect("keys");
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
    fn the_key_is_made_once_and_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().expect("a folder");
        let sealed = MasterKeys::open(folder.path(), None).expect("keys").seal("a", b"word").expect("sealed");
        let again = MasterKeys::open(folder.path(), None).expect("keys");
        assert_eq!(clear(&again, "a", &sealed).expect("opened"), b"word");
        let mode = fs::metadata(folder.path().join(FILE)).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_running_server_learns_of_a_new_key_and_an_old_one_goes_when_nothing_uses_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = MasterKeys::open(folder.path(), None).expect("keys");
        let old = server.seal("a", b"word").expect("sealed");
        let command = MasterKeys::open(folder.path(), None).expect("keys");
        let now = OffsetDateTime::UNIX_EPOCH + Duration::days(1);
        assert!(command.add(now).expect("a new key"));
        let new = command.seal("a", b"word").expect("sealed");
        assert_ne!(KeyId::of(&old), KeyId::of(&new));
        assert_eq!(clear(&server, "a", &new).expect("opened"), b"word");
        assert_eq!(KeyId::of(&server.seal("a", b"word").expect("sealed")), KeyId::of(&new));

        let (later, used) = (now + KEPT, KeyId::of(&old).expect("a key"));
        assert_eq!(command.forget(&[], now).expect("forgets"), 1, "too early");
        assert_eq!(command.forget(&[used], later).expect("forgets"), 1, "in use");
        assert_eq!(command.forget(&[], later).expect("forgets"), 0);
        let next = MasterKeys::open(folder.path(), None).expect("keys");
        assert_eq!(clear(&next, "a", &old), Err(SealError::UnknownKey(used.to_string())));
        assert_eq!(clear(&next, "a", &new).expect("opened"), b"word");
    }

    #[test]
    fn keys_of_the_environment_are_read_and_never_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = |byte: u8| base64::engine::general_purpose::STANDARD.encode([byte; 32]);
        let one: SecretString = text(1).into();
        let both: SecretString = format!("{},{}", text(2), text(1)).into();
        let sealed = MasterKeys::open(folder.path(), Some(&one)).expect("keys").seal("a", b"word").expect("sealed");
        let keys = MasterKeys::open(folder.path(), Some(&both)).expect("keys");
        assert_eq!(clear(&keys, "a", &sealed).expect("opened"), b"word");
        assert_eq!(keys.current().expect("a key"), MasterKey::new([2; 32], None).id);
        let bad = MasterKeys::open(folder.path(), Some(&"hunter2".to_owned().into())).expect_err("no key");
        assert!(!format!("{bad:#}").contains("hunter2"));
        assert!(!folder.path().join(FILE).exists());
    }
}
