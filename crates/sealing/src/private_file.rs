//! Files that only their owner can read, written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file of mode 0600 for writing; creates it if it is missing. Does not follow symbolic links, and does not wait
/// for the reader of a pipe.
///
/// # Errors
/// If the file cannot be opened or created.
pub fn open(path: &Path, truncate: bool) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(truncate)
        .mode(0o600)
        .custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
}

/// Replaces a file atomically and syncs it: after a crash it has the old content or the new one.
///
/// # Errors
/// If writing, renaming or syncing fails. The old content stays, unless only the sync of the directory fails.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = open(&new, true)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}
