//! Files of forms whose texts come later. They wait on the disk, because they are too long for the memory.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};
use tokio_util::io::ReaderStream;

/// The maximum size of one file, in bytes: room for the largest package.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// The maximum size of all files together, in bytes.
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// The size of one read, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Stores files until the rest of their form is known. A file has no name, and its disk space is free when it was read
/// or the process ends. Clones share the space.
#[derive(Clone)]
pub(crate) struct Spool {
    directory: PathBuf,
    used_bytes: Arc<AtomicU64>,
}

/// The disk space of one file, which is returned when this is dropped.
struct Space {
    bytes: u64,
    used_bytes: Arc<AtomicU64>,
}

impl Spool {
    /// Creates a spool with its files in `directory`, which must exist.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, used_bytes: Arc::default() }
    }

    /// Stores `content`, which is the part `name` of a form, and returns it.
    ///
    /// # Errors
    /// `payload_too_large` for more than 512 MiB; `limit_exceeded` if there is no room; the error of `content`.
    pub(crate) async fn store(&self, name: &str, mut content: ByteStream) -> Result<ByteStream, OperationError> {
        let mut file = tokio::fs::File::from_std(tempfile::tempfile_in(&self.directory).map_err(disk)?);
        let mut space = Space { bytes: 0, used_bytes: Arc::clone(&self.used_bytes) };
        while let Some(piece) = content.try_next().await? {
            space.grow(name, piece.len() as u64)?;
            file.write_all(&piece).await.map_err(disk)?;
        }
        file.rewind().await.map_err(disk)?;
        let content = ReaderStream::with_capacity(file, CHUNK_BYTES).map_err(disk);
        Ok(content
            .map(move |piece| {
                // The closure owns the space until the stream is dropped.
                let _ = &space;
                piece
            })
            .boxed())
    }
}

impl Space {
    fn grow(&mut self, name: &str, bytes: u64) -> Result<(), OperationError> {
        if self.bytes + bytes > MAX_FILE_BYTES {
            return Err(OperationError::TooLarge(format!(
                "the form's part {name} is longer than {MAX_FILE_BYTES} bytes and comes before texts of the form; \
                 the texts must come first"
            )));
        }
        self.bytes += bytes;
        if self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_TOTAL_BYTES {
            return Err(full());
        }
        Ok(())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn full() -> OperationError {
    OperationError::DiskFull("the server has no room for another upload now".to_owned())
}

fn disk(error: io::Error) -> OperationError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full(),
        _ => OperationError::Failed(format!("an uploaded file cannot be stored: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::web::Bytes;
    use futures_util::stream;

    use super::*;

    fn pieces(count: usize, piece: &Bytes) -> ByteStream {
        stream::iter(vec![piece.clone(); count]).map(Ok).boxed()
    }

    #[tokio::test]
    async fn a_file_returns_as_it_came_and_frees_its_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path().to_owned());
        let content = spool.store("file", pieces(3, &Bytes::from_static(b"abc"))).await.expect("stored");
        assert_eq!(spool.used_bytes.load(Ordering::Relaxed), 9);
        let back: Vec<Bytes> = content.try_collect().await.expect("read");
        assert_eq!(back.concat(), b"abcabcabc");
        assert_eq!(spool.used_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "a file with a name");
    }

    #[tokio::test]
    async fn the_space_of_one_file_and_of_all_is_bounded() {
        let spool = Spool::new(std::env::temp_dir());
        let mut space = Space { bytes: 0, used_bytes: Arc::clone(&spool.used_bytes) };
        let long = space.grow("files[0][file]", MAX_FILE_BYTES + 1).expect_err("too long");
        assert!(matches!(&long, OperationError::TooLarge(text) if text.contains("files[0][file]")), "{long}");
        spool.used_bytes.store(MAX_TOTAL_BYTES - 2, Ordering::Relaxed);
        let refused = spool.store("file", pieces(1, &Bytes::from_static(b"abc"))).await;
        assert!(matches!(refused, Err(OperationError::DiskFull(_))));
        assert_eq!(spool.used_bytes.load(Ordering::Relaxed), MAX_TOTAL_BYTES - 2, "a refused file takes no space");
    }
}
