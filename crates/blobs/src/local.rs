//! Blobs in a local directory.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::blob::{BlobError, BlobStore};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, WriteMultipart};
use time::OffsetDateTime;

/// The size of one write, in bytes, and the number of writes that may wait for the disk.
const CHUNK_BYTES: usize = 256 << 10;
const UNDER_WAY: usize = 2;

/// The reason why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BlobSetupError {
    /// The directory cannot be created.
    #[error("{directory}: {source}")]
    Directory {
        /// The directory.
        directory: String,
        /// The error.
        source: std::io::Error,
    },
    /// The store refuses the directory.
    #[error("{directory}: {source}")]
    Store {
        /// The directory.
        directory: String,
        /// The error.
        source: object_store::Error,
    },
}

/// Blobs in a directory of this machine; each key is a file.
#[derive(Clone, Debug)]
pub struct LocalBlobs {
    store: Arc<LocalFileSystem>,
    directory: PathBuf,
}

impl LocalBlobs {
    /// Opens `directory`, and creates it, readable by its owner only, if it is missing.
    ///
    /// # Errors
    /// See [`BlobSetupError`].
    pub fn open(directory: &FilePath) -> Result<Self, BlobSetupError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let named = || directory.display().to_string();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| BlobSetupError::Directory { directory: named(), source })?;
        let store = LocalFileSystem::new_with_prefix(directory);
        let store = store.map_err(|source| BlobSetupError::Store { directory: named(), source })?;
        Ok(Self { store: Arc::new(store.with_fsync(true)), directory: directory.to_owned() })
    }

    async fn read(&self, key: &str, what: GetOptions) -> Result<Option<ByteStream>, BlobError> {
        let found = match self.store.get_opts(&path(key)?, what).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let broken =
            |error: object_store::Error| OperationError::Failed(format!("stored bytes cannot be read: {error}"));
        Ok(Some(found.into_stream().map_err(broken).boxed()))
    }

    /// Removes unfinished writes of ended processes that were last modified at least `untouched` ago; returns their
    /// number.
    ///
    /// # Errors
    /// If the directory cannot be read, or a file in it cannot be removed.
    pub async fn clear_unfinished(&self, untouched: Duration) -> std::io::Result<usize> {
        let directory = self.directory.clone();
        let cleared = tokio::task::spawn_blocking(move || clear_unfinished(&directory, untouched));
        cleared.await.map_err(std::io::Error::other)?
    }
}

/// Returns true for the name of an incomplete blob: the store writes to the key, `#` and a number until the blob is
/// complete.
fn is_unfinished(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn clear_unfinished(directory: &FilePath, untouched: Duration) -> std::io::Result<usize> {
    let mut cleared = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            cleared += clear_unfinished(&path, untouched)?;
            continue;
        }
        let since = entry.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
        if since.is_some_and(|since| since >= untouched) && entry.file_name().to_str().is_some_and(is_unfinished) {
            std::fs::remove_file(path)?;
            cleared += 1;
        }
    }
    Ok(cleared)
}

fn failed(error: object_store::Error) -> BlobError {
    BlobError::Store(Box::new(error))
}

fn path(key: &str) -> Result<Path, BlobError> {
    Path::parse(key).map_err(|error| BlobError::Store(Box::new(error)))
}

#[async_trait]
impl BlobStore for LocalBlobs {
    async fn put(&self, key: &str, mut content: ByteStream) -> Result<(), BlobError> {
        let upload = self.store.put_multipart(&path(key)?).await.map_err(failed)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, CHUNK_BYTES);
        let written = async {
            while let Some(part) = content.try_next().await? {
                upload.wait_for_capacity(UNDER_WAY).await.map_err(failed)?;
                upload.put(part);
            }
            Ok::<_, BlobError>(())
        };
        match written.await {
            Ok(()) => upload.finish().await.map(drop).map_err(failed),
            Err(error) => {
                // The written part is discarded; the original error is reported.
                drop(upload.abort().await);
                Err(error)
            }
        }
    }

    async fn get(&self, key: &str) -> Result<Option<ByteStream>, BlobError> {
        self.read(key, GetOptions::default()).await
    }

    async fn get_part(&self, key: &str, offset: u64, length: u64) -> Result<Option<ByteStream>, BlobError> {
        let range = GetRange::Bounded(offset..offset.saturating_add(length));
        self.read(key, GetOptions { range: Some(range), ..GetOptions::default() }).await
    }

    async fn delete(&self, key: &str) -> Result<(), BlobError> {
        match self.store.delete(&path(key)?).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            other => other.map_err(failed),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError> {
        let found: Vec<_> =
            self.store.list(Some(&path(prefix.trim_end_matches('/'))?)).try_collect().await.map_err(failed)?;
        let since = |seconds: i64| OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        Ok(found.into_iter().map(|one| (one.location.to_string(), since(one.last_modified.timestamp()))).collect())
    }
}
