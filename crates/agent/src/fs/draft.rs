//! Files that are being written. They have no name until they are complete, so that an aborted write leaves nothing
//! behind.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, linkat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::fault::{Fault, Field};
use super::path::{Place, Spot};
use casement_agent_protocol::ErrorCode;

/// The prefix of temporary names, which only the agent uses.
pub(super) const PREFIX: &str = ".casement-";
const RANDOM: usize = 12;

/// A file that has no name yet.
pub(super) struct Draft {
    pub(super) file: File,
    spot: Spot,
    mode: u32,
    path: String,
    field: Field,
}

impl Draft {
    /// Creates a file that will replace the one at `path`, or the target of a link there.
    pub(super) fn new(path: &str, mode: u32, field: Field) -> Result<Self, Fault> {
        let spot = Spot::behind_links(path, field)?;
        match spot.stat().map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Directory) => return Err(Fault::of(ErrorCode::IsADirectory, field, path, "is a directory")),
            Ok(FileType::RegularFile | FileType::Symlink) | Err(Errno::NOENT) => {}
            Ok(_) => return Err(Fault::of(ErrorCode::PathForbidden, field, path, "is not a regular file")),
            Err(error) => return Err(Fault::io(field, path, error.into())),
        }
        let file = unnamed(&spot.directory).map_err(|error| Fault::io(field, path, error.into()))?;
        Ok(Self { file: file.into(), spot, mode, path: path.to_owned(), field })
    }

    /// Gives the complete file its name.
    pub(super) fn publish(self) -> Result<(), Fault> {
        let directory = &self.spot.directory;
        let published = || {
            fchmod(&self.file, Mode::from_raw_mode(self.mode))?;
            let handle = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            match linkat(CWD, &handle, directory, &self.spot.name, AtFlags::SYMLINK_FOLLOW) {
                Err(Errno::EXIST) => {}
                other => return other,
            }
            // Linking cannot replace another file in one step, but renaming can, so the file gets a temporary name
            // first.
            let waiting = unused_name();
            linkat(CWD, &handle, directory, &waiting, AtFlags::SYMLINK_FOLLOW)?;
            renameat(directory, &waiting, directory, &self.spot.name).inspect_err(|_| {
                // The temporary name is known only here.
                let _ = unlinkat(directory, &waiting, AtFlags::empty());
            })
        };
        published().map_err(|error: Errno| Fault::io(self.field, &self.path, error.into()))
    }

    /// Creates the fault for an error while the file was written.
    pub(super) fn fault(&self, error: io::Error) -> Fault {
        Fault::io(self.field, &self.path, error)
    }
}

/// Creates a file without a name in `directory`. It is deleted when it is closed.
pub(super) fn unnamed(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    // `directory` may be opened with `O_PATH`, so it is named through `/proc`.
    openat(CWD, format!("/proc/self/fd/{}", directory.as_raw_fd()), flags, mode)
}

/// Returns a random temporary name that does not exist.
pub(super) fn unused_name() -> String {
    let mut random = [0; RANDOM];
    // Without random bytes the name might exist, and its use then fails.
    let _ = getrandom(&mut random, GetRandomFlags::empty());
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{digits}")
}

/// Returns true if a name is one of [`unused_name`].
pub(super) fn is_unused_name(name: &[u8]) -> bool {
    let digits = name.strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
    digits.len() == RANDOM * 2 && digits.iter().all(u8::is_ascii_hexdigit)
}

/// The directories that an operation has created. Dropping it removes the empty ones, except after
/// [`keep`](Self::keep).
#[derive(Default)]
pub(super) struct CreatedDirectories(Vec<(OwnedFd, CString)>);

impl CreatedDirectories {
    /// Leaves the directories in place.
    pub(super) fn keep(mut self) {
        self.0.clear();
    }

    /// Creates the directory at `path` and those above it, unless they exist.
    ///
    /// The last one, if it is created, gets exactly `mode`, those above it the usual mode.
    pub(super) fn directories(&mut self, path: &str, mode: u32, field: Field) -> Result<(), Fault> {
        let fault = |error: Errno| Fault::io(field, path, error.into());
        let mut so_far = PathBuf::from("/");
        let parts: Vec<_> = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        for (index, part) in parts.iter().enumerate() {
            so_far.push(part);
            let text = so_far.to_str().unwrap_or_default();
            match Place::find(text, field) {
                Ok(place) if place.kind() == FileType::Directory => continue,
                Ok(_) if index + 1 == parts.len() => {
                    return Err(Fault::of(ErrorCode::Exists, field, text, "exists already and is not a directory"));
                }
                Ok(_) => return Err(Fault::of(ErrorCode::NotADirectory, field, text, "is not a directory")),
                Err(fault) if fault.is_missing() => {}
                Err(fault) => return Err(fault),
            }
            let spot = Spot::find(text, field)?;
            match mkdirat(&spot.directory, &spot.name, Mode::from_raw_mode(0o755)) {
                // Another program has created it meanwhile. Otherwise the name is a link without a target.
                Err(Errno::EXIST) if Place::find(text, field).is_ok() => continue,
                made => made.map_err(fault)?,
            }
            if index + 1 == parts.len() {
                let made = super::names::open_directory(spot.directory_fd(), &spot.name).map_err(fault)?;
                fchmod(&made, Mode::from_raw_mode(mode)).map_err(fault)?;
            }
            self.0.push((spot.directory, spot.name));
        }
        Ok(())
    }
}

impl Drop for CreatedDirectories {
    fn drop(&mut self) {
        for (directory, name) in self.0.iter().rev() {
            // A directory into which another program has put something stays.
            let _ = unlinkat(directory, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Returns the directory above a path.
pub(super) fn above(path: &str) -> &str {
    Path::new(path).parent().and_then(|parent| std::str::from_utf8(parent.as_os_str().as_bytes()).ok()).unwrap_or("/")
}
