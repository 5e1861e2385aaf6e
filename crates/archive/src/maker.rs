//! The kind and the permissions of an entry, which depend on the system that made it.

use rawzip::{CreatorSystem, ZipFileHeaderRecord};

use crate::{EntryRefusal, Kind};

/// The kind of system that made an entry, according to its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    /// DOS or Windows, and programs that do not say where they run, as Java's and Go's without a file.
    Dos,
    /// A Unix, with macOS.
    Unix,
    /// Another system, whose attributes have no meaning here; and git, which states version 0.0.
    Other,
}

/// The bits of a Unix mode that encode the kind.
const KIND_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// The DOS attribute of directories.
const DOS_DIRECTORY: u32 = 0x10;
/// OS/2, whose attributes are those of DOS.
const OS_2: CreatorSystem = CreatorSystem::new(6);

impl Maker {
    pub(crate) fn of(header: &ZipFileHeaderRecord<'_>) -> Self {
        let made_by = header.version_made_by();
        match made_by.creator_system() {
            CreatorSystem::FAT if made_by.zip_version() == 0 => Self::Other,
            CreatorSystem::UNIX | CreatorSystem::MACOS => Self::Unix,
            CreatorSystem::FAT | OS_2 | CreatorSystem::NTFS | CreatorSystem::MVS | CreatorSystem::VFAT => Self::Dos,
            _ => Self::Other,
        }
    }

    /// Returns the kind of an entry with a decoded name and its permissions, if it has any.
    pub(crate) fn attributes(self, name: &[u8], attributes: u32) -> Result<(Kind, Option<u32>), EntryRefusal> {
        let named = match name.rsplit(|byte| *byte == b'/').next() {
            Some(b"" | b".") => Kind::Directory,
            _ => Kind::File,
        };
        let by_dos = if attributes & DOS_DIRECTORY == 0 { named } else { Kind::Directory };
        match self {
            Self::Dos => Ok((by_dos, None)),
            Self::Other => Ok((named, None)),
            Self::Unix => {
                let mode = attributes >> 16;
                let kind = match mode & KIND_MASK {
                    0 => by_dos,
                    DIRECTORY => Kind::Directory,
                    REGULAR => named,
                    LINK if named == Kind::File => Kind::Link,
                    _ => return Err(EntryRefusal::SpecialFile),
                };
                Ok((kind, Some(mode & 0o777).filter(|permissions| *permissions != 0)))
            }
        }
    }
}
