//! Inspects and unpacks untrusted ZIP archives within bounds, and packs the folders that callers deploy.
//!
//! The reader trusts nothing that an archive declares: it counts sizes while it reads, checks names before it creates
//! a file, and refuses links that leave the archive, devices, encryption and unusual compression. Reading blocks. Its
//! memory is bounded by [`Limits::entries`] and the length of a name.

pub mod extension;
mod links;
mod names;
pub mod package;
mod walk;

use std::fs::{self, File};
use std::io;
use std::path::Path;

pub use walk::{Entry, Kind, walk};

/// The bounds of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of entries, including directories.
    pub entries: u64,
    /// The maximum number of bytes of all entries together, unpacked.
    pub bytes: u64,
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
    /// The archive has an entry that must not be unpacked, or exceeds its bounds.
    #[error("{0}")]
    Refused(String),
    /// Reading the archive or using its content failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ArchiveError {
    pub(crate) fn refused(entry: &str, why: &str) -> Self {
        Self::Refused(format!("the archive's entry {} {why}", escaped(entry)))
    }

    pub(crate) fn size_mismatch(entry: &str) -> Self {
        Self::Unreadable(format!("the entry {} has another size than it says", escaped(entry)))
    }
}

/// Shortens and escapes a name, which is untrusted input and may contain terminal control characters.
fn escaped(entry: &str) -> String {
    entry.chars().take(100).flat_map(char::escape_default).collect()
}

/// Unpacks `archive` into `directory`, which must exist, be empty and be used by nothing else. With `top`, unpacks only
/// the content of that folder, without the folder itself. Executable files stay executable; times are the current time.
/// Links are created last, so that nothing is written through a link.
///
/// # Errors
/// See [`ArchiveError`]. Files that were unpacked before the error remain.
pub fn unpack(archive: File, limits: Limits, top: Option<&str>, directory: &Path) -> Result<(), ArchiveError> {
    let mut links = Vec::new();
    walk(archive, limits, |entry, content| {
        let relative = match top {
            None => Some(entry.path),
            Some(top) => entry.path.strip_prefix(top).and_then(|rest| rest.strip_prefix('/')),
        };
        let Some(path) = relative.map(|relative| directory.join(relative)) else { return Ok(()) };
        match entry.kind {
            Kind::Directory => fs::create_dir_all(path)?,
            Kind::File => {
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                let mut file = create(&path, entry.executable)?;
                io::copy(content, &mut file)?;
            }
            Kind::Link => {
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                let mut target = String::new();
                content.read_to_string(&mut target)?;
                links.push((target, path));
            }
        }
        Ok(())
    })?;
    links.iter().try_for_each(|(target, path)| std::os::unix::fs::symlink(target, path)).map_err(ArchiveError::Io)
}

fn create(path: &Path, executable: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mode = if executable { 0o755 } else { 0o644 };
    File::options().write(true).create_new(true).mode(mode).open(path)
}
