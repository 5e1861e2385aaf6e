//! Resolves paths without opening the files, because only then it is known whether a file may be opened.
//!
//! The kernel confines every path to the sandbox. This module refuses paths that lead to the agent itself, to the
//! kernel or to a device, and file types that an operation is not meant for: opening a FIFO or a device can block or
//! have effects.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, Stat, accessat, fstat, fstatfs, openat, readlinkat, statat,
};
use rustix::io::Errno;

use super::fault::{Fault, Field};
use crate::path_text::from_text;
use casement_agent_protocol::ErrorCode;

/// The closed directories: their content is useless and dangerous as files.
const CLOSED: [&str; 3] = ["/proc", "/sys", "/dev"];
/// The magic numbers of the file systems of closed directories, wherever else they are mounted. Their files belong to
/// the kernel: they have effects, or lead to the processes of the session.
const KERNEL: [u64; 11] = [
    0x9fa0,      // PROC_SUPER_MAGIC
    0x6265_6572, // SYSFS_MAGIC
    0x6367_7270, // CGROUP2_SUPER_MAGIC
    0x0027_e0eb, // CGROUP_SUPER_MAGIC
    0x1cd1,      // DEVPTS_SUPER_MAGIC
    0x1980_0202, // MQUEUE_MAGIC
    0x6462_6720, // DEBUGFS_MAGIC
    0x7472_6163, // TRACEFS_MAGIC
    0xcafe_4a11, // BPF_FS_MAGIC
    0x7363_6673, // SECURITYFS_MAGIC
    0x6e73_6673, // NSFS_MAGIC
];

/// An existing file or directory.
pub(crate) struct Place {
    /// Opened with `O_PATH`, which identifies the file without opening it.
    at: OwnedFd,
    pub(crate) stat: Stat,
    /// The path without links.
    pub(crate) real: PathBuf,
}

/// The location of an existing or a future file: a directory and a name in it.
pub(crate) struct Spot {
    pub(crate) directory: OwnedFd,
    pub(crate) name: CString,
}

/// Returns true if a path without links leads into a closed directory or is not absolute.
pub(crate) fn is_closed(path: &Path) -> bool {
    CLOSED.iter().any(|closed| path.starts_with(closed)) || !path.is_absolute()
}

/// Returns true if an open file is on a file system of the kernel.
pub(crate) fn is_kernels(at: impl AsFd) -> Result<bool, Errno> {
    let kind = fstatfs(at)?.f_type as u64 & 0xffff_ffff;
    Ok(KERNEL.contains(&kind))
}

/// Parses the text of a path and checks it before the file system is accessed.
fn open_to_all(path: &str, field: Field) -> Result<PathBuf, Fault> {
    let parsed = from_text(path);
    if is_closed(&parsed) { Err(Fault::closed(field, path)) } else { Ok(parsed) }
}

/// Returns the path of a descriptor, without links.
fn real(at: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", at.as_raw_fd());
    Ok(PathBuf::from(OsString::from_vec(readlinkat(CWD, link, Vec::new())?.into_bytes())))
}

impl Place {
    /// Finds the file or directory at `path`; links are followed.
    pub(crate) fn find(path: &str, field: Field) -> Result<Self, Fault> {
        let parsed = open_to_all(path, field)?;
        let found = || {
            let at = openat(CWD, &parsed, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            Ok::<_, Errno>((fstat(&at)?, real(at.as_fd())?, is_kernels(&at)?, at))
        };
        let (stat, real, is_kernels, at) = found().map_err(|error| Fault::io(field, path, error.into()))?;
        if is_closed(&real) || is_kernels { Err(Fault::closed(field, path)) } else { Ok(Self { at, stat, real }) }
    }

    /// Like [`find`](Self::find), for a directory, which is opened for reading. Returns also its path without links.
    pub(crate) fn directory(path: &str, field: Field) -> Result<(OwnedFd, PathBuf), Fault> {
        let place = Self::find(path, field)?;
        if place.kind() != FileType::Directory {
            return Err(Fault::of(ErrorCode::NotADirectory, field, path, "is not a directory"));
        }
        let opened = place.reopen(OFlags::RDONLY | OFlags::DIRECTORY);
        Ok((opened.map_err(|error| Fault::io(field, path, error))?, place.real))
    }

    /// Like [`find`](Self::find), for a regular file, which is opened for reading.
    pub(crate) fn file(path: &str, field: Field) -> Result<(File, Stat), Fault> {
        let place = Self::find(path, field)?;
        match place.kind() {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Fault::of(ErrorCode::IsADirectory, field, path, "is a directory")),
            _ => return Err(Fault::of(ErrorCode::PathForbidden, field, path, "is not a regular file")),
        }
        let opened = place.reopen(OFlags::RDONLY).map_err(|error| Fault::io(field, path, error))?;
        Ok((opened.into(), place.stat))
    }

    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Returns a path by which the kernel finds this file, even if another file has its old path meanwhile.
    pub(crate) fn handle(&self) -> String {
        format!("/proc/self/fd/{}", self.at.as_raw_fd())
    }

    fn reopen(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(openat(CWD, self.handle(), flags, Mode::empty())?)
    }
}

impl Spot {
    /// Finds the directory of `path`, which must exist, and the last part of `path`. A link as the last part is not
    /// followed.
    pub(crate) fn find(path: &str, field: Field) -> Result<Self, Fault> {
        Self::at(&open_to_all(path, field)?, path, field)
    }

    fn at(place: &Path, path: &str, field: Field) -> Result<Self, Fault> {
        let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
            return Err(Fault::of(ErrorCode::PathForbidden, field, path, "is the root"));
        };
        let found = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(CWD, parent, flags, Mode::empty())?;
            Ok::<_, Errno>((real(directory.as_fd())?, is_kernels(&directory)?, directory))
        };
        let (real, is_kernels, directory) = found().map_err(|error| Fault::io(field, path, error.into()))?;
        if is_closed(&real.join(name)) || is_kernels {
            return Err(Fault::closed(field, path));
        }
        let name = CString::new(name.as_bytes()).map_err(|error| Fault::io(field, path, error.into()))?;
        Ok(Self { directory, name })
    }

    /// Like [`find`](Self::find), but follows a link as the last part, so that the target is replaced rather than the
    /// link.
    pub(crate) fn behind_links(path: &str, field: Field) -> Result<Self, Fault> {
        let spot = Self::find(path, field)?;
        match spot.stat() {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => match Place::find(path, field) {
                Ok(place) => Self::at(&place.real, path, field),
                Err(fault) if fault.is_missing() => Ok(spot),
                Err(fault) => Err(fault),
            },
            _ => Ok(spot),
        }
    }

    /// Checks that the entries of the directory may be changed.
    pub(crate) fn changeable(&self) -> Result<(), Errno> {
        accessat(&self.directory, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())
    }

    pub(crate) fn directory_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Returns the current metadata of the file; of a link itself.
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }
}
