//! Addresses of unix sockets whose path is longer than the 107 bytes that an address holds.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};

/// A short name of a path, good for as long as it lives: by way of the opened directory.
pub(crate) struct ShortPath {
    path: PathBuf,
    _dir: Option<OwnedFd>,
}

impl ShortPath {
    const LONGEST: usize = 100;

    /// A short name of `path`, whose directory must exist.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str().len() <= Self::LONGEST {
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
