//! Reads an archive entry by entry and checks each against the central directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use flate2::read::DeflateDecoder;
use rawzip::extra_fields::ExtraFieldId;
use rawzip::time::TimeZone;
use rawzip::{
    CompressionMethod, ErrorKind, FileReader, MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ZipArchive, ZipFileHeaderRecord,
};
use time::{Date, Month, PrimitiveDateTime, Time};

use crate::maker::Maker;
use crate::names::Names;
use crate::{ArchiveError, EntryRefusal, Limits, encoding, links};

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
    /// The path: relative, without `.` or `..`, unique in the archive, never below a file. It is UTF-8, unless a Unix
    /// made it otherwise.
    pub path: &'a Path,
    /// The kind.
    pub kind: Kind,
    /// The permission bits; `None` if the archive has none for this entry.
    pub permissions: Option<u32>,
    /// The declared size of the content, in bytes.
    pub size: u64,
    /// The time of the last change, in seconds since 1970, if it is valid. A time without a zone is taken as UTC.
    pub modified: Option<i64>,
}

impl Entry<'_> {
    /// Returns true if the owner may execute the file.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.permissions.is_some_and(|permissions| permissions & 0o100 != 0)
    }
}

/// The maximum length of the name and the extra field of a local header together, in bytes.
const MAX_LOCAL_NAME_AND_EXTRA: usize = 2 * (u16::MAX as usize);
/// The number of entries modulo which the end record counts without ZIP64. Some writers, such as macOS, write no ZIP64
/// record for more entries.
const COUNT_MODULUS: u64 = 1 << 16;
/// The folder of the files in which macOS stores attributes that other systems do not have.
const MACOS_METADATA: &[u8] = b"__MACOSX";

