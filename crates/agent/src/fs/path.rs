//! Where a path leads, found without touching what is there: only then is it known whether it may be opened.
//!
//! The kernel keeps every path inside the sandbox. What is kept out here are the places where a path leads to the agent itself, to
//! the kernel or to a device, and everything that is not what the operation is for: opening a FIFO or a device can block or act.

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
use casement_agent_protocol::ErrorCode;

/// Of no use as files, and dangerous as such.
const CLOSED: [&str; 3] = ["/proc", "/sys", "/dev"];
/// The file systems that stand there, wherever else one of them is mounted. They are the kernel's: what is in them acts, or leads to
/// the processes of the session.
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

/// Something that is there.
pub(crate) struct Place {
    /// Opened for nothing but to be found again.
    at: OwnedFd,
    pub(crate) stat: Stat,
    /// Without links.
    pub(crate) real: PathBuf,
}

/// Where something is or will be: a directory and a name in it.
pub(crate) struct Spot {
    pub(crate) directory: OwnedFd,
    pub(crate) name: CString,
}

/// Whether a path without links leads to what is not for files.
pub(crate) fn is_closed(path: &Path) -> bool {
    CLOSED.iter().any(|closed| path.starts_with(closed)) || !path.is_absolute()
}

/// Whether what was opened is on a file system of the kernel's.
pub(crate) fn is_kernels(at: impl AsFd) -> Result<bool, Errno> {
    let kind = fstatfs(at)?.f_type as u64 & 0xffff_ffff;
    Ok(KERNEL.contains(&kind))
}

/// A path as text, before the file system is asked.
fn open_to_all(path: &str, field: Field) -> Result<(), Fault> {
    if is_closed(Path::new(path)) { Err(Fault::closed(field, path)) } else { Ok(()) }
}

/// Where a descriptor leads, without links.
fn real(at: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", at.as_raw_fd());
    Ok(PathBuf::from(OsString::from_vec(readlinkat(CWD, link, Vec::new())?.into_bytes())))
}

impl Place {
    /// Finds what `path` leads to; links are followed.
    pub(crate) fn find(path: &str, field: Field) -> Result<Self, Fault> {
        open_to_all(path, field)?;
        let found = || {
            let at = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            Ok::<_, Errno>((fstat(&at)?, real(at.as_fd())?, is_kernels(&at)?, at))
        };
        let (stat, real, is_kernels, at) = found().map_err(|error| Fault::io(field, path, error.into()))?;
        if is_closed(&real) || is_kernels { Err(Fault::closed(field, path)) } else { Ok(Self { at, stat, real }) }
    }

    /// As [`find`](Self::find), a directory, opened for reading.
    pub(crate) fn directory(path: &str, field: Field) -> Result<(OwnedFd, PathBuf), Fault> {
        let place = Self::find(path, field)?;
        if place.kind() != FileType::Directory {
            return Err(Fault::of(ErrorCode::NotADirectory, field, path, "is not a directory"));
        }
        let opened = place.reopen(OFlags::RDONLY | OFlags::DIRECTORY);
        Ok((opened.map_err(|error| Fault::io(field, path, error))?, place.real))
    }

    /// As [`find`](Self::find), a regular file, opened for reading.
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

    /// A path by which the kernel finds this very thing, whatever stands at its old path meanwhile.
    pub(crate) fn handle(&self) -> String {
        format!("/proc/self/fd/{}", self.at.as_raw_fd())
    }

    fn reopen(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(openat(CWD, self.handle(), flags, Mode::empty())?)
    }
}

impl Spot {
    /// The directory that `path` is in, which must be there, and its last part. A link there is not followed.
    pub(crate) fn find(path: &str, field: Field) -> Result<Self, Fault> {
        open_to_all(path, field)?;
        Self::at(Path::new(path), path, field)
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

    /// As [`find`](Self::find), but if a link stands there, then where it leads, so that a file is replaced rather than the link to it.
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

    /// Whether what stands in its directory may be changed.
    pub(crate) fn changeable(&self) -> Result<(), Errno> {
        accessat(&self.directory, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())
    }

    pub(crate) fn directory_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// What is there now; a link itself.
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }
}
