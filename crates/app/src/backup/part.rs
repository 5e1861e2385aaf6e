//! Writes and reads the parts of a backup, with their checksums.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::manifest::Part;
use super::progress::Progress;

/// The size of one read or write, in bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// The name of a copy until it has none.
const COPY: &str = "part.copy";

fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens a new file of mode 0600 below `folder`, and creates its folders.
pub(super) fn create_file(folder: &Path, name: &str) -> anyhow::Result<File> {
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.with_context(|| format!("cannot create {}", path.display()))
}

/// Opens a regular file below `folder`.
pub(super) fn open_file(folder: &Path, name: &str) -> anyhow::Result<File> {
    let path = folder.join(name);
    // A pipe would never end.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    anyhow::ensure!(file.metadata()?.is_file(), "{} is no file", path.display());
    Ok(file)
}

/// A part that is being written.
pub(super) struct PartWriter<'a> {
    name: String,
    file: tokio::fs::File,
    size_bytes: u64,
    digest: Sha256,
    progress: &'a mut Progress,
}

impl<'a> PartWriter<'a> {
    pub(super) fn create(folder: &Path, name: String, progress: &'a mut Progress) -> anyhow::Result<Self> {
        let file = tokio::fs::File::from_std(create_file(folder, &name)?);
        Ok(Self { name, file, size_bytes: 0, digest: Sha256::new(), progress })
    }

    /// Writes the rest of the content.
    pub(super) async fn write_stream(mut self, mut content: ByteStream) -> anyhow::Result<Part> {
        while let Some(chunk) = content.try_next().await? {
            self.write_all(&chunk).await?;
        }
        self.finish().await
    }

    /// Returns the part once everything is written.
    pub(super) async fn finish(mut self) -> anyhow::Result<Part> {
        self.file.flush().await?;
        Ok(Part { name: self.name, size_bytes: self.size_bytes, sha256: hex(self.digest.finalize()) })
    }
}

impl AsyncWrite for PartWriter<'_> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.file).poll_write(context, bytes))?;
        self.digest.update(&bytes[..written]);
        self.size_bytes += written as u64;
        self.progress.add(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_shutdown(context)
    }
}

/// A part that is being read.
struct PartReader {
    part: Part,
    file: tokio::fs::File,
    read_bytes: u64,
    digest: Sha256,
}

impl PartReader {
    /// Returns the next chunk; at the end, `None` if the content is what the manifest says.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, OperationError> {
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
        let failed = |error: io::Error| OperationError::Failed(format!("cannot read {}: {error}", self.part.name));
        let count = self.file.read_buf(&mut chunk).await.map_err(failed)?;
        self.read_bytes += count as u64;
        let damaged = || OperationError::Failed(format!("the backup's {} is damaged", self.part.name));
        if self.read_bytes > self.part.size_bytes {
            return Err(damaged());
        }
        if count > 0 {
            self.digest.update(&chunk);
            return Ok(Some((chunk.freeze(), self)));
        }
        let matches = self.read_bytes == self.part.size_bytes
            && hex(self.digest.finalize()) == self.part.sha256.to_ascii_lowercase();
        if matches { Ok(None) } else { Err(damaged()) }
    }
}

/// Returns the content of a part. The stream fails at the end if its size or checksum is not that of the manifest, and
/// never returns more bytes than the manifest says.
pub(super) fn content(folder: &Path, part: &Part) -> anyhow::Result<ByteStream> {
    let file = tokio::fs::File::from_std(open_file(folder, &part.name)?);
    let reader = PartReader { part: part.clone(), file, read_bytes: 0, digest: Sha256::new() };
    Ok(stream::try_unfold(reader, PartReader::next).boxed())
}

/// Returns a copy of a part that nobody else can change, once its size and its checksum are known to be right. The copy
/// is written to `place` and has no name there, so it is gone when it is closed.
pub(super) async fn checked_copy(folder: &Path, part: &Part, place: &Path) -> anyhow::Result<File> {
    let path = place.join(COPY);
    let cannot = || format!("cannot write {}", path.display());
    let copy = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let mut copy = tokio::fs::File::from_std(copy.with_context(cannot)?);
    std::fs::remove_file(&path).with_context(cannot)?;
    let mut content = content(folder, part)?;
    while let Some(chunk) = content.try_next().await? {
        copy.write_all(&chunk).await.with_context(cannot)?;
    }
    copy.flush().await.with_context(cannot)?;
    let mut copy = copy.into_std().await;
    copy.rewind().with_context(cannot)?;
    Ok(copy)
}

/// Checks the size and the checksum of a part.
pub(super) async fn verify(folder: &Path, part: &Part, progress: &mut Progress) -> anyhow::Result<()> {
    let mut content = content(folder, part)?;
    while let Some(chunk) = content.try_next().await? {
        progress.add(chunk.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn written(folder: &Path, content: &'static [u8]) -> Part {
        let mut progress = Progress::new("test");
        let writer = PartWriter::create(folder, "blobs/a/b".to_owned(), &mut progress).expect("a file");
        let content = stream::iter([Ok(Bytes::from_static(content))]).boxed();
        writer.write_stream(content).await.expect("written")
    }

    #[tokio::test]
    async fn a_changed_shortened_or_extended_part_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = written(folder.path(), b"content").await;
        let path = folder.path().join("blobs/a/b");
        assert_eq!(part.size_bytes, 7);
        for (content, is_right) in [("content", true), ("contents", false), ("conten", false), ("CONTENT", false)] {
            fs::write(&path, content).expect("written");
            let verified = verify(folder.path(), &part, &mut Progress::new("test")).await;
            assert_eq!(verified.is_ok(), is_right, "{content}");
        }
    }

    /// Whoever can write to a backup can change a file after it was checked, in place or by its name.
    #[tokio::test]
    async fn what_was_checked_is_what_is_used() {
        let (folder, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let part = written(folder.path(), b"content").await;
        let path = folder.path().join("blobs/a/b");
        let copy = checked_copy(folder.path(), &part, place.path()).await.expect("it is right");
        fs::write(&path, "CONTENT").expect("written");
        fs::rename(&path, folder.path().join("blobs/a/c")).expect("renamed");
        assert_eq!(io::read_to_string(copy).expect("the copy"), "content");
        fs::write(&path, "CONTENT").expect("written");
        assert!(checked_copy(folder.path(), &part, place.path()).await.is_err(), "it was changed after it was written");
        assert_eq!(fs::read_dir(place.path()).expect("a folder").count(), 0);
    }

    #[tokio::test]
    async fn a_part_that_is_a_link_or_a_pipe_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = written(folder.path(), b"content").await;
        let path = folder.path().join("blobs/a/b");
        fs::rename(&path, folder.path().join("elsewhere")).expect("renamed");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).expect("a link");
        assert!(verify(folder.path(), &part, &mut Progress::new("test")).await.is_err());
        fs::remove_file(&path).expect("removed");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("a pipe");
        assert!(verify(folder.path(), &part, &mut Progress::new("test")).await.is_err());
    }
}
