//! Unpacks an archive, completely or not at all.
//!
//! Every name is checked before anything is written. Then the archive is unpacked into a temporary directory in the
//! target, and its content is moved to its final location only when it is complete.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use casement_archive::{ArchiveError, Entry, Kind, Limits, list, walk};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fstatvfs, futimens, mkdirat, openat,
    renameat, statat, symlinkat,
};
use rustix::io::Errno;

use crate::fs::change::remove_tree;
use crate::fs::draft::unused_name;
use crate::fs::fault::{Fault, Field};
use crate::fs::names::{MAX_DEPTH, Names, open_directory};
use crate::fs::path::Place;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::fs::MAX_PATH_BYTES;

/// The bounds of an archive. The bytes are bounded by the disk.
const LIMITS: Limits =
    Limits { entries: 100_000, bytes: u64::MAX, path_bytes: MAX_PATH_BYTES, depth: MAX_DEPTH, links: true };
const CHUNK_BYTES: usize = 128 << 10;

impl From<ArchiveError> for Fault {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Io(error) => Self::io(Field::Archive, "the archive", error),
            refused => Self::new(ErrorCode::InvalidFormat, Field::Archive, refused),
        }
    }
}

/// Unpacks the archive in `file` into the directory at `path`. Fails when `given_up` becomes true.
pub(in crate::fs) fn archive(file: &File, path: &str, given_up: &AtomicBool) -> Result<(), Fault> {
    let (target, _) = Place::directory(path, Field::Unpacked)?;
    let again = || file.try_clone().map_err(ArchiveError::Io);
    let (mut size, mut entries) = (0_u64, 0);
    list(again()?, LIMITS, |entry| {
        size = size.saturating_add(entry.size);
        entries += 1;
        Ok::<_, Fault>(())
    })?;
    let room = fstatvfs(&target).map_err(|error| Fault::io(Field::Unpacked, path, error.into()))?;
    let (room, inodes) = (room.f_bavail.saturating_mul(room.f_frsize), room.f_favail);
    if size > room || entries > inodes {
        return Err(Fault::full(Field::Archive, size.checked_sub(room)));
    }
    let unpacking = Unpacking::new(&target, path)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    walk(again()?, LIMITS, |entry, content| {
        if given_up.load(Ordering::Relaxed) {
            return Err(Fault::broken("the caller has disconnected"));
        }
        unpacking.entry(entry, content, &mut buffer)
    })?;
    // Conflicts are found before anything is moved.
    unpacking.merge(false)?;
    unpacking.merge(true)?;
    // Done last, because each new entry changes the time of its directory.
    list(again()?, LIMITS, |entry| {
        if let (Kind::Directory, Some(modified)) = (entry.kind, entry.modified) {
            keep_time(&target, entry.path, modified);
        }
        Ok(())
    })
}

/// Sets the time of an unpacked directory to the time in the archive. The directory may have been removed meanwhile.
fn keep_time(target: &OwnedFd, path: &Path, modified: i64) {
    let give = || {
        let mut found = rustix::io::fcntl_dupfd_cloexec(target, 0)?;
        for part in path {
            found = open_directory(found.as_fd(), part)?;
        }
        futimens(found, &times(modified))
    };
    if let Err(error) = give() {
        tracing::debug!(%error, "cannot set the time of an unpacked directory");
    }
}

fn times(modified: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified, tv_nsec: 0 },
    }
}

/// Creates the fault of an entry that has no room beside the existing files.
fn conflict(name: &Path, why: &str) -> Fault {
    let name: String = name.to_string_lossy().chars().take(100).collect();
    Fault::new(ErrorCode::NotAllowed, Field::Archive, format_args!("the archive's entry {name:?} {why}"))
}

/// The temporary directory into which an archive is unpacked before its content is moved. Dropping it removes the
/// directory with its remaining content.
struct Unpacking<'a> {
    target: BorrowedFd<'a>,
    path: &'a str,
    name: CString,
    inside: OwnedFd,
}

impl<'a> Unpacking<'a> {
    fn new(target: &'a OwnedFd, path: &'a str) -> Result<Self, Fault> {
        let name = CString::new(unused_name()).unwrap_or_default();
        let made = mkdirat(target, &name, Mode::RWXU).and_then(|()| open_directory(target.as_fd(), &name));
        let inside = made.map_err(|error| Fault::io(Field::Unpacked, path, error.into()))?;
        Ok(Self { target: target.as_fd(), path, name, inside })
    }

    fn fault(&self, error: impl Into<io::Error>) -> Fault {
        Fault::io(Field::Unpacked, self.path, error.into())
    }

