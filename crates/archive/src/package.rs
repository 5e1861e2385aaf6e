//! Archives of programs that callers deploy.

use std::fs::File;

use crate::{ArchiveError, Kind, Limits, walk};

/// How much a package may hold.
pub const LIMITS: Limits = Limits { entries: 50_000, bytes: 1 << 30, depth: 64, links: true };

/// The longest archive of one, in bytes.
pub const MAX_BYTES: u64 = 256 << 20;

/// Looks through a whole archive: whether it may be unpacked. Answers whether there is a file at `path` in it.
///
/// # Errors
/// See [`ArchiveError`].
pub fn inspect(archive: File, path: &str) -> Result<bool, ArchiveError> {
    let mut found = false;
    walk(archive, LIMITS, |entry, _| {
        found |= entry.kind == Kind::File && entry.path == path;
        Ok(())
    })?;
    Ok(found)
}
