//! Reads untrusted ZIP archives within bounds, and packs the folders that callers deploy.
//!
//! The reader trusts nothing that an archive declares: it counts sizes while it reads, checks names before it creates
//! a file, and refuses what could leave the directory. Reading blocks. Its memory is bounded by [`Limits::entries`] and
//! the length of a name.
//!
//! # Rules
//!
//! Every endpoint that takes an archive reads it here, so that each of them accepts and refuses the same; only the
//! bounds ([`Limits`]) differ. `docs/decisions/0090-one-reader-of-archives.md` says why.
//!
//! | what | rule |
//! | --- | --- |
//! | sizes | from the directory at the end; a data descriptor is not read; ZIP64 fields count whatever the size |
//! | name marked as UTF-8 | UTF-8; refused if it is not |
//! | name with a field "Unicode Path" (0x7075) that belongs to it | the name in that field |
//! | another name | UTF-8 if it is valid UTF-8. Otherwise code page 437 if DOS or Windows made the entry, and else the bytes as they are |
//! | backslashes | separators if DOS or Windows made the entry, and its name is UTF-8 without a slash; otherwise a part of the name |
//! | version 0.0 of DOS | stated by git alone; its names are those of the repository |
//! | `.` and empty parts | left out, as in `./a` and `a//b` |
//! | `..`, also between backslashes; a name that begins with `/`, a drive or a share; NUL | refused |
//! | equal names | refused, also a file below a file or a link. Letters are compared as bytes: case and normal form matter |
//! | directories | named with a slash at the end, or by their mode or attribute. Those above an entry need no entry |
//! | permissions | of a Unix: the nine bits, if any is set; of other systems: none |
//! | links | of a Unix: accepted if the target is relative and inside of the archive |
//! | devices, FIFOs, sockets | refused |
//! | `__MACOSX/`: directories and files `._*` | left out |
//! | encrypted entries; other compression than stored and deflated | refused with the method |
//! | bytes before the archive, a comment after it | ignored |

mod encoding;
pub mod extension;
mod links;
mod maker;
mod names;
pub mod package;
mod refusal;
mod walk;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

pub use refusal::EntryRefusal;
pub use walk::{Entry, Kind, list, walk};

/// The bounds of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of entries, including directories.
    pub entries: u64,
    /// The maximum number of bytes of all entries together, unpacked.
    pub bytes: u64,
    /// The maximum length of a path, in bytes.
    pub path_bytes: usize,
    /// The maximum number of parts of a path.
    pub depth: usize,
    /// True to accept symbolic links to entries of the same archive. Links that leave the archive are never accepted.
    pub links: bool,
}

/// The reason why an archive was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file is not a ZIP archive, or is damaged.
    #[error("not a readable ZIP archive: {0}")]
    Unreadable(String),
    /// The archive has an entry that must not be unpacked.
    #[error("the archive's entry {name} {why}")]
    Entry {
        /// The name of the entry, shortened and escaped.
        name: String,
        /// The reason.
        why: EntryRefusal,
    },
    /// The archive exceeds its bounds, or lacks what it must have.
    #[error("{0}")]
    Refused(String),
    /// Reading the archive or using its content failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ArchiveError {
    pub(crate) fn entry(path: &Path, why: EntryRefusal) -> Self {
        Self::Entry { name: escaped(path), why }
    }

    pub(crate) fn damaged(path: &Path, why: &str) -> Self {
        Self::Unreadable(format!("the entry {} {why}", escaped(path)))
    }
}

/// Shortens and escapes a name, which is untrusted input and may contain terminal control characters.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().chars().take(100).flat_map(char::escape_debug).collect()
}

/// Unpacks `archive` into `directory`, which must exist, be empty and be used by nothing else. With `top`, unpacks only
/// the content of that folder, without the folder itself. Executable files stay executable; times are the current time.
/// Links are created last, so that nothing is written through a link.
///
/// # Errors
/// See [`ArchiveError`]. Files that were unpacked before the error remain.
pub fn unpack(archive: File, limits: Limits, top: Option<&Path>, directory: &Path) -> Result<(), ArchiveError> {
    let mut links = Vec::new();
    walk(archive, limits, |entry, content| {
        let relative = top.map_or(Some(entry.path), |top| entry.path.strip_prefix(top).ok());
        let Some(relative) = relative.filter(|relative| !relative.as_os_str().is_empty()) else {
            return Ok::<_, ArchiveError>(());
        };
        let path = directory.join(relative);
        if entry.kind == Kind::Directory {
            return Ok(fs::create_dir_all(path)?);
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        if entry.kind == Kind::File {
            let mut file = create(&path, entry.is_executable())?;
            io::copy(content, &mut file)?;
        } else {
            let mut target = Vec::new();
            content.read_to_end(&mut target)?;
            // Without the folders above it, a link could leave the directory.
            links::check(relative, &target).map_err(|why| ArchiveError::entry(entry.path, why))?;
            links.push((target, path));
        }
        Ok(())
    })?;
    let link = |(target, path): &(Vec<u8>, _)| std::os::unix::fs::symlink(OsStr::from_bytes(target), path);
    links.iter().try_for_each(link).map_err(ArchiveError::Io)
}

fn create(path: &Path, executable: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mode = if executable { 0o755 } else { 0o644 };
    File::options().write(true).create_new(true).mode(mode).open(path)
}
