//! The data directory: its files, and the lock that admits one server at a time.

use std::fs::{self, DirBuilder, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use casement_domain::{Entropy, IdSource, NodeId};
use casement_sealing::private_file;
use rustix::fs::FlockOperation;

use crate::system::System;

const DEFAULT_POOL_WANTED: &str = "default-pool-wanted";

/// A data directory that this process has locked.
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: OwnedFd,
}

impl DataDir {
    /// Locks the directory; creates it if it is missing.
    pub(crate) fn take(path: PathBuf) -> anyhow::Result<Self> {
        make(&path)?;
        let lock_path = path.join("lock");
        let lock =
            private_file::open(&lock_path, false).with_context(|| format!("cannot open {}", lock_path.display()))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("another casement serve uses {}; `casement stop` stops it", path.display());
        }
        Ok(Self { path, _lock: lock.into() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.path.join("api-key")
    }

    /// Returns the id of this node, which the first start creates.
    pub(crate) fn node(&self) -> anyhow::Result<NodeId> {
        let text =
            self.read_or_create("node-id", || NodeId::mint(&System as &dyn IdSource).to_string().into_bytes())?;
        let text = String::from_utf8(text).context("node-id is not text")?;
        text.trim().parse().context("node-id in the data directory is damaged")
    }

    /// Returns the key that signs session tokens. The first start creates it, so that URLs stay valid after a restart.
    pub(crate) fn token_key(&self) -> anyhow::Result<[u8; 32]> {
        let bytes = self.read_or_create("token-key", || System.secret_bytes().to_vec())?;
        bytes.try_into().map_err(|_| anyhow::anyhow!("token-key in the data directory is damaged"))
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
