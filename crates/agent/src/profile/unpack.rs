//! An archive of a profile, unpacked: all of it or nothing.
//!
//! Nothing it says is believed. Its sizes are counted while it is read, its names are checked before anything is made, and what is
//! neither a file nor a directory is refused.

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

/// The longest path of an entry, the longest part of one, and how many directories deep one may lie.
const MAX_BYTES: usize = 1024;
const MAX_PART: usize = 255;
const MAX_DEPTH: usize = 32;
/// What the decoder may keep of what came before, as a power of two; archives of ours need a quarter of that.
const WINDOW: u32 = 23;
/// The two empty blocks that every archive ends with.
const END: usize = 1024;
const CHUNK_BYTES: usize = 64 << 10;

/// An archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    /// It is cut, altered, or none.
    #[error("the profile's archive cannot be read: {0}")]
    Unreadable(io::Error),
    /// It holds what nobody should unpack.
    #[error("the profile's archive {0}")]
    Refused(String),
    /// Its content could not be written.
    #[error("the profile cannot be unpacked: {0}")]
    Io(io::Error),
}

/// How much an archive may hold.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Limits {
    pub(super) const DEFAULT: Self = Self { entries: MAX_PROFILE_ENTRIES, bytes: MAX_UNPACKED_BYTES };

    /// Of all that comes out of it: headers and the ends of blocks come on top of what the files have.
    fn in_all(self) -> u64 {
        self.bytes + self.entries * 1024
    }
}

/// Unpacks what of `archive` belongs to a profile into `target`, which is not there. What fails leaves nothing.
pub(super) fn unpack(archive: &File, limits: Limits, target: &Path) -> Result<(), UnpackError> {
    let unpacked = fs::DirBuilder::new().mode(0o700).create(target).map_err(UnpackError::Io);
    let unpacked = unpacked.and_then(|()| unpack_into(archive, limits, target));
    if unpacked.is_err()
        && let Err(error) = fs::remove_dir_all(target)
    {
        tracing::warn!(%error, "something is left of a profile that was not unpacked");
    }
    unpacked
}

fn unpack_into(archive: &File, limits: Limits, target: &Path) -> Result<(), UnpackError> {
    let mut decoder = Decoder::new(archive).map_err(UnpackError::Unreadable)?;
    decoder.window_log_max(WINDOW).map_err(UnpackError::Unreadable)?;
    let mut archive = tar::Archive::new(Counted { inner: decoder, came: 0, most: limits.in_all(), empty: 0 });
    let (mut entries, mut long_name) = (0, None);
    // Raw: a name that stands in an entry of its own is read here, within bounds.
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
    // To the end: only there its checksum stands.
    io::copy(&mut behind, &mut io::sink()).map_err(UnpackError::Unreadable)?;
    if behind.empty < END || long_name.is_some() {
        return Err(UnpackError::Unreadable(ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

/// What comes out of the decoder, counted: all of it, and of the empty bytes at its end as many as matter.
struct Counted<R> {
    inner: R,
    came: u64,
    most: u64,
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
        if self.came > self.most {
            return Err(io::Error::other(format!("more than {} bytes come out of it", self.most)));
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

/// The path that a name stands for: relative, of plain parts.
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
        return Err(unsafe_entry(name, "lies too deep"));
    }
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

/// Why one entry could not be made.
enum Fault {
    Reading(io::Error),
    Writing(io::Error),
}

impl Fault {
    fn of(self, name: &[u8]) -> UnpackError {
        match self {
            Self::Reading(error) => UnpackError::Unreadable(error),
            Self::Writing(error) => match error.kind() {
                ErrorKind::AlreadyExists => unsafe_entry(name, "is there twice"),
                ErrorKind::NotADirectory => unsafe_entry(name, "lies in what is a file"),
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
    // A name is somebody's input: as much of it as helps, and nothing that moves a terminal's cursor.
    let shown: String = String::from_utf8_lossy(name).chars().take(100).flat_map(char::escape_default).collect();
    refused(format!("has an entry {shown} that {why}"))
}
