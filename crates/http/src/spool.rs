//! Files of forms whose texts come later. They wait on the disk, because they are too long for the memory.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use casement_domain::{
    session_operation::{ByteStream, OperationError},
    storage::DiskSpace,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::{
    fs::File,
    io::{AsyncSeekExt as _, AsyncWriteExt as _},
};
use tokio_util::io::ReaderStream;

/// The maximum size of the files of one form together, in bytes: room for the largest package.
const MAX_FORM_BYTES: u64 = 512 << 20;
/// The maximum size of all files together, in bytes.
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// The size of one read, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Stores files until the rest of their form is known. A file has no name, and its disk space is free when it was read
/// or the process ends. Clones share the space.
#[derive(Clone)]
pub(crate) struct Spool {
    directory: PathBuf,
    disk: Arc<dyn DiskSpace>,
    used_bytes: Arc<AtomicU64>,
}

/// Stores the files of one form, which share a part of the space.
pub(crate) struct FormSpool {
    spool: Spool,
    form_bytes: Arc<AtomicU64>,
}

/// The disk space of one file, which is returned when this is dropped.
struct Space {
    bytes: u64,
    form_bytes: Arc<AtomicU64>,
    used_bytes: Arc<AtomicU64>,
}

impl Spool {
    /// Creates a spool with its files in `directory`, which must exist and is on `disk`.
    pub(crate) fn new(directory: PathBuf, disk: Arc<dyn DiskSpace>) -> Self {
        Self { directory, disk, used_bytes: Arc::default() }
    }

    /// Returns the spool of one form.
    pub(crate) fn for_form(&self) -> FormSpool {
        FormSpool { spool: self.clone(), form_bytes: Arc::default() }
    }

    fn check_disk(&self) -> Result<(), OperationError> {
        if self.disk.is_low() { Err(full()) } else { Ok(()) }
    }
}

impl FormSpool {
    /// Stores `content`, which is the part `name` of a form, and returns it.
    ///
    /// # Errors
    /// `payload_too_large` if the form's files have more than 512 MiB; `limit_exceeded` if there is no room; the error
    /// of `content`.
    pub(crate) async fn store(&self, name: &str, content: ByteStream) -> Result<ByteStream, OperationError> {
        self.spool.check_disk()?;
        let mut file = File::from_std(tempfile::tempfile_in(&self.spool.directory).map_err(disk)?);
        let space = self.write(name, content, &mut file).await?;
        let content = ReaderStream::with_capacity(file, CHUNK_BYTES).map_err(disk);
        Ok(content
            .map(move |piece| {
                // The closure owns the space until the stream is dropped.
                let _ = &space;
                piece
            })
            .boxed())
    }

    /// Writes `content` to `file`, from whose beginning it can be read then. Returns its space.
    async fn write(&self, name: &str, mut content: ByteStream, file: &mut File) -> Result<Space, OperationError> {
        let mut space = self.space();
        while let Some(piece) = content.try_next().await? {
            self.spool.check_disk()?;
            space.grow(name, piece.len() as u64)?;
            file.write_all(&piece).await.map_err(disk)?;
        }
        // A seek does not report the error of the last write.
        file.flush().await.map_err(disk)?;
        file.rewind().await.map_err(disk)?;
        Ok(space)
    }

    fn space(&self) -> Space {
        Space { bytes: 0, form_bytes: Arc::clone(&self.form_bytes), used_bytes: Arc::clone(&self.spool.used_bytes) }
    }
}

