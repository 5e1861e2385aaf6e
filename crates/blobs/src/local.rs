//! Blobs in a local directory.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::blob::{BlobError, BlobInfo, BlobStore};
use casement_domain::session_operation::ByteStream;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use time::{Duration, OffsetDateTime};

use crate::objects::{self, Faults};
use crate::setup::BlobSetupError;

/// The size of one write, in bytes.
const PART_BYTES: usize = 256 << 10;

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
        let store = store.map_err(|source| BlobSetupError::Store { location: named(), source })?;
        Ok(Self { store: Arc::new(store.with_fsync(true)), directory: directory.to_owned() })
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    pub(crate) fn directory(&self) -> &FilePath {
        &self.directory
    }
}

/// The errors of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalFaults;

impl Faults for LocalFaults {
    fn failed(&self, error: object_store::Error) -> BlobError {
        BlobError::Store(Box::new(error))
    }
}

/// Returns true for the name of an incomplete blob: the store writes to the key, `#` and a number until the blob is
/// complete.
fn is_unfinished(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn clear_unfinished(directory: &FilePath, untouched: std::time::Duration) -> std::io::Result<usize> {
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

#[async_trait]
impl BlobStore for LocalBlobs {
    async fn put(&self, key: &str, content: ByteStream) -> Result<(), BlobError> {
        objects::put(self.store(), &LocalFaults, key, content, PART_BYTES).await
    }

    async fn get(&self, key: &str) -> Result<Option<ByteStream>, BlobError> {
        objects::read(self.store(), &LocalFaults, key, None).await
    }

    async fn get_part(&self, key: &str, offset: u64, length: u64) -> Result<Option<ByteStream>, BlobError> {
        objects::read(self.store(), &LocalFaults, key, Some((offset, length))).await
    }

    async fn find(&self, key: &str) -> Result<Option<BlobInfo>, BlobError> {
        objects::find(self.store(), &LocalFaults, key).await
    }

    async fn delete(&self, key: &str) -> Result<(), BlobError> {
        objects::delete(self.store(), &LocalFaults, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError> {
        objects::list(self.store(), &LocalFaults, prefix).await
    }

    async fn clear_unfinished(&self, untouched: Duration) -> Result<usize, BlobError> {
        let (directory, untouched) = (self.directory.clone(), untouched.unsigned_abs());
        let cleared = tokio::task::spawn_blocking(move || clear_unfinished(&directory, untouched)).await;
        cleared
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| BlobError::Store(error.into()))
    }
}
