//! Packs a directory into an archive while it is sent.
//!
//! Only the compressed record of each entry is in memory until the end. A file is read up to the length that it had
//! when it was opened: a file that grows is cut, one that shrinks ends earlier. Its sizes follow its content in any
//! case.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use bytes::Bytes;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use rustix::fs::{FileType, Mode, OFlags, openat, readlinkat};

use super::record::{DEFLATED, Entry, LONG, STORED, put_end};
use crate::fs::fault::{Fault, Field, TOO_WIDE};
use crate::fs::look::Make;
use crate::fs::names::{Found, MAX_DEPTH, Walk};
use crate::fs::path::Place;
use casement_agent_protocol::ErrorCode;

/// The maximum number of entries of one archive.
const MAX_ENTRIES: u64 = 250_000;
/// The maximum number of bytes of all paths, which are in memory until the end.
const MAX_PATH_BYTES: u64 = 16 << 20;
/// The maximum length of all files of one archive together, in bytes. A sparse file of a terabyte takes no space on the
/// disk, but must be read.
const MAX_BYTES: u64 = 64 << 30;
/// The size from which on a piece is sent, in bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// The bytes read from a file at a time.
const READ: usize = 128 << 10;
/// The length from which on the sizes of a file might need eight bytes: compression can add a little.
const LONG_FROM: u64 = LONG as u64 - (16 << 20);

/// An archive that is being packed.
pub(in crate::fs) struct Archive {
    walk: Walk,
    stage: Stage,
    /// The number of bytes before the current piece.
    made: u64,
    entries: u64,
    path_bytes: u64,
    /// The number of bytes that further files may have.
    left: u64,
    records: DeflateEncoder<Vec<u8>>,
    compress: Compress,
    buffer: Box<[u8]>,
}

enum Stage {
    Next,
    /// Within a file.
    Content {
        file: File,
        left: u64,
        entry: Entry,
        crc: Crc,
    },
    /// After all files.
    Records {
        records: DeflateDecoder<io::Cursor<Vec<u8>>>,
        at: u64,
    },
    Done,
}

impl Archive {
    /// Starts to pack the directory at `path`. The directory is measured first, so that it is refused before anything
    /// is sent if it is too large.
    pub(in crate::fs) fn of(path: &str) -> Result<Self, Fault> {
        let fault = |error| Fault::io(Field::Path, path, error);
        let (directory, real) = Place::directory(path, Field::Path)?;
        measure(path, directory.try_clone().map_err(fault)?, real.clone())?;
        Ok(Self {
            walk: Walk::new(directory, real).map_err(fault)?,
            stage: Stage::Next,
            made: 0,
            entries: 0,
            path_bytes: 0,
            left: MAX_BYTES,
            records: DeflateEncoder::new(Vec::new(), Compression::fast()),
            compress: Compress::new(Compression::fast(), false),
            buffer: vec![0; READ].into(),
        })
    }

