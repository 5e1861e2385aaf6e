//! The data directory: its files, and the lock that admits one server at a time.

use std::fs::{self, DirBuilder, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use casement_domain::{IdSource, NodeId};
use casement_sealing::private_file;
use rustix::fs::FlockOperation;

use crate::system::System;

const DEFAULT_POOL_WANTED: &str = "default-pool-wanted";
const API_KEY: &str = "api-key";
const LOCK: &str = "lock";
const NODE_ID: &str = "node-id";
const NODE_IDENTITY: &str = "node-identity.pem";
const TOKEN_KEY: &str = "token-key";
/// Exists while a restore is incomplete.
const RESTORE_UNFINISHED: &str = "restore-unfinished";
/// The file of the master keys, if no variable gives them.
pub(crate) const MASTER_KEY: &str = "master-key";
/// The files that an installation keeps when it moves: what opens its sealed values, its URLs and its API, and the
/// identity to which its sessions belong.
pub(crate) const SECRET_FILES: [&str; 4] = [API_KEY, MASTER_KEY, NODE_ID, TOKEN_KEY];

/// A data directory that this process has locked.
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: OwnedFd,
}

impl DataDir {
    /// Locks the directory; creates it if it is missing.
    ///
    /// # Errors
    /// If another server uses it, or a restore into it is incomplete.
    pub(crate) fn take(path: PathBuf) -> anyhow::Result<Self> {
        let taken = Self::lock(path)?;
        ensure_restored(&taken.path)?;
        Ok(taken)
    }

