//! Checks the names of an archive's entries.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use crate::maker::Maker;
use crate::refusal::MAX_PART_BYTES;
use crate::{EntryRefusal, Kind, Limits};

/// The names of the entries that were read so far, as keyed hashes, so that long names take no more memory than short
/// ones.
#[derive(Debug, Default)]
pub(crate) struct Names {
    kinds: HashMap<u64, NameKind>,
    hasher: RandomState,
}

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
    /// entries. The path is empty for the directory of the archive itself.
    pub(crate) fn admit(
        &mut self,
        name: &[u8],
        maker: Maker,
        kind: Kind,
        limits: &Limits,
    ) -> Result<Vec<u8>, EntryRefusal> {
        if name.contains(&0) {
            return Err(EntryRefusal::Nul);
        }
        if is_absolute(name, maker) {
            return Err(EntryRefusal::Absolute);
        }
        let mut path = Vec::new();
        let mut depth = 0;
        for part in name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
            // A backslash belongs to the name here, but who unpacks the archive on another system must be safe too.
            if part.split(|byte| *byte == b'\\').any(|part| part == b"..") {
                return Err(EntryRefusal::LeavesArchive);
            }
            if part.len() > MAX_PART_BYTES {
                return Err(EntryRefusal::TooLong(limits.path_bytes));
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
            depth += 1;
        }
        if path.len() > limits.path_bytes {
            return Err(EntryRefusal::TooLong(limits.path_bytes));
        }
        if depth > limits.depth {
            return Err(EntryRefusal::TooDeep(limits.depth));
        }
        match (path.is_empty(), kind) {
            (true, Kind::Directory) => {}
            (true, _) => return Err(EntryRefusal::NoName),
            (false, _) => self.insert(&path, kind, limits)?,
        }
        Ok(path)
    }

    fn insert(&mut self, path: &[u8], kind: Kind, limits: &Limits) -> Result<(), EntryRefusal> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends {
            let above = self.hasher.hash_one(&path[..end]);
            match self.kinds.get(&above) {
                Some(NameKind::File) => return Err(EntryRefusal::BelowFile),
                Some(_) => {}
                // Bounds implied directories by the number of entries, so that deep names cannot multiply the memory.
                None if self.kinds.len() as u64 >= 2 * limits.entries => {
                    return Err(EntryRefusal::TooManyNames(2 * limits.entries));
                }
                None => {
                    self.kinds.insert(above, NameKind::Implied);
                }
            }
        }
        let name_kind = if kind == Kind::Directory { NameKind::Directory } else { NameKind::File };
        match self.kinds.insert(self.hasher.hash_one(path), name_kind) {
            None => Ok(()),
            Some(NameKind::Implied) if kind == Kind::Directory => Ok(()),
            Some(_) => Err(EntryRefusal::Duplicate),
        }
    }
}

/// Returns true for a name that begins at the root, at a drive or at a network share.
fn is_absolute(name: &[u8], maker: Maker) -> bool {
    let has_drive = name.first().is_some_and(u8::is_ascii_alphabetic) && name.get(1) == Some(&b':');
    name.starts_with(b"/") || has_drive && (maker == Maker::Dos || matches!(name.get(2), Some(b'/' | b'\\')))
}
