//! Checks the names of an archive's entries.

use std::collections::HashMap;

use crate::walk::Kind;
use crate::{ArchiveError, Limits};

/// The maximum length of the path of an entry, in bytes.
const MAX_BYTES: usize = 1024;
/// The maximum length of a part of a path, in bytes, as in common file systems.
const MAX_PART: usize = 255;

/// The names of the entries that were read so far.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, NameKind>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// A file or a link.
    File,
    Directory,
    /// A directory that is known only from the names of other entries.
    Implied,
}

impl Names {
    /// Returns the path of an entry, relative and without a slash at its end, if it may be unpacked beside the earlier
    /// entries.
    pub(crate) fn admit<'a>(&mut self, raw: &'a [u8], kind: Kind, limits: &Limits) -> Result<&'a str, ArchiveError> {
        let lossy = String::from_utf8_lossy(raw);
        let refuse = |why: &str| Err(ArchiveError::refused(&lossy, why));
        let Ok(name) = std::str::from_utf8(raw) else { return refuse("has a name that is not UTF-8") };
        let path = if kind == Kind::Directory { name.trim_end_matches('/') } else { name };
        if path.len() > MAX_BYTES {
            return refuse("has too long a name");
        }
        if name.starts_with('/') || path.as_bytes().get(1) == Some(&b':') {
            return refuse("has an absolute name");
        }
        if path.contains(['\\', '\0']) {
            return refuse("has a backslash or NUL in its name");
        }
        for part in path.split('/') {
            match part {
                ".." => return refuse("leads out of the archive"),
                "" | "." => return refuse("has an empty part in its name"),
                _ if part.len() > MAX_PART => return refuse("has too long a name"),
                _ => {}
            }
        }
        if path.split('/').count() > limits.depth {
            return refuse("lies too deep");
        }
        self.insert(path, kind, limits)?;
        Ok(path)
    }

    fn insert(&mut self, path: &str, kind: Kind, limits: &Limits) -> Result<(), ArchiveError> {
        for (at, _) in path.match_indices('/') {
            match self.0.get(&path[..at]) {
                Some(NameKind::File) => return Err(ArchiveError::refused(path, "lies in what is a file or a link")),
                Some(_) => {}
                // Bounds implied directories by the number of entries, so that deep names cannot multiply the memory.
                None if self.0.len() as u64 >= 2 * limits.entries => {
                    let why = format!("is one of more than {} files and directories", 2 * limits.entries);
                    return Err(ArchiveError::refused(path, &why));
                }
                None => {
                    self.0.insert(path[..at].to_owned(), NameKind::Implied);
                }
            }
        }
        let name_kind = if kind == Kind::Directory { NameKind::Directory } else { NameKind::File };
        match self.0.insert(path.to_owned(), name_kind) {
            None => Ok(()),
            Some(NameKind::Implied) if kind == Kind::Directory => Ok(()),
            Some(_) => Err(ArchiveError::refused(path, "is there twice")),
        }
    }
}