impl Space {
    fn grow(&mut self, name: &str, bytes: u64) -> Result<(), OperationError> {
        // Drop returns the bytes of both counters, also after an error.
        self.bytes += bytes;
        let form_bytes = self.form_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let used_bytes = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if form_bytes > MAX_FORM_BYTES {
            return Err(OperationError::TooLarge(format!(
                "the form's part {name} and the files before it that wait for texts of the form are longer than \
                 {MAX_FORM_BYTES} bytes; the texts must come first"
            )));
        }
        if used_bytes > MAX_TOTAL_BYTES {
            return Err(full());
        }
        Ok(())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.form_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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
    use std::path::Path;

    use actix_web::web::Bytes;
    use casement_domain::storage::{MockDiskSpace, UnlimitedDisk};
    use futures_util::stream;

    use super::*;

    const ABC: Bytes = Bytes::from_static(b"abc");

    fn spool(directory: &Path) -> Spool {
        Spool::new(directory.to_owned(), Arc::new(UnlimitedDisk))
    }

    fn pieces(count: usize, piece: &Bytes) -> ByteStream {
        stream::iter(vec![piece.clone(); count]).map(Ok).boxed()
    }

    #[tokio::test]
    async fn a_file_returns_as_it_came_and_frees_its_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = spool(folder.path());
        let content = spool.for_form().store("file", pieces(3, &ABC)).await.expect("stored");
        assert_eq!(spool.used_bytes.load(Ordering::Relaxed), 9);
        let back: Vec<Bytes> = content.try_collect().await.expect("read");
        assert_eq!(back.concat(), b"abcabcabc");
        assert_eq!(spool.used_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "a file with a name");
    }

    #[tokio::test]
    async fn the_space_of_one_file_and_of_all_is_bounded() {
        let spool = spool(&std::env::temp_dir());
        let mut space = spool.for_form().space();
        let long = space.grow("files[0][file]", MAX_FORM_BYTES + 1).expect_err("too long");
        assert!(matches!(&long, OperationError::TooLarge(text) if text.contains("files[0][file]")), "{long}");
        spool.used_bytes.store(MAX_TOTAL_BYTES - 2, Ordering::Relaxed);
        let refused = spool.for_form().store("file", pieces(1, &ABC)).await;
        assert!(matches!(refused, Err(OperationError::DiskFull(_))));
        assert_eq!(spool.used_bytes.load(Ordering::Relaxed), MAX_TOTAL_BYTES - 2, "a refused file takes no space");
    }

    #[tokio::test]
    async fn the_files_of_one_form_share_its_space() {
        let spool = spool(&std::env::temp_dir());
        let (form, other) = (spool.for_form(), spool.for_form());
        let mut first = form.space();
        first.grow("files[0][file]", MAX_FORM_BYTES - 2).expect("room");
        let refused = form.store("files[1][file]", pieces(1, &ABC)).await.err();
        assert!(matches!(refused, Some(OperationError::TooLarge(_))), "{refused:?}");
        drop(other.store("files[0][file]", pieces(1, &ABC)).await.expect("another form has its own space"));
        drop(first);
        drop(form.store("files[1][file]", pieces(1, &ABC)).await.expect("the first file was read"));
        assert_eq!(spool.used_bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_file_whose_last_write_fails_is_not_complete() {
        let mut full = File::options().write(true).open("/dev/full").await.expect("a device");
        let spool = spool(&std::env::temp_dir());
        let written = spool.for_form().write("file", pieces(1, &ABC), &mut full).await;
        assert!(matches!(written.err(), Some(OperationError::DiskFull(_))));
    }

    #[tokio::test]
    async fn a_low_disk_takes_no_file_and_no_more_of_a_file() {
        // The disk is low: before the file; then from the second piece on.
        for checks in [0, 2] {
            let mut disk = MockDiskSpace::new();
            disk.expect_is_low().times(checks).return_const(false);
            disk.expect_is_low().times(1).return_const(true);
            let missing = Path::new("/missing").to_owned();
            let folder = if checks == 0 { missing } else { std::env::temp_dir() };
            let spool = Spool::new(folder, Arc::new(disk));
            let refused = spool.for_form().store("file", pieces(3, &ABC)).await.err();
            assert!(matches!(refused, Some(OperationError::DiskFull(_))), "{refused:?}");
            assert_eq!(spool.used_bytes.load(Ordering::Relaxed), 0);
        }
    }
}
