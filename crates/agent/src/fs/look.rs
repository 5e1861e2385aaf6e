//! Operations that change nothing: listing, information, reading.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use bytes::Bytes;
use futures_util::{Stream, stream};
use rustix::fs::{AtFlags, Stat, statat};

use super::fault::{Fault, Field};
use super::names::Names;
use super::path::{Place, Spot};
use crate::path_text::to_text;
use crate::reply::line;
use casement_agent_protocol::fs::Entry;

/// The maximum number of entries in one line of a listing.
const BATCH: usize = 256;
/// The bytes read from a file at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Content that is produced piece by piece, on the threads for blocking work.
pub(crate) trait Make: Send + 'static {
    /// Returns the next piece; `None` after the last.
    fn make(&mut self) -> io::Result<Option<Bytes>>;
}

/// Returns the pieces as a stream. The next piece is produced ahead, but no thread is occupied while the reader takes
/// none.
pub(crate) fn pieces(maker: impl Make) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let make = |mut maker: Box<dyn Make>| {
        tokio::task::spawn_blocking(move || {
            let made = maker.make();
            (maker, made)
        })
    };
    stream::unfold(Some(make(Box::new(maker))), move |making| async move {
        let (maker, made) = match making?.await {
            Ok(made) => made,
            Err(error) => return Some((Err(io::Error::other(error)), None)),
        };
        match made.transpose()? {
            Ok(piece) => Some((Ok(piece), Some(make(maker)))),
            Err(error) => Some((Err(error), None)),
        }
    })
}

impl Make for Box<dyn Make> {
    fn make(&mut self) -> io::Result<Option<Bytes>> {
        (**self).make()
    }
}

/// The entries of a directory.
pub(super) struct Listing {
    directory: OwnedFd,
    names: Names,
}

impl Listing {
    pub(super) fn of(path: &str) -> Result<Self, Fault> {
        let (directory, _) = Place::directory(path, Field::Path)?;
        let names = Names::read(directory.as_fd()).map_err(|error| Fault::io(Field::Path, path, error))?;
        Ok(Self { directory, names })
    }
}

impl Make for Listing {
    fn make(&mut self) -> io::Result<Option<Bytes>> {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            let Some(name) = self.names.next() else { break };
            // An entry that was removed since the names were read is omitted.
            if let Ok(stat) = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                batch.push(entry(&to_text(OsStr::from_bytes(name.to_bytes())), &stat));
            }
        }
        if batch.is_empty() {
            return Ok(None);
        }
        Ok(Some(line(&batch)))
    }
}

/// Returns the metadata of the file at a path; of a link itself.
pub(super) fn info(path: &str) -> Result<Entry, Fault> {
    if path == "/" {
        return Ok(entry("/", &Place::find(path, Field::Path)?.stat));
    }
    let spot = Spot::find(path, Field::Path)?;
    let stat = spot.stat().map_err(|error| Fault::io(Field::Path, path, error.into()))?;
    Ok(entry(path.rsplit('/').next().unwrap_or_default(), &stat))
}

fn entry(name: &str, stat: &Stat) -> Entry {
    #[expect(clippy::unnecessary_cast, reason = "the fields have other types on other machines")]
    Entry {
        name: name.to_owned(),
        mode: stat.st_mode as u32,
        size: stat.st_size as u64,
        modified_seconds: stat.st_mtime as i64,
        modified_nanos: stat.st_mtime_nsec as u32,
    }
}

/// The content of a file, with the length that it had when it was opened. Reading a file that became shorter ends with
/// an error, so that a part is never mistaken for the whole.
pub(super) struct Content {
    file: File,
    left: u64,
}

impl Content {
    pub(super) fn of(path: &str) -> Result<Self, Fault> {
        let (file, stat) = Place::file(path, Field::Path)?;
        Ok(Self { file, left: u64::try_from(stat.st_size).unwrap_or_default() })
    }

    /// Returns the number of bytes that are left.
    pub(super) fn length(&self) -> u64 {
        self.left
    }
}

impl Make for Content {
    fn make(&mut self) -> io::Result<Option<Bytes>> {
        let mut piece = Vec::new();
        let max = self.left.min(CHUNK_BYTES as u64);
        let read = self.file.by_ref().take(max).read_to_end(&mut piece)? as u64;
        if read < max {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read"));
        }
        self.left -= read;
        Ok((!piece.is_empty()).then(|| piece.into()))
    }
}