    fn lock(path: PathBuf) -> anyhow::Result<Self> {
        make(&path)?;
        let lock_path = path.join(LOCK);
        let lock =
            private_file::open(&lock_path, false).with_context(|| format!("cannot open {}", lock_path.display()))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("another casement serve uses {}; `casement stop` stops it", path.display());
        }
        Ok(Self { path, _lock: lock.into() })
    }

    /// Locks a directory without data, and marks it as incomplete.
    ///
    /// # Errors
    /// See [`check_restorable`].
    pub(crate) fn take_for_restore(path: PathBuf) -> anyhow::Result<Self> {
        check_restorable(&path)?;
        let taken = Self::lock(path)?;
        check_restorable(&taken.path)?;
        write_whole(&taken.path.join(RESTORE_UNFINISHED), b"")?;
        Ok(taken)
    }

    /// Removes everything that an incomplete restore has written.
    pub(crate) fn clear_restore(&self) -> anyhow::Result<()> {
        let is_mark = |entry: &fs::DirEntry| [LOCK, RESTORE_UNFINISHED].iter().any(|name| entry.file_name() == *name);
        for entry in fs::read_dir(&self.path)?.collect::<Result<Vec<_>, _>>()?.iter().filter(|entry| !is_mark(entry)) {
            let path = entry.path();
            let removed = if entry.file_type()?.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes the marks of a restore that was cleared, and the directory if it is no mount point.
    pub(crate) fn discard_restore(self) -> anyhow::Result<()> {
        self.finish_restore()?;
        fs::remove_file(self.path.join(LOCK))?;
        let _ = fs::remove_dir(&self.path);
        Ok(())
    }

    /// Marks the directory as complete.
    pub(crate) fn finish_restore(&self) -> anyhow::Result<()> {
        fs::remove_file(self.path.join(RESTORE_UNFINISHED))?;
        Ok(fs::File::open(&self.path)?.sync_all()?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.path.join(API_KEY)
    }

    /// Returns the id of this node, which the first start creates.
    pub(crate) fn node(&self) -> anyhow::Result<NodeId> {
        let text = self.read_or_create(NODE_ID, || NodeId::mint(&System as &dyn IdSource).to_string().into_bytes())?;
        let text = String::from_utf8(text).context("node-id is not text")?;
        text.trim().parse().context("node-id in the data directory is damaged")
    }

    /// Returns the key by which other nodes recognize this one, with its certificate. The first start that needs it
    /// creates it with `make`.
    pub(crate) fn node_identity(&self, make: impl FnOnce() -> anyhow::Result<Vec<u8>>) -> anyhow::Result<Vec<u8>> {
        if !self.path.join(NODE_IDENTITY).exists() {
            write_whole(&self.path.join(NODE_IDENTITY), &make().context("cannot create the key of this node")?)?;
        }
        let path = self.path.join(NODE_IDENTITY);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the key with which a version without shared keys signed session tokens, if such a version used this
    /// directory.
    pub(crate) fn former_token_key(&self) -> anyhow::Result<Option<[u8; 32]>> {
        let path = self.path.join(TOKEN_KEY);
        match fs::read(&path) {
            Ok(bytes) => match bytes.try_into() {
                Ok(key) => Ok(Some(key)),
                Err(_) => bail!("token-key in the data directory is damaged"),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Returns the file of the master keys, which may be missing.
    pub(crate) fn master_key_file(&self) -> PathBuf {
        self.path.join(MASTER_KEY)
    }

    /// Records that the first start must create a pool, in case it is interrupted before.
    pub(crate) fn want_default_pool(&self) -> anyhow::Result<()> {
        write_whole(&self.path.join(DEFAULT_POOL_WANTED), b"")
    }

    /// Returns true if the first start has not created its pool yet.
    pub(crate) fn wants_default_pool(&self) -> bool {
        self.path.join(DEFAULT_POOL_WANTED).exists()
    }

    /// Removes the record, because the pool exists.
    pub(crate) fn has_default_pool(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.path.join(DEFAULT_POOL_WANTED))?)
    }

    /// Writes the first API key to a file that only its owner can read. A file with the key of another database is
    /// renamed to `api-key.before-1` and so on.
    pub(crate) fn write_api_key(&self, text: &str) -> anyhow::Result<()> {
        let file = self.key_file();
        let unused = (1..).map(|n| self.path.join(format!("api-key.before-{n}"))).find(|before| !before.exists());
        if let Some(before) = unused.filter(|_| file.exists()) {
            fs::rename(&file, &before).with_context(|| format!("cannot rename {}", file.display()))?;
        }
        write_whole(&file, format!("{text}\n").as_bytes())
    }

    /// Deletes the file of the API key.
    pub(crate) fn drop_api_key(&self) -> anyhow::Result<()> {
        let path = self.key_file();
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    fn read_or_create(&self, name: &str, make: impl FnOnce() -> Vec<u8>) -> anyhow::Result<Vec<u8>> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let bytes = make();
                write_whole(&path, &bytes)?;
                Ok(bytes)
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// Refuses a directory in which a restore is incomplete.
pub(crate) fn ensure_restored(path: &Path) -> anyhow::Result<()> {
    if path.join(RESTORE_UNFINISHED).exists() {
        bail!(
            "a restore into {} was interrupted: run `casement restore` again, or remove the directory",
            path.display()
        );
    }
    Ok(())
}

/// Returns the id of the node whose data directory this is, if a server was started in it.
pub(crate) fn node_of(path: &Path) -> Option<NodeId> {
    fs::read_to_string(path.join(NODE_ID)).ok()?.trim().parse().ok()
}

/// Checks that a backup can be restored into a directory: it is missing, empty, or has an incomplete restore.
pub(crate) fn check_restorable(path: &Path) -> anyhow::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let names: Vec<_> = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<_>>()?;
    if !names.iter().any(|name| name == RESTORE_UNFINISHED) && names.iter().any(|name| name != LOCK) {
        bail!("{} has files already: a backup is restored into a new directory", path.display());
    }
    Ok(())
}

/// Creates the directory if it is missing, and checks that this user owns it.
pub(crate) fn make(path: &Path) -> anyhow::Result<()> {
    // Sandboxes' users must be able to pass through; files with secrets have permissions of their own.
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .with_context(|| format!("cannot make the data directory {}", path.display()))?;
    check_owner(path)?;
    let_accounts_through(path, mode)
}

/// Lets the accounts of sandboxes and of the database pass through a directory that existed before, such as one that
/// `mktemp -d` made. They cannot list it.
fn let_accounts_through(path: &Path, mode: u32) -> anyhow::Result<()> {
    let found = fs::metadata(path)?.permissions().mode() & 0o7777;
    if found & mode == mode {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(found | mode))
        .with_context(|| format!("cannot let other accounts pass through {}", path.display()))
}

/// Checks the owner, because files of this user could not be read in another user's directory.
pub(crate) fn check_owner(path: &Path) -> anyhow::Result<()> {
    let found = rustix::fs::stat(path)?;
    if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o022 != 0 {
        bail!("{} must belong to the user that runs casement, and nobody else may write to it", path.display());
    }
    Ok(())
}

/// Returns the path of the socket by which `casement stop` reaches a running server.
pub(crate) fn control_socket(data_dir: &Path) -> PathBuf {
    data_dir.join("control.sock")
}

/// Replaces a file atomically; only its owner can read it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    private_file::replace(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_restore_is_refused_by_other_commands_and_repeated() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("data");
        let killed = DataDir::take_for_restore(path.clone())?;
        write_whole(&path.join(MASTER_KEY), b"a key")?;
        drop(killed);

        let refused = DataDir::take(path.clone()).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("was interrupted"), "{refused}");
        let again = DataDir::take_for_restore(path.clone())?;
        again.clear_restore()?;
        assert!(!path.join(MASTER_KEY).exists());
        again.finish_restore()?;
        drop(again);
        assert!(DataDir::take(path.clone()).is_ok());
        DataDir::take_for_restore(path.clone())?.discard_restore()?;
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn a_directory_with_data_is_not_restored_into() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let data_dir = DataDir::take(folder.path().join("data"))?;
        data_dir.node()?;
        let path = data_dir.path().to_owned();
        drop(data_dir);
        assert!(DataDir::take_for_restore(path.clone()).is_err());
        assert_eq!(fs::read_dir(path)?.count(), 2, "the lock and the id");
        Ok(())
    }
}
