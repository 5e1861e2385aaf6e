//! Reads an archive entry by entry and checks each against the central directory.

use std::fs::File;
use std::io::{self, Read};

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, ErrorKind, MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ZipArchive};

use crate::names::Names;
use crate::{ArchiveError, Limits, links};

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to an entry of the same archive; the content is the target. Only with [`Limits::links`].
    Link,
}

/// An entry of an archive.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The path: relative, without `.` or `..`, unique in the archive, never below a file.
    pub path: &'a str,
    /// The kind.
    pub kind: Kind,
    /// True if the owner may execute the file.
    pub executable: bool,
    /// The permission bits, derived from the DOS attributes if the entry has no Unix mode.
    pub permissions: u32,
}

/// The bits of a Unix mode that encode the kind.
const KIND_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// The maximum length of the name and the extra field of a local header together, in bytes.
const MAX_LOCAL_NAME_AND_EXTRA: usize = 2 * (u16::MAX as usize);

/// Calls `visit` with every entry of `archive` and its content, in the order of the directory. Reads the rest of the
/// content after `visit`, so that every size, checksum and name of the archive has been checked at the end.
///
/// # Errors
/// See [`ArchiveError`]; errors of `visit` are [`ArchiveError::Io`].
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
    let (mut names, mut count, mut bytes_left) = (Names::default(), 0, limits.bytes);
    let mut local_buffer = vec![0; MAX_LOCAL_NAME_AND_EXTRA];
    let mut entries = archive.entries(&mut buffer);
    while let Some(header) = entries.next_entry().map_err(unreadable)? {
        count += 1;
        if count > limits.entries {
            return Err(too_many(&limits));
        }
        let raw = header.file_path();
        let mode = header.mode().value();
        let kind = match mode & KIND_MASK {
            LINK if limits.links => Kind::Link,
            _ if header.is_dir() => Kind::Directory,
            _ => Kind::File,
        };
        let path = names.admit(raw.as_bytes(), kind, &limits)?;
        let (flags, method) = (header.flags(), header.compression_method());
        if flags.is_encrypted() || flags.has_strong_encryption() || flags.is_masked() {
            return Err(ArchiveError::refused(path, "is encrypted"));
        }
        let expected_kind = match kind {
            Kind::Directory => DIRECTORY,
            Kind::File => REGULAR,
            Kind::Link => LINK,
        };
        if mode & KIND_MASK != 0 && mode & KIND_MASK != expected_kind {
            return Err(ArchiveError::refused(path, "is neither a file nor a directory"));
        }
        if header.uncompressed_size_hint() > bytes_left {
            return Err(too_large(&limits));
        }
        let permissions = header.mode().permissions();
        let entry = Entry { path, kind, executable: permissions & 0o100 != 0, permissions };
        let declared = [header.compressed_size_hint(), header.uncompressed_size_hint()];
        let found = archive.get_entry(header.wayfinder()).map_err(unreadable)?;
        let local = found.local_header(&mut local_buffer).map_err(unreadable)?;
        // A streaming writer puts the sizes after the content and zeros before it.
        let sizes_follow = flags.has_data_descriptor();
        let agrees = |(local, declared)| local == declared || sizes_follow && local == 0;
        if ![local.compressed_size_hint(), local.uncompressed_size_hint()].into_iter().zip(declared).all(agrees) {
            return Err(ArchiveError::size_mismatch(path));
        }
        let compressed = found.reader();
        let plain = match method {
            CompressionMethod::STORE => Content::Stored(compressed),
            CompressionMethod::DEFLATE => Content::Deflated(DeflateDecoder::new(compressed)),
            _ => return Err(ArchiveError::refused(path, "is compressed in an unusual way")),
        };
        let mut content = Counted { inner: found.verifying_reader(plain), bytes_left: &mut bytes_left, fault: None };
        let mut target = Vec::new();
        let visited = match kind {
            Kind::Link => (&mut content).take(links::MAX_TARGET + 1).read_to_end(&mut target).map(drop),
            _ => visit(&entry, &mut content),
        };
        let visited = visited.and_then(|()| io::copy(&mut content, &mut io::sink()).map(drop));
        match (content.fault, visited) {
            (Some(Fault::TooLarge), _) => return Err(too_large(&limits)),
            (Some(Fault::Unreadable(why)), _) => return Err(ArchiveError::Unreadable(why)),
            (None, visited) => visited?,
        }
        if content.inner.into_inner().bytes_read().is_some_and(|read| read != declared[0]) {
            return Err(ArchiveError::size_mismatch(path));
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

/// The content of an entry.
enum Content<R> {
    Stored(R),
    Deflated(DeflateDecoder<R>),
}

impl<R> Content<R> {
    /// Returns the number of bytes of the archive that were read, if it differs from the length of the content.
    fn bytes_read(&self) -> Option<u64> {
        match self {
            Self::Stored(_) => None,
            Self::Deflated(decoder) => Some(decoder.total_in()),
        }
    }
}

impl<R: Read> Read for Content<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(stored) => stored.read(buffer),
            Self::Deflated(decoder) => decoder.read(buffer),
        }
    }
}

/// Counts the content of an entry. Stores faults of the content, to distinguish them from errors of `visit`.
struct Counted<'a, R> {
    inner: R,
    bytes_left: &'a mut u64,
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
        match self.bytes_left.checked_sub(read as u64) {
            Some(left) => {
                *self.bytes_left = left;
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
