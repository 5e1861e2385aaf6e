//! Unpacks the archive of a profile, completely or not at all.
//!
//! The archive is not trusted. Its sizes are counted while it is read, its names are checked before anything is
//! created, and an entry that is neither a file nor a directory is refused.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tar::{Entry, EntryType};
use zstd::stream::read::Decoder;

use super::keep::is_saved;
use casement_agent_protocol::profile::{MAX_PROFILE_ENTRIES, MAX_UNPACKED_BYTES};

/// The maximum length of an entry's path and of a part of it, in bytes, and the maximum number of its parts.
const MAX_BYTES: usize = 1024;
const MAX_PART: usize = 255;
const MAX_DEPTH: usize = 32;
/// The maximum window of the decoder, as a power of two. The agent's own archives need a quarter of that.
const WINDOW: u32 = 23;
/// The bytes of the two empty blocks that end every archive.
const END: usize = 1024;
const CHUNK_BYTES: usize = 64 << 10;

/// The reason why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    /// The archive is truncated, altered, or no archive.
    #[error("the profile's archive cannot be read: {0}")]
    Unreadable(io::Error),
    /// The archive exceeds a limit or has an unsafe entry.
    #[error("the profile's archive {0}")]
    Refused(String),
    /// The content of the archive could not be written.
    #[error("the profile cannot be unpacked: {0}")]
    Io(io::Error),
}

/// The limits of an archive's content.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Limits {
    pub(super) const DEFAULT: Self = Self { entries: MAX_PROFILE_ENTRIES, bytes: MAX_UNPACKED_BYTES };

    /// Returns the maximum number of decompressed bytes, which include the headers and the padding of the entries.
    fn in_all(self) -> u64 {
        self.bytes + self.entries * 1024
    }
}

/// Unpacks the entries of `archive` that belong to a profile into `target`, which must not exist. A failure leaves
/// nothing behind.
pub(super) fn unpack(archive: &File, limits: Limits, target: &Path) -> Result<(), UnpackError> {
    let unpacked = fs::DirBuilder::new().mode(0o700).create(target).map_err(UnpackError::Io);
    let unpacked = unpacked.and_then(|()| unpack_into(archive, limits, target));
    if unpacked.is_err()
        && let Err(error) = fs::remove_dir_all(target)
    {
        tracing::warn!(%error, "cannot remove a partly unpacked profile");
    }
    unpacked
}

fn unpack_into(archive: &File, limits: Limits, target: &Path) -> Result<(), UnpackError> {
    let mut decoder = Decoder::new(archive).map_err(UnpackError::Unreadable)?;
    decoder.window_log_max(WINDOW).map_err(UnpackError::Unreadable)?;
    let mut archive = tar::Archive::new(Counted { inner: decoder, came: 0, max: limits.in_all(), empty: 0 });
    let (mut entries, mut long_name) = (0, None);
    // Raw, so that a name in an entry of its own is read here, within bounds.
    for entry in archive.entries().map_err(UnpackError::Unreadable)?.raw(true) {
        let mut entry = entry.map_err(UnpackError::Unreadable)?;
        entries += 1;
        if entries > limits.entries {
            return Err(refused(format!("has more than {} entries", limits.entries)));
        }
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() && long_name.is_none() {
            long_name = Some(read_name(&mut entry)?);
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| entry.header().path_bytes().into_owned());
        let path = checked(&name)?;
        if !matches!(kind, EntryType::Regular | EntryType::Directory) {
            return Err(unsafe_entry(&name, "is neither a file nor a directory"));
        }
        if is_saved(&path) {
            let made = if kind.is_dir() { make(&target.join(&path)) } else { write(&mut entry, &target.join(&path)) };
            made.map_err(|fault| fault.of(&name))?;
        }
    }
    let mut behind = archive.into_inner();
    // Read to the end, where the checksum is.
    io::copy(&mut behind, &mut io::sink()).map_err(UnpackError::Unreadable)?;
    if behind.empty < END || long_name.is_some() {
        return Err(UnpackError::Unreadable(ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

/// The output of the decoder, with the number of its bytes, and of the empty bytes at its end up to `END`.
struct Counted<R> {
    inner: R,
    came: u64,
    max: u64,
    empty: usize,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.came += read as u64;
        let last = &buffer[read.saturating_sub(END)..read];
        self.empty = match last.iter().rposition(|byte| *byte != 0) {
            None => END.min(self.empty + last.len()),
            Some(at) => last.len() - 1 - at,
        };
        if self.came > self.max {
            return Err(io::Error::other(format!("more than {} bytes come out of it", self.max)));
        }
        Ok(read)
    }
}

fn read_name(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, UnpackError> {
    let mut name = Vec::new();
    entry.take(MAX_BYTES as u64 + 2).read_to_end(&mut name).map_err(UnpackError::Unreadable)?;
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// Returns the path of a name, which must be relative and have plain parts only.
fn checked(name: &[u8]) -> Result<PathBuf, UnpackError> {
    let path = name.strip_suffix(b"/").unwrap_or(name);
    if path.len() > MAX_BYTES {
        return Err(unsafe_entry(name, "has too long a name"));
    }
    let mut parts = 0;
    for part in path.split(|byte| *byte == b'/') {
        parts += 1;
        match part {
            b"" | b"." => return Err(unsafe_entry(name, "has an absolute name or an empty part in it")),
            b".." => return Err(unsafe_entry(name, "leads out of the archive")),
            _ if part.contains(&0) => return Err(unsafe_entry(name, "has a NUL in its name")),
            _ if part.len() > MAX_PART => return Err(unsafe_entry(name, "has too long a name")),
            _ => {}
        }
    }
    if parts > MAX_DEPTH {
        return Err(unsafe_entry(name, "is nested too deeply"));
    }
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

/// The reason why one entry could not be created.
enum Fault {
    Reading(io::Error),
    Writing(io::Error),
}

impl Fault {
    fn of(self, name: &[u8]) -> UnpackError {
        match self {
            Self::Reading(error) => UnpackError::Unreadable(error),
            Self::Writing(error) => match error.kind() {
                ErrorKind::AlreadyExists => unsafe_entry(name, "appears twice"),
                ErrorKind::NotADirectory => unsafe_entry(name, "has a file as its parent"),
                _ => UnpackError::Io(error),
            },
        }
    }
}

fn make(path: &Path) -> Result<(), Fault> {
    let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(path);
    made.map_err(Fault::Writing)
}

fn write(entry: &mut Entry<'_, impl Read>, path: &Path) -> Result<(), Fault> {
    if let Some(parent) = path.parent() {
        make(parent)?;
    }
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(Fault::Writing)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut left = entry.size();
    loop {
        match entry.read(&mut buffer).map_err(Fault::Reading)? {
            0 if left == 0 => return Ok(()),
            0 => return Err(Fault::Reading(ErrorKind::UnexpectedEof.into())),
            read => {
                file.write_all(&buffer[..read]).map_err(Fault::Writing)?;
                left -= read as u64;
            }
        }
    }
}

fn refused(why: String) -> UnpackError {
    UnpackError::Refused(why)
}

fn unsafe_entry(name: &[u8], why: &str) -> UnpackError {
    // A name is untrusted input: it is shortened, and control characters are escaped.
    let shown: String = String::from_utf8_lossy(name).chars().take(100).flat_map(char::escape_default).collect();
    refused(format!("has an entry {shown} that {why}"))
}
