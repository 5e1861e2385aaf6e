//! Unpacks an archive, completely or not at all.
//!
//! Every entry is checked before anything is written. Then the archive is unpacked into a temporary directory in the
//! target, and its content is moved to its final location only when it is complete.

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fstatvfs, futimens, mkdirat, openat,
    renameat, statat, symlinkat,
};
use rustix::io::Errno;

use super::record::Entry;
use super::source::{Content, Directory, Unusable};
use crate::fs::change::remove_tree;
use crate::fs::draft::unused_name;
use crate::fs::fault::{Fault, Field};
use crate::fs::names::{MAX_DEPTH, Names, open_directory};
use crate::fs::path::Place;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::fs::MAX_PATH_BYTES;

/// The maximum number of entries of an archive.
const MAX_ENTRIES: u64 = 100_000;
/// The maximum length of a name in a directory, in bytes.
const MAX_NAME: usize = 255;
const CHUNK_BYTES: usize = 128 << 10;

/// The type of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    Link,
    File,
}

/// Unpacks the archive in `file` into the directory at `path`. Fails when `given_up` becomes true.
pub(in crate::fs) fn archive(file: &File, path: &str, given_up: &AtomicBool) -> Result<(), Fault> {
    let (target, _) = Place::directory(path, Field::Unpacked)?;
    let directory = Directory::find(file).map_err(unusable)?;
    let size = check(file, directory)?;
    let room = fstatvfs(&target).map_err(|error| Fault::io(Field::Unpacked, path, error.into()))?;
    let (room, inodes) = (room.f_bavail.saturating_mul(room.f_frsize), room.f_favail);
    if size > room || directory.entries > inodes {
        return Err(Fault::full(Field::Archive, size.checked_sub(room)));
    }
    let unpacking = Unpacking::new(&target, path)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    for entry in directory.entries(file) {
        if given_up.load(Ordering::Relaxed) {
            return Err(Fault::broken("the caller is gone"));
        }
        unpacking.entry(file, &directory, &entry.map_err(unusable)?, &mut buffer)?;
    }
    // Conflicts are found before anything is moved.
    unpacking.merge(false)?;
    unpacking.merge(true)?;
    // Done last, because each new entry changes the time of its directory.
    for entry in directory.entries(file) {
        let entry = entry.map_err(unusable)?;
        if kind(&entry)? == Kind::Directory && entry.modified != 0 {
            keep_time(&target, plain(&entry.name)?, entry.modified);
        }
    }
    Ok(())
}