/// Calls `visit` with every entry of `archive` and its content, in the order of the directory. Reads the rest of the
/// content after `visit`, so that every size, checksum and name of the archive has been checked at the end.
///
/// # Errors
/// See [`ArchiveError`], and the errors of `visit`.
pub fn walk<E: From<ArchiveError>>(
    archive: File,
    limits: Limits,
    mut visit: impl FnMut(&Entry<'_>, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let archive = ZipArchive::from_file(archive, &mut buffer).map_err(unreadable)?;
    let mut bytes_left = limits.bytes;
    let mut local_buffer = vec![0; MAX_LOCAL_NAME_AND_EXTRA];
    each(&archive, &mut buffer, &limits, |entry, header| {
        let damaged = |why: String| ArchiveError::damaged(entry.path, &why);
        let size_mismatch = || damaged("has another size than it says".to_owned());
        if entry.size > bytes_left {
            return Err(too_large(&limits).into());
        }
        let declared = [header.compressed_size_hint(), header.uncompressed_size_hint()];
        let found = archive.get_entry(header.wayfinder()).map_err(unreadable)?;
        let local = found.local_header(&mut local_buffer).map_err(unreadable)?;
        // A streaming writer puts the sizes after the content and zeros before it. The sizes after the content are not
        // needed, because the directory has them too.
        let sizes_follow = header.flags().has_data_descriptor();
        let agrees = |(local, declared)| local == declared || sizes_follow && local == 0;
        if ![local.compressed_size_hint(), local.uncompressed_size_hint()].into_iter().zip(declared).all(agrees) {
            return Err(size_mismatch().into());
        }
        let compressed = found.reader();
        let plain = if header.compression_method() == CompressionMethod::STORE {
            Content::Stored(compressed)
        } else {
            Content::Deflated(DeflateDecoder::new(compressed))
        };
        let mut content = Counted { inner: found.verifying_reader(plain), bytes_left: &mut bytes_left, fault: None };
        let mut target = Vec::new();
        let visited = match entry.kind {
            Kind::Link => read_target(&mut content, &mut target),
            _ => visit(entry, &mut content),
        };
        let drained = if visited.is_ok() { io::copy(&mut content, &mut io::sink()) } else { Ok(0) };
        match (content.fault, visited) {
            (Some(Fault::TooLarge), _) => return Err(too_large(&limits).into()),
            (Some(Fault::Unreadable(why)), _) => return Err(damaged(format!("is damaged: {why}")).into()),
            (None, visited) => visited?,
        }
        drained.map_err(ArchiveError::Io)?;
        if content.inner.into_inner().bytes_read().is_some_and(|read| read != declared[0]) {
            return Err(size_mismatch().into());
        }
        if entry.kind == Kind::Link {
            links::check(entry.path, &target).map_err(|why| ArchiveError::entry(entry.path, why))?;
            visit(entry, &mut target.as_slice())?;
        }
        Ok(())
    })
}

fn read_target<E: From<ArchiveError>>(content: &mut dyn Read, target: &mut Vec<u8>) -> Result<(), E> {
    content.take(links::MAX_TARGET_BYTES + 1).read_to_end(target).map_err(ArchiveError::Io)?;
    Ok(())
}

/// Calls `visit` with every entry of `archive` without its content. Checks everything but the contents and the targets
/// of links.
///
/// # Errors
/// See [`ArchiveError`], and the errors of `visit`.
pub fn list<E: From<ArchiveError>>(
    archive: File,
    limits: Limits,
    mut visit: impl FnMut(&Entry<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
    let archive = ZipArchive::from_file(archive, &mut buffer).map_err(unreadable)?;
    each(&archive, &mut buffer, &limits, |entry, _| visit(entry))
}

/// Calls `visit` with every entry that is to be unpacked.
fn each<E: From<ArchiveError>>(
    archive: &ZipArchive<FileReader>,
    buffer: &mut [u8],
    limits: &Limits,
    mut visit: impl FnMut(&Entry<'_>, &ZipFileHeaderRecord<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let expected = archive.entries_hint();
    if expected > limits.entries {
        return Err(too_many(limits).into());
    }
    let (mut names, mut count) = (Names::default(), 0);
    let mut entries = archive.entries(buffer);
    while let Some(header) = entries.next_entry().map_err(unreadable)? {
        count += 1;
        if count > limits.entries {
            return Err(too_many(limits).into());
        }
        let raw = Path::new(OsStr::from_bytes(header.file_path().as_bytes()));
        let refused = |why| ArchiveError::entry(raw, why);
        let maker = Maker::of(&header);
        let name = encoding::name(&header, maker).map_err(refused)?;
        let refused = |why| ArchiveError::entry(Path::new(OsStr::from_bytes(&name)), why);
        let (kind, permissions) = maker.attributes(&name, header.external_attributes()).map_err(refused)?;
        let path = names.admit(&name, maker, kind, limits).map_err(refused)?;
        check(&header, kind, limits).map_err(refused)?;
        if path.is_empty() || is_macos_metadata(&path, kind) {
            continue;
        }
        let size = header.uncompressed_size_hint();
        let path = Path::new(OsStr::from_bytes(&path));
        visit(&Entry { path, kind, permissions, size, modified: modified(&header) }, &header)?;
    }
    let is_complete = count == expected || expected < COUNT_MODULUS && count % COUNT_MODULUS == expected;
    if !is_complete {
        return Err(ArchiveError::Unreadable(format!("{count} entries instead of {expected}")).into());
    }
    Ok(())
}

/// Checks what does not depend on the name.
fn check(header: &ZipFileHeaderRecord<'_>, kind: Kind, limits: &Limits) -> Result<(), EntryRefusal> {
    let (flags, method) = (header.flags(), header.compression_method());
    if flags.is_encrypted() || flags.has_strong_encryption() || flags.is_masked() {
        return Err(EntryRefusal::Encrypted);
    }
    if !matches!(method, CompressionMethod::STORE | CompressionMethod::DEFLATE) {
        return Err(EntryRefusal::Compression(method.as_u16()));
    }
    match kind {
        Kind::Directory if header.uncompressed_size_hint() != 0 => Err(EntryRefusal::DirectoryContent),
        Kind::Link if !limits.links => Err(EntryRefusal::Link),
        Kind::Link if header.uncompressed_size_hint() > links::MAX_TARGET_BYTES => Err(EntryRefusal::LinkTooLong),
        _ => Ok(()),
    }
}

/// Returns true for the entries that macOS adds for attributes and resource forks: the files `._*` in the folder
/// `__MACOSX`, and the directories there.
fn is_macos_metadata(path: &[u8], kind: Kind) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    let in_folder = parts.next() == Some(MACOS_METADATA);
    in_folder && (kind == Kind::Directory || parts.next_back().is_some_and(|name| name.starts_with(b"._")))
}

fn modified(header: &ZipFileHeaderRecord<'_>) -> Option<i64> {
    // Signed, as Info-ZIP defines the field; `rawzip` takes a time before 1970 as one after 2106.
    let mut fields = header.extra_fields().filter(|(id, _)| *id == ExtraFieldId::EXTENDED_TIMESTAMP);
    if let Some((_, [flags, a, b, c, d, ..])) = fields.next()
        && flags & 1 != 0
    {
        return Some(i32::from_le_bytes([*a, *b, *c, *d]).into());
    }
    let time = header.last_modified();
    // Some streaming writers have no time at all: the month and the day are 0.
    if time.timezone() == TimeZone::Local && header.last_modified_dos().packed_date() == 0 {
        return None;
    }
    let month = Month::try_from(time.month()).ok()?;
    let date = Date::from_calendar_date(time.year().into(), month, time.day()).ok()?;
    let time = Time::from_hms(time.hour(), time.minute(), time.second()).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp())
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
