//! Operations that create, delete or move files and directories, or change permissions.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chmodat,
    chownat, fchmod, futimens, linkat, mkdirat, openat, readlinkat, renameat, renameat_with, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::draft::{CreatedDirectories, unnamed, unused_name};
use super::fault::{Fault, Field};
use super::names::{MAX_DEPTH, Names, open_directory};
use super::path::{Place, Spot};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::fs::{MakeDirectory, Move, Permissions};

pub(super) fn make_directory(requested: &MakeDirectory) -> Result<(), Fault> {
    let mut made = CreatedDirectories::default();
    made.directories(&requested.path, requested.mode, Field::Path)?;
    made.keep();
    Ok(())
}

pub(super) fn delete_file(path: &str) -> Result<(), Fault> {
    let spot = Spot::find(path, Field::Path)?;
    match unlinkat(&spot.directory, &spot.name, AtFlags::empty()) {
        Err(Errno::ISDIR) => Err(Fault::of(ErrorCode::IsADirectory, Field::Path, path, "is a directory")),
        other => other.map_err(|error| Fault::io(Field::Path, path, error.into())),
    }
}

pub(super) fn delete_directory(path: &str) -> Result<(), Fault> {
    let spot = Spot::find(path, Field::Path)?;
    let fault = |error: Errno| Fault::io(Field::Path, path, error.into());
    let stat = spot.stat().map_err(fault)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Fault::of(ErrorCode::NotADirectory, Field::Path, path, "is not a directory"));
    }
    remove_tree(spot.directory_fd(), &spot.name).map_err(fault)
}

/// Removes a directory with its content at any depth. Links are never followed.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let root = open_directory(parent, name)?;
    let mut levels = vec![Level::new(root, name.to_owned())?];
    while let Some(mut level) = levels.pop() {
        let Some(name) = level.names.next().map(CStr::to_owned) else {
            // Directories that were too deep have been moved into the top directory meanwhile.
            let above = levels.last().map_or(parent, |level| level.directory.as_fd());
            match unlinkat(above, &level.name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY) if !level.again => {
                    level.names = read(&level.directory)?;
                    level.again = level.names.is_empty();
                    levels.push(level);
                }
                Err(Errno::NOENT) => {}
                other => other?,
            }
            continue;
        };
        match unlinkat(&level.directory, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => levels.push(level),
            Err(Errno::ISDIR | Errno::PERM) if levels.len() + 1 < MAX_DEPTH => {
                let below = open_directory(level.directory.as_fd(), &name);
                levels.push(level);
                levels.push(Level::new(below?, name)?);
            }
            Err(Errno::ISDIR | Errno::PERM) => {
                // Too deep to have every directory open: moved into the top directory, which is removed last.
                let Some(top) = levels.first() else { return Err(Errno::PERM) };
                renameat(&level.directory, &name, &top.directory, unused_name())?;
                levels.push(level);
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

struct Level {
    directory: OwnedFd,
    names: Names,
    name: CString,
    /// True if the directory was read again and seemed empty, although it is not: new entries are being created.
    again: bool,
}

impl Level {
    fn new(directory: OwnedFd, name: CString) -> Result<Self, Errno> {
        Ok(Self { names: read(&directory)?, directory, name, again: false })
    }
}

/// Reads a part of a directory's names. The rest is read after these are removed.
fn read(directory: &OwnedFd) -> Result<Names, Errno> {
    Names::portion(directory.as_fd()).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

pub(super) fn relocate(requested: &Move) -> Result<(), Fault> {
    let from = Spot::find(&requested.source, Field::Source)?;
    let of_source = |error: Errno| Fault::io(Field::Source, &requested.source, error.into());
    let of_destination = |error: Errno| Fault::io(Field::Destination, &requested.destination, error.into());
    from.stat().map_err(of_source)?;
    let to = Spot::find(&requested.destination, Field::Destination)?;
    match renameat_with(&from.directory, &from.name, &to.directory, &to.name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::XDEV) => {
            // Checked before anything is copied: a source that cannot be deleted cannot be moved.
            from.changeable().map_err(of_source)?;
            to.changeable().map_err(of_destination)?;
            across(&from, &to).map_err(|error| match error {
                Errno::EXIST | Errno::NOSPC | Errno::DQUOT => of_destination(error),
                other => of_source(other),
            })
        }
        Err(Errno::INVAL) => Err(Fault::of(
            ErrorCode::NotAllowed,
            Field::Destination,
            &requested.destination,
            "is inside the moved directory",
        )),
        Err(error @ Errno::EXIST) => Err(of_destination(error)),
        Err(error @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) if to.changeable().is_err() => {
            Err(of_destination(error))
        }
        Err(error) => Err(of_source(error)),
    }
}

/// Moves between two file systems: copies under a random name, renames the copy, and deletes the source.
pub(super) fn across(from: &Spot, to: &Spot) -> Result<(), Errno> {
    if to.stat().is_ok() {
        return Err(Errno::EXIST);
    }
    let waiting = CString::new(unused_name()).map_err(|_| Errno::INVAL)?;
    let copied = copy(from.directory_fd(), &from.name, to.directory_fd(), &waiting, 0)
        .and_then(|()| renameat_with(&to.directory, &waiting, &to.directory, &to.name, RenameFlags::NOREPLACE));
    if let Err(error) = copied {
        let _ = remove(to.directory_fd(), &waiting);
        return Err(error);
    }
    remove(from.directory_fd(), &from.name)
}

fn remove(directory: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => remove_tree(directory, name),
        other => other,
    }
}

fn copy(from: BorrowedFd<'_>, name: &CStr, to: BorrowedFd<'_>, new: &CStr, depth: usize) -> Result<(), Errno> {
    let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let mut source = File::from(openat(from, name, flags, Mode::empty())?);
            let handle = openat(to, c".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let mut copy = File::from(unnamed(&handle)?);
            io::copy(&mut source, &mut copy).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            fchmod(&copy, mode)?;
            futimens(&copy, &times(&stat))?;
            let at = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&copy));
            linkat(CWD, at, to, new, AtFlags::SYMLINK_FOLLOW)
        }
        FileType::Symlink => symlinkat(readlinkat(from, name, Vec::new())?, to, new),
        FileType::Directory if depth < MAX_DEPTH => {
            let source = open_directory(from, name)?;
            mkdirat(to, new, Mode::RWXU)?;
            let made = open_directory(to, new)?;
            for entry in Dir::read_from(&source)? {
                let entry = entry?;
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    copy(source.as_fd(), name, made.as_fd(), name, depth + 1)?;
                }
            }
            fchmod(&made, mode)?;
            futimens(&made, &times(&stat))
        }
        // A copy of a socket, a FIFO or a device would have no meaning.
        _ => Err(Errno::INVAL),
    }
}

