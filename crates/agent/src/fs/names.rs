//! The content of directories: the names in one directory, and all entries of a tree one after the other.

use std::ffi::CStr;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use super::path::{is_closed, is_kernels};

/// The maximum depth of a tree for a walk, in directories: each of them is open.
pub(crate) const MAX_DEPTH: usize = 512;
/// The maximum number of bytes of names in memory: of one directory, or of all directories on the way to an entry of a
/// tree.
pub(crate) const MAX_NAME_BYTES: usize = 8 << 20;
/// The maximum number of bytes of names in a portion of a directory.
const PORTION_BYTES: usize = 64 << 10;

/// The names in one directory, sorted by their bytes.
pub(crate) struct Names {
    /// The names, each with its NUL.
    text: Vec<u8>,
    starts: Vec<u32>,
    next: usize,
}

impl Names {
    /// Reads the directory at `at`, which must be open for reading.
    ///
    /// # Errors
    /// `E2BIG` if it has more than [`MAX_NAME_BYTES`] of names.
    pub(crate) fn read(at: BorrowedFd<'_>) -> io::Result<Self> {
        Self::within(at, MAX_NAME_BYTES)
    }

    /// Like [`read`](Self::read), with another bound.
    fn within(at: BorrowedFd<'_>, max: usize) -> io::Result<Self> {
        let (names, is_whole) = Self::up_to(at, max)?;
        if is_whole { Ok(names) } else { Err(Errno::TOOBIG.into()) }
    }

    /// Reads some of the names: of a large directory not all.
    pub(crate) fn portion(at: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self::up_to(at, PORTION_BYTES)?.0)
    }

    /// Reads names up to `max` bytes, and returns true if these are all.
    fn up_to(at: BorrowedFd<'_>, max: usize) -> io::Result<(Self, bool)> {
        let (mut text, mut starts, mut is_whole) = (Vec::new(), Vec::new(), true);
        for entry in Dir::read_from(at)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes_with_nul();
            if name != b".\0" && name != b"..\0" {
                if text.len() + name.len() > max {
                    is_whole = false;
                    break;
                }
                starts.push(u32::try_from(text.len()).map_err(|_| io::Error::other("too many names"))?);
                text.extend_from_slice(name);
            }
        }
        // The NUL sorts before every other byte, so that a name sorts before those that begin with it.
        starts.sort_unstable_by(|a, b| {
            let (a, b) = (&text[*a as usize..], &text[*b as usize..]);
            name_at(a).cmp(name_at(b))
        });
        Ok((Self { text, starts, next: 0 }, is_whole))
    }

    /// Returns true if there are no names.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns the next name.
    pub(crate) fn next(&mut self) -> Option<&CStr> {
        let start = *self.starts.get(self.next)? as usize;
        self.next += 1;
        CStr::from_bytes_until_nul(&self.text[start..]).ok()
    }
}

fn name_at(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Walks through a tree, directories before their entries. Links are not followed.
pub(crate) struct Walk {
    levels: Vec<Level>,
    /// The path of the current entry, below the root of the walk.
    path: PathBuf,
    root: PathBuf,
    /// True if the current entry is a directory that was not entered yet.
    below: bool,
    too_deep: bool,
    too_wide: bool,
}

struct Level {
    directory: OwnedFd,
    names: Names,
}

/// An entry of the tree.
pub(crate) struct Found {
    pub(crate) stat: Stat,
}

impl Walk {
    /// Starts a walk through `directory`, which is open for reading and located at `root`.
    pub(crate) fn new(directory: OwnedFd, root: PathBuf) -> io::Result<Self> {
        let names = Names::read(directory.as_fd())?;
        let levels = vec![Level { directory, names }];
        Ok(Self { levels, path: PathBuf::new(), root, below: false, too_deep: false, too_wide: false })
    }

    /// Returns the next entry. Omits removed entries, the content of directories that cannot be entered, and entries
    /// that do not belong to the session's files.
    pub(crate) fn next(&mut self) -> Option<Found> {
        if std::mem::take(&mut self.below) {
            self.enter();
        } else {
            self.path.pop();
        }
        loop {
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.next() else {
                self.levels.pop();
                self.path.pop();
                continue;
            };
            let Ok(stat) = statat(&level.directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            self.path.push(OsStr::from_bytes(name.to_bytes()));
            if is_closed(&self.root.join(&self.path)) {
                self.path.pop();
                continue;
            }
            self.below = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            return Some(Found { stat });
        }
    }

    /// Omits the content of the current entry.
    pub(crate) fn skip(&mut self) {
        self.below = false;
    }

    /// Returns the path of the current entry, below the root.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory and the name of the current entry.
    pub(crate) fn spot(&self) -> Option<(BorrowedFd<'_>, &OsStr)> {
        Some((self.levels.last()?.directory.as_fd(), self.path.file_name()?))
    }

    /// Returns true if entries were omitted because they are too deep.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.too_deep
    }

    /// Returns true if entries were omitted because there are more than [`MAX_NAME_BYTES`] of names on the way to them.
    pub(crate) fn is_too_wide(&self) -> bool {
        self.too_wide
    }

    fn enter(&mut self) {
        if self.levels.len() >= MAX_DEPTH {
            self.too_deep = true;
            self.path.pop();
            return;
        }
        let ours = |opened: &OwnedFd| is_kernels(opened).is_ok_and(|is_kernels| !is_kernels);
        let entered = self.spot().map(|(directory, name)| open_directory(directory, name));
        let held: usize = self.levels.iter().map(|level| level.names.text.len()).sum();
        let level = entered.and_then(Result::ok).filter(ours).and_then(|directory| {
            let names = Names::within(directory.as_fd(), MAX_NAME_BYTES.saturating_sub(held));
            self.too_wide |= names.as_ref().is_err_and(|error| Errno::from_io_error(error) == Some(Errno::TOOBIG));
            Some(Level { names: names.ok()?, directory })
        });
        match level {
            Some(level) => self.levels.push(level),
            None => {
                self.path.pop();
            }
        }
    }
}

/// Opens a directory for reading; a link to one is refused.
pub(crate) fn open_directory(at: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(at, name, flags, Mode::empty())
}
