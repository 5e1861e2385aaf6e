//! What stands in a directory: its names, in one piece of memory, and all below it, one after the other.

use std::ffi::CStr;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use super::path::is_closed;

/// How many directories deep a tree may be for what goes through it: each of them is kept open.
pub(crate) const MAX_DEPTH: usize = 512;

/// The names in one directory, sorted by their bytes. A hundred thousand of them take a few MB.
pub(crate) struct Names {
    /// Each with its NUL.
    text: Vec<u8>,
    starts: Vec<u32>,
    next: usize,
}

impl Names {
    /// Reads the directory at `at`, which must be open for reading.
    pub(crate) fn read(at: BorrowedFd<'_>) -> io::Result<Self> {
        let (mut text, mut starts) = (Vec::new(), Vec::new());
        for entry in Dir::read_from(at)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes_with_nul();
            if name != b".\0" && name != b"..\0" {
                starts.push(u32::try_from(text.len()).map_err(|_| io::Error::other("too many names"))?);
                text.extend_from_slice(name);
            }
        }
        // The NUL sorts before every other byte, so that a name sorts before those that begin with it.
        starts.sort_unstable_by(|a, b| {
            let (a, b) = (&text[*a as usize..], &text[*b as usize..]);
            name_at(a).cmp(name_at(b))
        });
        Ok(Self { text, starts, next: 0 })
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The next name.
    pub(crate) fn next(&mut self) -> Option<&CStr> {
        let start = *self.starts.get(self.next)? as usize;
        self.next += 1;
        CStr::from_bytes_until_nul(&self.text[start..]).ok()
    }
}

fn name_at(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Goes through a tree, directories before what is in them. Links are not followed.
pub(crate) struct Walk {
    levels: Vec<Level>,
    /// Below the root of the walk.
    path: PathBuf,
    root: PathBuf,
    /// The last thing found is a directory that was not entered yet.
    below: bool,
    too_deep: bool,
}

struct Level {
    directory: OwnedFd,
    names: Names,
}

/// Something in the tree.
pub(crate) struct Found {
    pub(crate) stat: Stat,
}

impl Walk {
    /// Through the directory at `directory`, which is open for reading and lies at `root`.
    pub(crate) fn new(directory: OwnedFd, root: PathBuf) -> io::Result<Self> {
        let names = Names::read(directory.as_fd())?;
        Ok(Self { levels: vec![Level { directory, names }], path: PathBuf::new(), root, below: false, too_deep: false })
    }

    /// The next thing. What vanished meanwhile, what may not be entered and what does not belong to the session's files is left out.
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

    /// Leaves out what is in the directory found last.
    pub(crate) fn skip(&mut self) {
        self.below = false;
    }

    /// Where the thing found last is, below the root.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory it is in, and its name there.
    pub(crate) fn spot(&self) -> Option<(BorrowedFd<'_>, &OsStr)> {
        Some((self.levels.last()?.directory.as_fd(), self.path.file_name()?))
    }

    /// Whether something was left out because it lies too deep.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.too_deep
    }

    fn enter(&mut self) {
        if self.levels.len() >= MAX_DEPTH {
            self.too_deep = true;
            self.path.pop();
            return;
        }
        let entered = self.spot().map(|(directory, name)| open_directory(directory, name));
        let level = entered.and_then(Result::ok).and_then(|directory| {
            let names = Names::read(directory.as_fd()).ok()?;
            Some(Level { directory, names })
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