/// Sets the time of an unpacked directory to the time in the archive. The directory may have been removed meanwhile.
fn keep_time(target: &OwnedFd, name: &[u8], modified: i64) {
    let give = || {
        let mut found = rustix::io::fcntl_dupfd_cloexec(target, 0)?;
        for part in name.split(|byte| *byte == b'/') {
            found = open_directory(found.as_fd(), &CString::new(part).map_err(|_| Errno::INVAL)?)?;
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

fn unusable(error: Unusable) -> Fault {
    Fault::new(ErrorCode::NotAllowed, Field::Archive, error)
}

fn unsafe_entry(name: &[u8], why: &str) -> Fault {
    let name: String = String::from_utf8_lossy(name).chars().take(100).collect();
    Fault::new(ErrorCode::NotAllowed, Field::Archive, format_args!("the entry {name:?} {why}"))
}

/// Checks every entry, and returns the size of all together, in bytes.
fn check(file: &File, directory: Directory) -> Result<u64, Fault> {
    if directory.entries > MAX_ENTRIES {
        let why = format!("it has more than {MAX_ENTRIES} entries");
        return Err(Fault::new(ErrorCode::NotAllowed, Field::Archive, why));
    }
    let hasher = RandomState::new();
    let mut seen = HashSet::new();
    let mut links = HashSet::new();
    let mut size = 0_u64;
    for entry in directory.entries(file) {
        let entry = entry.map_err(unusable)?;
        let name = plain(&entry.name)?;
        let kind = kind(&entry)?;
        if !seen.insert(hasher.hash_one(name)) {
            return Err(unsafe_entry(name, "is there twice"));
        }
        if kind == Kind::Link {
            links.insert(hasher.hash_one(name));
        }
        size = size.saturating_add(entry.size);
    }
    if links.is_empty() {
        return Ok(size);
    }
    for entry in directory.entries(file) {
        let entry = entry.map_err(unusable)?;
        let name = plain(&entry.name)?;
        let ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        if ends.into_iter().any(|end| links.contains(&hasher.hash_one(&name[..end]))) {
            return Err(unsafe_entry(name, "lies behind a link"));
        }
    }
    Ok(size)
}

/// Returns a name without a `/` at its end, if it stays inside of the target.
fn plain(name: &[u8]) -> Result<&[u8], Fault> {
    let plain = name.strip_suffix(b"/").unwrap_or(name);
    if plain.is_empty() || plain.starts_with(b"/") || plain.contains(&0) || plain.len() > MAX_PATH_BYTES {
        return Err(unsafe_entry(name, "has a name that is absolute, empty, too long or holds a NUL"));
    }
    let mut depth = 0;
    for part in plain.split(|byte| *byte == b'/') {
        if matches!(part, b"" | b"." | b"..") || part.len() > MAX_NAME {
            return Err(unsafe_entry(name, "has a name with `..`, `.`, `//` or a part of more than 255 bytes"));
        }
        depth += 1;
    }
    if depth > MAX_DEPTH { Err(unsafe_entry(name, "lies too deep")) } else { Ok(plain) }
}

fn kind(entry: &Entry) -> Result<Kind, Fault> {
    match FileType::from_raw_mode(entry.mode) {
        _ if entry.name.ends_with(b"/") => Ok(Kind::Directory),
        FileType::Directory => Ok(Kind::Directory),
        FileType::Symlink if entry.size < MAX_PATH_BYTES as u64 => Ok(Kind::Link),
        FileType::RegularFile => Ok(Kind::File),
        // Created on a system where files have no type.
        _ if entry.mode & 0o170_000 == 0 => Ok(Kind::File),
        _ => Err(unsafe_entry(&entry.name, "is a device, a FIFO, a socket or no usable link")),
    }
}

/// Returns true if the target of a link stays inside of the archive. A target may lead up only at its beginning: then
/// the directories above are those of the archive and no links.
fn stays_inside(name: &[u8], target: &[u8]) -> bool {
    let mut above = name.iter().filter(|byte| **byte == b'/').count();
    let mut down = false;
    let mut parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    !target.is_empty()
        && !target.starts_with(b"/")
        && !target.contains(&0)
        && parts.all(|part| match part {
            b".." if down || above == 0 => false,
            b".." => {
                above -= 1;
                true
            }
            _ => {
                down = true;
                true
            }
        })
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

    fn entry(&self, file: &File, directory: &Directory, entry: &Entry, buffer: &mut [u8]) -> Result<(), Fault> {
        let name = plain(&entry.name)?;
        let conflict = |error: Errno| match error {
            Errno::EXIST | Errno::NOTDIR | Errno::LOOP => unsafe_entry(name, "is in the way of another one"),
            other => self.fault(other),
        };
        let (parent, last) = self.parent(name).map_err(conflict)?;
        let permissions = entry.mode & 0o777;
        if kind(entry)? == Kind::Directory {
            match mkdirat(&parent, &last, Mode::RWXU) {
                // The directory was created already for an entry in it.
                Err(Errno::EXIST) => {}
                made => made.map_err(conflict)?,
            }
            let made = open_directory(parent.as_fd(), &last).map_err(conflict)?;
            let mode = if permissions == 0 { 0o755 } else { permissions | 0o700 };
            return fchmod(made, Mode::from_raw_mode(mode)).map_err(conflict);
        }
        let mut content = Content::of(file, directory, entry).map_err(unusable)?;
        if kind(entry)? == Kind::Link {
            let mut target = Vec::new();
            content.read_to_end(&mut target).map_err(|error| unsafe_entry(name, &error.to_string()))?;
            if !stays_inside(name, &target) {
                return Err(unsafe_entry(name, "is a link that leads out of the archive"));
            }
            return symlinkat(OsStr::from_bytes(&target), &parent, &last).map_err(conflict);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut made: File = openat(&parent, &last, flags, Mode::RUSR | Mode::WUSR).map_err(conflict)?.into();
        loop {
            let read = content.read(buffer).map_err(|error| unsafe_entry(name, &error.to_string()))?;
            if read == 0 {
                break;
            }
            io::Write::write_all(&mut made, &buffer[..read]).map_err(|error| self.fault(error))?;
        }
        let mode = if permissions == 0 { 0o644 } else { permissions };
        fchmod(&made, Mode::from_raw_mode(mode))
            .and_then(|()| futimens(&made, &times(entry.modified)))
            .map_err(conflict)
    }

    /// Returns the directory of an entry, which is created if necessary, and the entry's name in it.
    fn parent(&self, name: &[u8]) -> Result<(OwnedFd, CString), Errno> {
        let mut parent = rustix::io::fcntl_dupfd_cloexec(&self.inside, 0)?;
        let mut parts = name.split(|byte| *byte == b'/').peekable();
        while let Some(part) = parts.next() {
            let part = CString::new(part).map_err(|_| Errno::INVAL)?;
            if parts.peek().is_none() {
                return Ok((parent, part));
            }
            match mkdirat(&parent, &part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(other) => return Err(other),
            }
            parent = open_directory(parent.as_fd(), &part)?;
        }
        Err(Errno::INVAL)
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
                    return Err(unsafe_entry(name.to_bytes(), "is a directory, but a file is in its place"));
                }
                (_, Ok(FileType::Directory)) => {
                    return Err(unsafe_entry(name.to_bytes(), "is a file, but a directory is in its place"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_inside_of_the_archive() {
        for (name, target) in [("a", "b"), ("d/a", "../b"), ("d/a", "./b/c"), ("a", "b/./c"), ("d/e/a", "../../b")] {
            assert!(stays_inside(name.as_bytes(), target.as_bytes()), "{name} -> {target}");
        }
        for (name, target) in [("a", "/b"), ("a", "../b"), ("d/a", "../../b"), ("d/a", "x/../../y"), ("a", "")] {
            assert!(!stays_inside(name.as_bytes(), target.as_bytes()), "{name} -> {target}");
        }
    }

    #[test]
    fn names_stay_inside_of_the_target() {
        for good in ["a", "a/", "a/b", "..a", "a\nb", "\u{202e}x"] {
            assert!(plain(good.as_bytes()).is_ok(), "{good:?}");
        }
        for bad in ["", "/", "/a", "..", "../a", "a/../b", "a//b", "./a", "a/.", "a\0b"] {
            assert!(plain(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(plain("x/".repeat(MAX_DEPTH + 1).as_bytes()).is_err());
    }
}
