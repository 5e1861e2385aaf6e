//! Going through an archive, entry by entry.

use std::fs::File;
use std::io::{self, Read};

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, ErrorKind, MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ZipArchive};

use crate::names::Names;
use crate::{ArchiveError, Limits, links};

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to something in the same archive; its content is where it leads. Only where [`Limits::links`] says so.
    Link,
}

/// One entry.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its path: relative, of plain parts, unlike all others of the archive, and never below a file.
    pub path: &'a str,
    /// What it is.
    pub kind: Kind,
    /// Whether it says of itself that it can be executed.
    pub executable: bool,
    /// The permission bits it says it had, or what stands for them.
    pub permissions: u32,
}

/// The kinds in a Unix mode.
const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// The longest name of a local header with the longest of what stands beside it.
const MAX_LOCAL_NAME_AND_EXTRA: usize = 2 * (u16::MAX as usize);

/// Shows every entry of `archive` with its content to `visit`, in the archive's order. What is not read of a content is read after
/// it, so that an archive that was walked through is whole: every size, checksum and name of it.
///
/// # Errors
/// See [`ArchiveError`]; those of `visit` are [`ArchiveError::Io`].
pub fn walk(
    archive: File,
    limits: Limits,
    mut visit: impl FnMut(&Entry<'_>, &mut dyn Read) -> io::Result<()>,
) -> Result<(), ArchiveError> {
    let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let archive = ZipArchive::from_file(archive, &mut buffer).map_err(unreadable)?;
    let expected = archive.entries_hint();
    if expected > limits.entries {
        return Err(too_many(&limits));
    }
    let (mut names, mut count, mut room) = (Names::default(), 0, limits.bytes);
    let mut local_buffer = vec![0; MAX_LOCAL_NAME_AND_EXTRA];
    let mut entries = archive.entries(&mut buffer);
    while let Some(header) = entries.next_entry().map_err(unreadable)? {
        count += 1;
        if count > limits.entries {
            return Err(too_many(&limits));
        }
        let raw = header.file_path();
        let mode = header.mode().value();
        let kind = match mode & KIND {
            LINK if limits.links => Kind::Link,
            _ if header.is_dir() => Kind::Directory,
            _ => Kind::File,
        };
        let path = names.admit(raw.as_bytes(), kind, &limits)?;
        let (flags, method) = (header.flags(), header.compression_method());
        if flags.is_encrypted() || flags.has_strong_encryption() || flags.is_masked() {
            return Err(ArchiveError::refused(path, "is encrypted"));
        }
        let wanted = match kind {
            Kind::Directory => DIRECTORY,
            Kind::File => REGULAR,
            Kind::Link => LINK,
        };
        if mode & KIND != 0 && mode & KIND != wanted {
            return Err(ArchiveError::refused(path, "is neither a file nor a directory"));
        }
        if header.uncompressed_size_hint() > room {
            return Err(too_large(&limits));
        }
        let permissions = header.mode().permissions();
        let entry = Entry { path, kind, executable: permissions & 0o100 != 0, permissions };
        let said = [header.compressed_size_hint(), header.uncompressed_size_hint()];
        let found = archive.get_entry(header.wayfinder()).map_err(unreadable)?;
        let local = found.local_header(&mut local_buffer).map_err(unreadable)?;
        // Who writes without going back tells the sizes behind the content, and nothing before it.
        let may_be_silent = flags.has_data_descriptor();
        let agrees = |(local, said)| local == said || may_be_silent && local == 0;
        if ![local.compressed_size_hint(), local.uncompressed_size_hint()].into_iter().zip(said).all(agrees) {
            return Err(ArchiveError::other_size(path));
        }
        let compressed = found.reader();
        let plain = match method {
            CompressionMethod::STORE => Plain::Stored(compressed),
            CompressionMethod::DEFLATE => Plain::Deflated(DeflateDecoder::new(compressed)),
            _ => return Err(ArchiveError::refused(path, "is compressed in an unusual way")),
        };
        let mut content = Counted { inner: found.verifying_reader(plain), room: &mut room, fault: None };
        let mut target = Vec::new();
        let visited = match kind {
            Kind::Link => (&mut content).take(links::LONGEST + 1).read_to_end(&mut target).map(drop),
            _ => visit(&entry, &mut content),
        };
        let visited = visited.and_then(|()| io::copy(&mut content, &mut io::sink()).map(drop));
        match (content.fault, visited) {
            (Some(Fault::TooLarge), _) => return Err(too_large(&limits)),
            (Some(Fault::Unreadable(why)), _) => return Err(ArchiveError::Unreadable(why)),
            (None, visited) => visited?,
        }
        if content.inner.into_inner().took().is_some_and(|took| took != said[0]) {
            return Err(ArchiveError::other_size(path));
        }
        if kind == Kind::Link {
            links::check(path, &target)?;
            visit(&entry, &mut target.as_slice())?;
        }
    }
    if count != expected {
        return Err(ArchiveError::Unreadable(format!("{count} entries instead of {expected}")));
    }
    Ok(())
}

/// What comes out of an entry.
enum Plain<R> {
    Stored(R),
    Deflated(DeflateDecoder<R>),
}

impl<R> Plain<R> {
    /// How many bytes of the archive it was, where what comes out does not say it.
    fn took(&self) -> Option<u64> {
        match self {
            Self::Stored(_) => None,
            Self::Deflated(decoder) => Some(decoder.total_in()),
        }
    }
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(stored) => stored.read(buffer),
            Self::Deflated(decoder) => decoder.read(buffer),
        }
    }
}

/// What comes out of an entry, counted. Its own faults are kept apart from those of whoever reads it.
struct Counted<'a, R> {
    inner: R,
    room: &'a mut u64,
    fault: Option<Fault>,
}

enum Fault {
    TooLarge,
    Unreadable(String),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.inner.read(buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                self.fault = Some(Fault::Unreadable(error.to_string()));
                return Err(error);
            }
        };
        match self.room.checked_sub(read as u64) {
            Some(left) => {
                *self.room = left;
                Ok(read)
            }
            None => {
                self.fault = Some(Fault::TooLarge);
                Err(io::Error::other("more than the archive may hold"))
            }
        }
    }
}

fn unreadable(error: rawzip::Error) -> ArchiveError {
    match error.into_kind() {
        ErrorKind::IO(error) if error.kind() != io::ErrorKind::UnexpectedEof => ArchiveError::Io(error),
        kind => ArchiveError::Unreadable(kind.to_string()),
    }
}

fn too_many(limits: &Limits) -> ArchiveError {
    ArchiveError::Refused(format!("the archive has more than {} entries", limits.entries))
}

fn too_large(limits: &Limits) -> ArchiveError {
    ArchiveError::Refused(format!("the archive holds more than {} bytes unpacked", limits.bytes))
}