    fn entry(&self, entry: &Entry<'_>, content: &mut dyn Read, buffer: &mut [u8]) -> Result<(), Fault> {
        let fault = |error: Errno| match error {
            Errno::EXIST | Errno::NOTDIR | Errno::LOOP => conflict(entry.path, "is in the way of another one"),
            other => self.fault(other),
        };
        let (parent, last) = self.parent(entry.path).map_err(fault)?;
        // An error of the content is replaced by the reader of the archive, which knows its reason.
        let damaged = |error: io::Error| conflict(entry.path, &error.to_string());
        match entry.kind {
            Kind::Directory => {
                match mkdirat(&parent, last, Mode::RWXU) {
                    // The directory was created already for an entry in it.
                    Err(Errno::EXIST) => {}
                    made => made.map_err(fault)?,
                }
                let made = open_directory(parent.as_fd(), last).map_err(fault)?;
                let mode = entry.permissions.map_or(0o755, |permissions| permissions | 0o700);
                fchmod(made, Mode::from_raw_mode(mode)).map_err(fault)
            }
            Kind::Link => {
                let mut target = Vec::new();
                content.read_to_end(&mut target).map_err(damaged)?;
                symlinkat(OsStr::from_bytes(&target), &parent, last).map_err(fault)
            }
            Kind::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut made: File = openat(&parent, last, flags, Mode::RUSR | Mode::WUSR).map_err(fault)?.into();
                loop {
                    let read = content.read(buffer).map_err(damaged)?;
                    if read == 0 {
                        break;
                    }
                    io::Write::write_all(&mut made, &buffer[..read]).map_err(|error| self.fault(error))?;
                }
                fchmod(&made, Mode::from_raw_mode(entry.permissions.unwrap_or(0o644))).map_err(fault)?;
                entry.modified.map_or(Ok(()), |modified| futimens(&made, &times(modified))).map_err(fault)
            }
        }
    }

    /// Returns the directory of an entry, which is created if necessary, and the entry's name in it.
    fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let mut parent = rustix::io::fcntl_dupfd_cloexec(&self.inside, 0)?;
        for part in path.parent().unwrap_or(Path::new("")) {
            match mkdirat(&parent, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(other) => return Err(other),
            }
            parent = open_directory(parent.as_fd(), part)?;
        }
        Ok((parent, path.file_name().ok_or(Errno::INVAL)?))
    }

    /// Moves everything to its final location, or only checks for conflicts if `really` is false. Entries are added to
    /// directories that exist already.
    fn merge(&self, really: bool) -> Result<(), Fault> {
        let read = |directory: &OwnedFd| Names::read(directory.as_fd()).map_err(|error| self.fault(error));
        let target = rustix::io::fcntl_dupfd_cloexec(self.target, 0).map_err(|error| self.fault(error))?;
        let inside = rustix::io::fcntl_dupfd_cloexec(&self.inside, 0).map_err(|error| self.fault(error))?;
        let mut levels = vec![(read(&inside)?, inside, target)];
        while let Some((mut names, from, to)) = levels.pop() {
            let Some(name) = names.next().map(CStr::to_owned) else { continue };
            let kind = |at: &OwnedFd| {
                let stat = statat(at, &name, AtFlags::SYMLINK_NOFOLLOW);
                stat.map(|stat| FileType::from_raw_mode(stat.st_mode))
            };
            let (is, was) = (kind(&from).map_err(|error| self.fault(error))?, kind(&to));
            let below = match (is, was) {
                (FileType::Directory, Ok(FileType::Directory)) => {
                    let open = |at: &OwnedFd| open_directory(at.as_fd(), &name).map_err(|error| self.fault(error));
                    Some((open(&from)?, open(&to)?))
                }
                (FileType::Directory, Ok(_)) => {
                    return Err(conflict(
                        Path::new(OsStr::from_bytes(name.to_bytes())),
                        "is a directory, but a file is in its place",
                    ));
                }
                (_, Ok(FileType::Directory)) => {
                    return Err(conflict(
                        Path::new(OsStr::from_bytes(name.to_bytes())),
                        "is a file, but a directory is in its place",
                    ));
                }
                _ => {
                    if really {
                        renameat(&from, &name, &to, &name).map_err(|error| self.fault(error))?;
                    }
                    None
                }
            };
            levels.push((names, from, to));
            if let Some((from, to)) = below {
                levels.push((read(&from)?, from, to));
            }
        }
        Ok(())
    }
}

impl Drop for Unpacking<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(self.target, &self.name) {
            tracing::warn!(%error, at = self.target.as_raw_fd(), "cannot remove the temporary directory of an archive");
        }
    }
}