fn times(stat: &rustix::fs::Stat) -> Timestamps {
    #[expect(clippy::unnecessary_cast, reason = "the fields have other types on other machines")]
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: stat.st_mtime as i64, tv_nsec: stat.st_mtime_nsec as _ },
    }
}

pub(super) fn permissions(requested: &Permissions) -> Result<(), Fault> {
    let owner = requested.owner.as_deref().map(|who| number(who, "/etc/passwd", Field::Owner)).transpose()?;
    let group = requested.group.as_deref().map(|who| number(who, "/etc/group", Field::Group)).transpose()?;
    let place = Place::find(&requested.path, Field::Path)?;
    let handle = place.handle();
    if owner.is_some() || group.is_some() {
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        chownat(CWD, &handle, owner, group, AtFlags::empty()).map_err(|error| match error {
            // A user or group that is not mapped into the sandbox does not exist there.
            Errno::INVAL | Errno::PERM => {
                let field = if requested.owner.is_some() { Field::Owner } else { Field::Group };
                Fault::of(
                    ErrorCode::PathForbidden,
                    field,
                    &requested.path,
                    "can be given to nobody else by the session's user",
                )
            }
            other => Fault::io(Field::Path, &requested.path, other.into()),
        })?;
    }
    chmodat(CWD, &handle, Mode::from_raw_mode(requested.mode), AtFlags::empty())
        .map_err(|error| Fault::io(Field::Path, &requested.path, error.into()))
}

/// Returns the number of a user or a group, which is given by its number or its name in `table`.
fn number(who: &str, table: &str, field: Field) -> Result<u32, Fault> {
    if who.bytes().all(|byte| byte.is_ascii_digit()) {
        // The kernel reads the highest number as "unchanged".
        let number = who.parse().ok().filter(|number| *number != u32::MAX);
        return number.ok_or_else(|| Fault::new(ErrorCode::NotAllowed, field, "is no number of a user or a group"));
    }
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let mut lines = text.lines().map(|line| line.split(':'));
    let found = lines
        .find_map(|mut parts| (parts.next()? == who).then(|| parts.nth(1))?.and_then(|number| number.parse().ok()));
    found.ok_or_else(|| Fault::new(ErrorCode::NotAllowed, field, "is not known in the session"))
}
