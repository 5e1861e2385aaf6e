//! Addresses of unix sockets whose path exceeds the 107 bytes of an address.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};

/// A short path through an opened directory, valid as long as this value exists.
pub(crate) struct ShortPath {
    path: PathBuf,
    _dir: Option<OwnedFd>,
}

impl ShortPath {
    const MAX_PATH_BYTES: usize = 100;

    /// Returns a short path for `path`, whose directory must exist.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str().len() <= Self::MAX_PATH_BYTES {
            return Ok(Self { path: path.to_owned(), _dir: None });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            anyhow::bail!("{} names no file", path.display());
        };
        let dir = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("cannot open {}", parent.display()))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
        Ok(Self { path, _dir: Some(dir) })
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.path
    }
}
