//! Reads untrusted archives.
//!
//! The list of entries at the end of an archive is decisive. It is read entry by entry and never as a whole into
//! memory, and no memory is reserved by sizes that an archive claims.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::record::{
    CENTRAL, DEFLATED, END, END_64, EXTRA_64, EXTRA_TIME, Entry, FLAG_ENCRYPTED, LOCAL, LOCATOR_64, LONG, LONG_COUNT,
    STORED, SYSTEM_UNIX, from_dos,
};

/// The maximum size of the end record with its comment, in bytes.
const END_AT_MAX: u64 = 22 + 65_535;

/// The reason why an archive cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// The file is no archive, or one with unsupported features.
    #[error("{0}")]
    Broken(&'static str),
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

use Unusable::Broken;

/// The list of entries of an archive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Directory {
    pub(super) entries: u64,
    at: u64,
    end: u64,
}

/// A range of bytes of the archive.
#[derive(Debug, Clone)]
struct Part<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let max = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..max], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Directory {
    /// Finds the list of entries.
    pub(super) fn find(file: &File) -> Result<Self, Unusable> {
        let length = file.metadata()?.len();
        let start = length.saturating_sub(END_AT_MAX);
        let mut tail = vec![0; (length - start) as usize];
        file.read_exact_at(&mut tail, start)?;
        let fits =
            |at: &usize| u32_at(&tail, *at) == END && *at + 22 + usize::from(u16_at(&tail, *at + 20)) == tail.len();
        let at = (0..tail.len().saturating_sub(21)).rev().find(fits).ok_or(Broken("it is not a whole ZIP archive"))?;
        let end = &tail[at..];
        let mut found = Self { entries: u16_at(end, 10).into(), at: u32_at(end, 16).into(), end: start + at as u64 };
        let (disk, length) = (u16_at(end, 4), u64::from(u32_at(end, 12)));
        let mut whole = found.at + length;
        let is_long =
            found.entries == u64::from(LONG_COUNT) || found.at == u64::from(LONG) || length == u64::from(LONG);
        let mut locator = [0; 20];
        if is_long
            && found.end >= 20
            && file.read_exact_at(&mut locator, found.end - 20).is_ok()
            && u32_at(&locator, 0) == LOCATOR_64
        {
            let mut long = [0; 56];
            found.end = u64_at(&locator, 8);
            file.read_exact_at(&mut long, found.end).map_err(|_| Broken("its end is damaged"))?;
            if u32_at(&long, 0) != END_64 {
                return Err(Broken("its end is damaged"));
            }
            found.entries = u64_at(&long, 32);
            found.at = u64_at(&long, 48);
            whole = found.at.checked_add(u64_at(&long, 40)).ok_or(Broken("its end is damaged"))?;
        }
        if disk != 0 {
            return Err(Broken("it is a part of an archive in several"));
        }
        if whole > found.end || found.at > found.end {
            return Err(Broken("its end is damaged"));
        }
        found.end = whole;
        Ok(found)
    }

    /// Returns the entries, one after the other.
    pub(super) fn entries(self, file: &File) -> impl Iterator<Item = Result<Entry, Unusable>> {
        let mut list = BufReader::with_capacity(64 << 10, Part { file, at: self.at, end: self.end });
        (0..self.entries).map(move |_| {
            entry(&mut list).map_err(|error| match error {
                Unusable::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Broken("its list of entries is damaged")
                }
                other => other,
            })
        })
    }
}

fn entry(list: &mut impl Read) -> Result<Entry, Unusable> {
    let mut head = [0; 46];
    list.read_exact(&mut head)?;
    if u32_at(&head, 0) != CENTRAL {
        return Err(Broken("its list of entries is damaged"));
    }
    let mut name = vec![0; u16_at(&head, 28).into()];
    let mut extra = vec![0; u16_at(&head, 30).into()];
    let mut comment = vec![0; u16_at(&head, 32).into()];
    for part in [&mut name, &mut extra, &mut comment] {
        list.read_exact(part)?;
    }
    if u16_at(&head, 8) & FLAG_ENCRYPTED != 0 {
        return Err(Broken("an entry is encrypted"));
    }
    // The attributes of other systems have no meaning here.
    let mode = if head[5] == SYSTEM_UNIX { u32_at(&head, 38) >> 16 } else { 0 };
    let mut entry = Entry {
        name,
        mode,
        modified: from_dos(u16_at(&head, 14), u16_at(&head, 12)).unwrap_or_default(),
        method: u16_at(&head, 10),
        offset: u32_at(&head, 42).into(),
        crc: u32_at(&head, 16),
        packed: u32_at(&head, 20).into(),
        size: u32_at(&head, 24).into(),
        streamed: false,
        long: false,
    };
    if !matches!(entry.method, STORED | DEFLATED) {
        return Err(Broken("an entry is packed by a method other than deflate"));
    }
    look_closer(&mut entry, &extra);
    Ok(entry)
}

/// Applies the extra fields of an entry.
fn look_closer(entry: &mut Entry, mut extra: &[u8]) {
    while extra.len() >= 4 {
        let (kind, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(field) = extra.get(4..4 + length) else { return };
        extra = &extra[4 + length..];
        match kind {
            EXTRA_64 => {
                let mut values = field.chunks_exact(8).map(|value| u64_at(value, 0));
                for value in [&mut entry.size, &mut entry.packed, &mut entry.offset] {
                    if *value == u64::from(LONG)
                        && let Some(long) = values.next()
                    {
                        *value = long;
                    }
                }
            }
            EXTRA_TIME if field.len() >= 5 && field[0] & 1 != 0 => {
                entry.modified = u32_at(field, 1).cast_signed().into();
            }
            _ => {}
        }
    }
}

/// The content of an entry. Reading ends with an error if the content does not match the list.
pub(super) struct Content<'a> {
    reader: Packing<'a>,
    crc: Crc,
    left: u64,
    expected: u32,
}

enum Packing<'a> {
    Stored(Part<'a>),
    Deflated(DeflateDecoder<BufReader<Part<'a>>>),
}

impl<'a> Content<'a> {
    pub(super) fn of(file: &'a File, directory: &Directory, entry: &Entry) -> Result<Self, Unusable> {
        let mut head = [0; 30];
        file.read_exact_at(&mut head, entry.offset).map_err(|_| Broken("an entry lies outside of it"))?;
        if u32_at(&head, 0) != LOCAL {
            return Err(Broken("an entry does not begin where the list says"));
        }
        let at = entry.offset + 30 + u64::from(u16_at(&head, 26)) + u64::from(u16_at(&head, 28));
        let end = at.checked_add(entry.packed).filter(|end| *end <= directory.at);
        let part = Part { file, at, end: end.ok_or(Broken("an entry lies outside of it"))? };
        let reader = if entry.method == STORED {
            Packing::Stored(part)
        } else {
            Packing::Deflated(DeflateDecoder::new(BufReader::with_capacity(32 << 10, part)))
        };
        Ok(Self { reader, crc: Crc::new(), left: entry.size, expected: entry.crc })
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "is damaged");
        let read = match &mut self.reader {
            Packing::Stored(part) => part.read(buffer),
            Packing::Deflated(decoder) => decoder.read(buffer),
        };
        // Every error of the decoder means that the archive is damaged.
        let read = read.map_err(|_| damaged())?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(damaged)?;
        self.crc.update(&buffer[..read]);
        if read == 0 && !buffer.is_empty() && (self.left != 0 || self.crc.sum() != self.expected) {
            return Err(damaged());
        }
        Ok(read)
    }
}