    /// Performs one step and appends its output to `out`.
    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Next => match self.walk.next() {
                Some(found) => self.begin(&found, out)?,
                None => self.behind_files(out)?,
            },
            Stage::Content { file, left, entry, crc } => self.content(file, left, entry, crc, out)?,
            Stage::Records { records, at } => self.record(records, at, out)?,
            Stage::Done => Stage::Done,
        };
        Ok(())
    }

    fn begin(&mut self, found: &Found, out: &mut Vec<u8>) -> io::Result<Stage> {
        #[expect(clippy::unnecessary_cast, reason = "the fields have other types on other machines")]
        let mut entry = Entry {
            name: self.walk.path().as_os_str().as_bytes().to_vec(),
            mode: found.stat.st_mode as u32,
            modified: found.stat.st_mtime as i64,
            method: STORED,
            offset: self.made + out.len() as u64,
            crc: 0,
            packed: 0,
            size: 0,
            streamed: false,
            long: false,
        };
        if entry.name.len() >= usize::from(u16::MAX) {
            return Err(io::Error::other("the directory grew too deep"));
        }
        let Some((directory, name)) = self.walk.spot() else { return Ok(Stage::Next) };
        match FileType::from_raw_mode(found.stat.st_mode) {
            FileType::Directory => {
                entry.name.push(b'/');
                entry.put_local(out);
                self.end_entry(&entry)?;
            }
            FileType::Symlink => {
                let Ok(target) = readlinkat(directory, name, Vec::new()) else { return Ok(Stage::Next) };
                let target = target.as_bytes();
                let mut crc = Crc::new();
                crc.update(target);
                entry.crc = crc.sum();
                (entry.packed, entry.size) = (target.len() as u64, target.len() as u64);
                entry.put_local(out);
                out.extend_from_slice(target);
                self.end_entry(&entry)?;
            }
            FileType::RegularFile => {
                // The file may have been replaced by a FIFO or a link, which is neither waited for, followed nor read.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let Ok(file) = openat(directory, name, flags, Mode::empty()) else { return Ok(Stage::Next) };
                let file = File::from(file);
                let Ok(now) = file.metadata() else { return Ok(Stage::Next) };
                if !now.is_file() {
                    return Ok(Stage::Next);
                }
                let left = now.len();
                self.left =
                    self.left.checked_sub(left).ok_or_else(|| io::Error::other("the directory grew too large"))?;
                (entry.method, entry.streamed, entry.long) = (DEFLATED, true, left >= LONG_FROM);
                entry.put_local(out);
                self.compress.reset();
                return Ok(Stage::Content { file, left, entry, crc: Crc::new() });
            }
            _ => {}
        }
        Ok(Stage::Next)
    }

    fn content(
        &mut self,
        mut file: File,
        mut left: u64,
        mut entry: Entry,
        mut crc: Crc,
        out: &mut Vec<u8>,
    ) -> io::Result<Stage> {
        let max = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
        // A file that cannot be read any further ends here.
        let read = if max == 0 { 0 } else { file.read(&mut self.buffer[..max]).unwrap_or(0) };
        left = if read == 0 { 0 } else { left - read as u64 };
        let mut input = &self.buffer[..read];
        crc.update(input);
        let flush = if left == 0 { FlushCompress::Finish } else { FlushCompress::None };
        loop {
            out.reserve(READ / 4);
            let (took, gave) = (self.compress.total_in(), self.compress.total_out());
            let status = self.compress.compress_vec(input, out, flush)?;
            input = &input[(self.compress.total_in() - took) as usize..];
            entry.packed += self.compress.total_out() - gave;
            let over = if left == 0 { status == Status::StreamEnd } else { input.is_empty() };
            if over {
                break;
            }
        }
        entry.size += read as u64;
        if left > 0 {
            return Ok(Stage::Content { file, left, entry, crc });
        }
        entry.crc = crc.sum();
        entry.put_descriptor(out);
        self.end_entry(&entry)?;
        Ok(Stage::Next)
    }

    fn end_entry(&mut self, entry: &Entry) -> io::Result<()> {
        self.entries += 1;
        self.path_bytes += entry.name.len() as u64;
        if self.entries > MAX_ENTRIES || self.path_bytes > MAX_PATH_BYTES {
            return Err(io::Error::other("the directory grew too large"));
        }
        let mut record = Vec::new();
        entry.put_central(&mut record);
        self.records.write_all(&record)
    }

    fn behind_files(&mut self, out: &[u8]) -> io::Result<Stage> {
        if self.walk.is_too_deep() || self.walk.is_too_wide() {
            return Err(io::Error::other("the directory grew too deep or too large"));
        }
        let records = std::mem::replace(&mut self.records, DeflateEncoder::new(Vec::new(), Compression::none()));
        let records = DeflateDecoder::new(io::Cursor::new(records.finish()?));
        Ok(Stage::Records { records, at: self.made + out.len() as u64 })
    }

    fn record(
        &mut self,
        mut records: DeflateDecoder<io::Cursor<Vec<u8>>>,
        at: u64,
        out: &mut Vec<u8>,
    ) -> io::Result<Stage> {
        let read = records.read(&mut self.buffer)?;
        out.extend_from_slice(&self.buffer[..read]);
        if read > 0 {
            return Ok(Stage::Records { records, at });
        }
        put_end(out, self.entries, at, self.made + out.len() as u64 - at);
        Ok(Stage::Done)
    }
}

impl Make for Archive {
    fn make(&mut self) -> io::Result<Option<Bytes>> {
        let mut out = Vec::with_capacity(CHUNK_BYTES + READ);
        while out.len() < CHUNK_BYTES && !matches!(self.stage, Stage::Done) {
            self.step(&mut out)?;
        }
        self.made += out.len() as u64;
        Ok((!out.is_empty()).then(|| out.into()))
    }
}

fn measure(path: &str, directory: OwnedFd, real: PathBuf) -> Result<(), Fault> {
    let too_large = |why: String| Fault::of(ErrorCode::TooLarge, Field::Path, path, why);
    let mut walk = Walk::new(directory, real).map_err(|error| Fault::io(Field::Path, path, error))?;
    let (mut entries, mut path_bytes, mut bytes) = (0, 0, 0_u64);
    while let Some(found) = walk.next() {
        entries += 1;
        // The name of a directory has a slash at its end.
        path_bytes += walk.path().as_os_str().len() as u64 + 1;
        if FileType::from_raw_mode(found.stat.st_mode) == FileType::RegularFile {
            bytes = bytes.saturating_add(u64::try_from(found.stat.st_size).unwrap_or_default());
        }
        if entries > MAX_ENTRIES {
            return Err(too_large(format!("holds more than {MAX_ENTRIES} entries, the most an archive is made of")));
        }
        if path_bytes > MAX_PATH_BYTES {
            let max = MAX_PATH_BYTES >> 20;
            return Err(too_large(format!("holds more than {max} MiB of paths, the most an archive is made of")));
        }
        if walk.path().as_os_str().len() >= usize::from(u16::MAX) {
            return Err(too_large("holds a path that is too long for an archive".to_owned()));
        }
    }
    if bytes > MAX_BYTES {
        let max = MAX_BYTES >> 30;
        return Err(too_large(format!(
            "holds files of {bytes} bytes, holes included; an archive is made of {max} GiB"
        )));
    }
    if walk.is_too_wide() {
        return Err(too_large(TOO_WIDE.to_owned()));
    }
    if walk.is_too_deep() {
        return Err(too_large(format!("is more than {MAX_DEPTH} directories deep")));
    }
    Ok(())
}
