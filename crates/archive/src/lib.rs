//! ZIP archives from strangers: looked through and unpacked within bounds, by one routine.
//!
//! Nothing an archive says is believed: its sizes are counted while it is read, its names are checked before anything is made, and
//! what would need trust (links that leave it, devices, encryption, unusual compression) is refused. Reading blocks; the memory it takes is bounded
//! by [`Limits::entries`] and the length of a name.

pub mod extension;
mod links;
mod names;
pub mod package;
mod walk;

use std::fs::{self, File};
use std::io;
use std::path::Path;

pub use walk::{Entry, Kind, walk};

/// How much an archive may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most entries, directories included.
    pub entries: u64,
    /// Most bytes that come out of it in all.
    pub bytes: u64,
    /// Most directories one within the other.
    pub depth: usize,
    /// Whether symbolic links within it are let through; those that leave it never are.
    pub links: bool,
}

/// An archive was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is no ZIP, or damaged.
    #[error("not a readable ZIP archive: {0}")]
    Unreadable(String),
    /// It holds what nobody should unpack.
    #[error("{0}")]
    Refused(String),
    /// What was to be done with its content failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ArchiveError {
    pub(crate) fn refused(entry: &str, why: &str) -> Self {
        Self::Refused(format!("the archive's entry {} {why}", shown(entry)))
    }

    pub(crate) fn other_size(entry: &str) -> Self {
        Self::Unreadable(format!("the entry {} has another size than it says", shown(entry)))
    }
}

/// A name is somebody's input: as much of it as helps, and nothing that moves a terminal's cursor.
fn shown(entry: &str) -> String {
    entry.chars().take(100).flat_map(char::escape_default).collect()
}

/// Unpacks `archive` into `directory`, which is there and empty and nobody else's. Of what lies in the folder `top`, where one is
/// given, and of nothing else; the folder itself is not made. Files that can be executed stay so; times are those of now. Links are made
/// when all else is there, so that nothing is written through one.
///
/// # Errors
/// See [`ArchiveError`]; what was unpacked by then is left.
pub fn unpack(archive: File, limits: Limits, top: Option<&str>, directory: &Path) -> Result<(), ArchiveError> {
    let mut links = Vec::new();
    walk(archive, limits, |entry, content| {
        let inside = match top {
            None => Some(entry.path),
            Some(top) => entry.path.strip_prefix(top).and_then(|rest| rest.strip_prefix('/')),
        };
        let Some(path) = inside.map(|inside| directory.join(inside)) else { return Ok(()) };
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
