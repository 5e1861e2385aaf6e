//! Which names an archive's entries may have.

use std::collections::HashMap;

use crate::walk::Kind;
use crate::{ArchiveError, Limits};

/// The longest path of an entry, in bytes.
const MAX_BYTES: usize = 1024;
/// The longest part of it: no file system takes a longer one.
const MAX_PART: usize = 255;

/// The names that came by now.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, Seen>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Or a link.
    File,
    Directory,
    /// A directory that only stands in the names of others.
    Implied,
}

impl Names {
    /// The path of an entry, relative and without a slash at its end, if it may be unpacked beside those before it.
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
        self.note(path, kind, limits)?;
        Ok(path)
    }

    fn note(&mut self, path: &str, kind: Kind, limits: &Limits) -> Result<(), ArchiveError> {
        for (at, _) in path.match_indices('/') {
            match self.0.get(&path[..at]) {
                Some(Seen::File) => return Err(ArchiveError::refused(path, "lies in what is a file or a link")),
                Some(_) => {}
                // As many again as there may be entries: no name costs more than its own length.
                None if self.0.len() as u64 >= 2 * limits.entries => {
                    let why = format!("is one of more than {} files and directories", 2 * limits.entries);
                    return Err(ArchiveError::refused(path, &why));
                }
                None => {
                    self.0.insert(path[..at].to_owned(), Seen::Implied);
                }
            }
        }
        let seen = if kind == Kind::Directory { Seen::Directory } else { Seen::File };
        match self.0.insert(path.to_owned(), seen) {
            None => Ok(()),
            Some(Seen::Implied) if kind == Kind::Directory => Ok(()),
            Some(_) => Err(ArchiveError::refused(path, "is there twice")),
        }
    }
}
