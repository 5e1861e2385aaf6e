//! The file of a recording that has ended.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use rustix::fs::{Mode, OFlags};

/// The number of bytes read at once.
const CHUNK_BYTES: u64 = 256 << 10;

/// The reason why the file is not the recorded one any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum VideoError {
    #[error("the recording's file was removed by the session's own programs, or cannot be read: {0}")]
    Gone(#[source] io::Error),
    #[error("the recording's file was changed by the session's own programs")]
    Changed,
}

/// A complete file, and the identity by which a change of it is detected.
#[derive(Debug, Clone)]
pub(super) struct Video {
    path: PathBuf,
    pub(super) size: u64,
    identity: Identity,
}

/// The identity of a file, its size, and the time of its last change of any kind. No program in the sandbox can set
/// that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Video {
    /// Returns the file at `path` in its current state.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let metadata = open(path)?.metadata()?;
        Ok(Self { path: path.to_owned(), size: metadata.size(), identity: Identity::of(&metadata) })
    }

    /// Opens the file and checks that it is unchanged.
    pub(super) fn open(&self) -> Result<File, VideoError> {
        let file = open(&self.path).map_err(VideoError::Gone)?;
        self.unchanged(&file)?;
        Ok(file)
    }

    fn unchanged(&self, file: &File) -> Result<(), VideoError> {
        let now = Identity::of(&file.metadata().map_err(VideoError::Gone)?);
        if now == self.identity { Ok(()) } else { Err(VideoError::Changed) }
    }

    /// Returns `length` bytes from `offset` on. Ends with an error if the file is changed meanwhile.
    pub(super) fn read(
        self,
        file: File,
        offset: u64,
        length: u64,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let place = Arc::new((self, file));
        stream::try_unfold((place, offset, length), |(place, offset, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let reading = Arc::clone(&place);
            let piece = tokio::task::spawn_blocking(move || {
                let (video, file) = &*reading;
                let mut piece = vec![0; usize::try_from(left.min(CHUNK_BYTES)).unwrap_or(0)];
                file.read_exact_at(&mut piece, offset)?;
                video.unchanged(file)?;
                Ok::<_, io::Error>(Bytes::from(piece))
            });
            let piece = piece.await.map_err(io::Error::other)??;
            let read = piece.len() as u64;
            Ok(Some((piece, (place, offset + read, left - read))))
        })
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_changed_replaced_or_removed_is_not_taken_for_the_recording() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.mp4");
        std::fs::write(&path, "film").expect("written");
        let video = Video::at(&path).expect("there");
        assert!(video.open().is_ok());
        // The kernel records the time of a change with the resolution of its timer.
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, "FILM").expect("written");
        assert!(matches!(video.open(), Err(VideoError::Changed)));
        std::fs::remove_file(&path).expect("removed");
        assert!(matches!(video.open(), Err(VideoError::Gone(_))));
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("linked");
        assert!(matches!(video.open(), Err(VideoError::Gone(_))));
    }
}
