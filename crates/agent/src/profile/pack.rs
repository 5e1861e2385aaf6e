//! Packs a profile into an archive while it is sent. Only one piece of it is in memory.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags, open, openat};
use rustix::io::Errno;
use tar::{EntryType, Header};
use zstd::stream::write::Encoder;

use super::keep::is_saved;
use crate::fs::{Found, Make, Walk};
use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::profile::{MAX_PROFILE_ENTRIES, MAX_UNPACKED_BYTES};

/// The size from which on a piece is sent, in bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// The bytes read from a file at a time.
const READ: usize = 128 << 10;
/// The compression level. It is as fast as a disk; the next levels save a few percent and take twice as long.
const LEVEL: i32 = 3;
const BLOCK: usize = 512;
/// The maximum length of a name in an entry's own header, in bytes. A longer name is in an entry before it.
const NAME: usize = 100;

/// An archive that is being packed.
pub(super) struct Archive {
    walk: Walk,
    stage: Stage,
    encoder: Encoder<'static, Vec<u8>>,
    buffer: Box<[u8]>,
}

enum Stage {
    Next,
    /// Within a file: `left` of the `length` bytes in its header are not packed yet.
    Content {
        file: File,
        length: u64,
        left: u64,
    },
    Done,
}

impl Archive {
    /// Starts to pack the user data at `profile`, which must not change any more. The user data is measured first, so
    /// that it is refused before anything is sent if it is too large.
    pub(super) fn of(profile: &Path) -> Result<Self, Refusal> {
        let unreadable = |error: io::Error| {
            Refusal::new(ErrorCode::Internal, format_args!("the browser's user data cannot be read: {error}"))
        };
        measure(walk(profile).map_err(unreadable)?)?;
        let walk = walk(profile).map_err(unreadable)?;
        let mut encoder = Encoder::new(Vec::new(), LEVEL).map_err(unreadable)?;
        encoder.include_checksum(true).map_err(unreadable)?;
        Ok(Self { walk, stage: Stage::Next, encoder, buffer: vec![0; READ].into() })
    }

    fn step(&mut self) -> io::Result<()> {
        self.stage = match mem::replace(&mut self.stage, Stage::Done) {
            Stage::Next => match next_buffered(&mut self.walk) {
                Some(found) => self.begin(&found)?,
                None => self.behind()?,
            },
            Stage::Content { file, length, left } => self.content(file, length, left)?,
            Stage::Done => Stage::Done,
        };
        Ok(())
    }

    fn begin(&mut self, found: &Found) -> io::Result<Stage> {
        let mut header = Header::new_gnu();
        header.set_mtime(u64::try_from(found.stat.st_mtime).unwrap_or_default());
        if is_directory(found) {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(0o700);
            self.head(header, 0)?;
            return Ok(Stage::Next);
        }
        let Some((directory, name)) = self.walk.spot() else { return Ok(Stage::Next) };
        // The file may have been replaced by a FIFO or a link, which is neither waited for, followed nor read.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::LOOP) => return Ok(Stage::Next),
            Err(error) => return Err(error.into()),
        };
        let now = file.metadata()?;
        if !now.is_file() {
            return Ok(Stage::Next);
        }
        header.set_mode(0o600);
        self.head(header, now.len())?;
        Ok(Stage::Content { file, length: now.len(), left: now.len() })
    }

    /// Writes the header of the walk's current entry.
    fn head(&mut self, mut header: Header, size: u64) -> io::Result<()> {
        let mut name = self.walk.path().as_os_str().as_bytes().to_vec();
        if header.entry_type() == EntryType::Directory {
            name.push(b'/');
        }
        if name.len() > NAME {
            let mut long = Header::new_gnu();
            long.set_entry_type(EntryType::GNULongName);
            name_field(&mut long, b"././@LongLink");
            name.push(0);
            long.set_size(name.len() as u64);
            long.set_cksum();
            self.encoder.write_all(long.as_bytes())?;
            self.encoder.write_all(&name)?;
            self.pad(name.len() as u64)?;
        }
        name_field(&mut header, &name[..name.len().min(NAME)]);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(size);
        header.set_cksum();
        self.encoder.write_all(header.as_bytes())
    }

    fn content(&mut self, mut file: File, length: u64, left: u64) -> io::Result<Stage> {
        let max = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
        let read = file.read(&mut self.buffer[..max])?;
        self.encoder.write_all(&self.buffer[..read])?;
        if left == read as u64 {
            self.pad(length)?;
            return Ok(Stage::Next);
        }
        if read == 0 {
            return Err(io::Error::other("a file became shorter while it was packed"));
        }
        Ok(Stage::Content { file, length, left: left - read as u64 })
    }

    /// Pads the last block of `length` bytes.
    fn pad(&mut self, length: u64) -> io::Result<()> {
        let over = usize::try_from(length % BLOCK as u64).unwrap_or_default();
        self.encoder.write_all(&[0; BLOCK][..(BLOCK - over) % BLOCK])
    }

    fn behind(&mut self) -> io::Result<Stage> {
        if self.walk.is_too_deep() || self.walk.is_too_wide() {
            return Err(io::Error::other("the user data lie too deep, or too many in one place"));
        }
        self.encoder.write_all(&[0; 2 * BLOCK])?;
        self.encoder.do_finish()?;
        Ok(Stage::Done)
    }
}

impl Make for Archive {
    fn make(&mut self) -> io::Result<Option<Bytes>> {
        while self.encoder.get_ref().len() < CHUNK_BYTES && !matches!(self.stage, Stage::Done) {
            self.step()?;
        }
        let piece = mem::take(self.encoder.get_mut());
        Ok((!piece.is_empty()).then(|| piece.into()))
    }
}

/// Writes a name that fits into the field of a header.
fn name_field(header: &mut Header, name: &[u8]) {
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
}

fn walk(profile: &Path) -> io::Result<Walk> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Walk::new(open(profile, flags, Mode::empty())?, profile.to_owned())
}

/// Returns the next file or directory that is saved.
fn next_buffered(walk: &mut Walk) -> Option<Found> {
    loop {
        let found = walk.next()?;
        let plain = is_directory(&found) || FileType::from_raw_mode(found.stat.st_mode) == FileType::RegularFile;
        if plain && is_saved(walk.path()) {
            return Some(found);
        }
        walk.skip();
    }
}

fn is_directory(found: &Found) -> bool {
    FileType::from_raw_mode(found.stat.st_mode) == FileType::Directory
}

fn measure(mut walk: Walk) -> Result<(), Refusal> {
    let (mut entries, mut bytes) = (0, 0_u64);
    while let Some(found) = next_buffered(&mut walk) {
        entries += 1;
        if !is_directory(&found) {
            bytes = bytes.saturating_add(u64::try_from(found.stat.st_size).unwrap_or_default());
        }
        if entries > MAX_PROFILE_ENTRIES || bytes > MAX_UNPACKED_BYTES {
            let message = format!(
                "a profile has at most {MAX_PROFILE_ENTRIES} files and {MAX_UNPACKED_BYTES} bytes before it is packed"
            );
            return Err(Refusal::new(ErrorCode::TooLarge, message));
        }
    }
    Ok(())
}
