//! What all blob stores do in the same way on an [`ObjectStore`].

use bytes::Bytes;
use casement_domain::blob::{BlobError, BlobInfo, StoreMark};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, WriteMultipart,
};
use time::OffsetDateTime;

use crate::transport::StoreFault;

/// The object with the mark of the store. It is no blob.
const MARK: &str = "store-id";
/// The longest mark, in bytes.
const MAX_MARK_BYTES: u64 = 256;
/// The number of parts of one content that may be written at a time.
const PARALLEL_PARTS: usize = 2;

/// Converts an error of the store. Also called for errors of streams, after the call that returned them.
pub(crate) trait Faults: Clone + Send + Sync + 'static {
    fn failed(&self, error: Error) -> BlobError;
}

pub(crate) fn path(key: &str) -> Result<Path, BlobError> {
    Path::parse(key).map_err(|error| BlobError::Store(Box::new(error)))
}

/// Stores a content. A content that is shorter than a part is written at once.
pub(crate) async fn put(
    store: &dyn ObjectStore,
    faults: &impl Faults,
    key: &str,
    mut content: ByteStream,
    part_bytes: usize,
) -> Result<(), BlobError> {
    let path = path(key)?;
    let (mut first, mut size, mut is_whole) = (Vec::new(), 0, false);
    while size < part_bytes && !is_whole {
        match content.try_next().await? {
            Some(bytes) => {
                size += bytes.len();
                first.push(bytes);
            }
            None => is_whole = true,
        }
    }
    if is_whole {
        let put = store.put(&path, first.into_iter().collect()).await;
        return put.map(drop).map_err(|error| faults.failed(error));
    }
    let upload = store.put_multipart(&path).await.map_err(|error| faults.failed(error))?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, part_bytes);
    let written = async {
        first.into_iter().for_each(|bytes| upload.put(bytes));
        while let Some(bytes) = content.try_next().await? {
            upload.wait_for_capacity(PARALLEL_PARTS).await.map_err(|error| faults.failed(error))?;
            upload.put(bytes);
        }
        Ok::<_, BlobError>(())
    };
    match written.await {
        Ok(()) => upload.finish().await.map(drop).map_err(|error| faults.failed(error)),
        Err(error) => {
            // The written part is discarded; the original error is reported.
            drop(upload.abort().await);
            Err(error)
        }
    }
}

/// Reads a content, or a part of it: the offset and the length.
pub(crate) async fn read(
    store: &dyn ObjectStore,
    faults: &impl Faults,
    key: &str,
    part: Option<(u64, u64)>,
) -> Result<Option<ByteStream>, BlobError> {
    let range = part.map(|(offset, length)| GetRange::Bounded(offset..offset.saturating_add(length)));
    let found = match store.get_opts(&path(key)?, GetOptions { range, ..GetOptions::default() }).await {
        Ok(found) => found,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(faults.failed(error)),
    };
    let faults = faults.clone();
    let broken = move |error: Error| match faults.failed(error) {
        BlobError::Store(error) => OperationError::Failed(format!("stored bytes cannot be read: {error}")),
        other => other.of_reading("stored bytes cannot be read"),
    };
    Ok(Some(found.into_stream().map_err(broken).boxed()))
}

pub(crate) async fn find(
    store: &dyn ObjectStore,
    faults: &impl Faults,
    key: &str,
) -> Result<Option<BlobInfo>, BlobError> {
    match store.head(&path(key)?).await {
        Ok(found) => Ok(Some(BlobInfo { size_bytes: found.size, stored_at: stored_at(&found) })),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(faults.failed(error)),
    }
}

pub(crate) async fn delete(store: &dyn ObjectStore, faults: &impl Faults, key: &str) -> Result<(), BlobError> {
    match store.delete(&path(key)?).await {
        Err(Error::NotFound { .. }) => Ok(()),
        other => other.map_err(|error| faults.failed(error)),
    }
}

pub(crate) async fn list(
    store: &dyn ObjectStore,
    faults: &impl Faults,
    prefix: &str,
) -> Result<Vec<(String, OffsetDateTime)>, BlobError> {
    let prefix = path(prefix.trim_end_matches('/'))?;
    let found: Vec<_> = store.list(Some(&prefix)).try_collect().await.map_err(|error| faults.failed(error))?;
    let blobs = found.into_iter().filter(|one| one.location.as_ref() != MARK);
    Ok(blobs.map(|one| (one.location.to_string(), stored_at(&one))).collect())
}

fn stored_at(found: &ObjectMeta) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(found.last_modified.timestamp()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Reads the mark of the store; `None` if it has none.
pub(crate) async fn mark(store: &dyn ObjectStore, faults: &impl Faults) -> Result<Option<StoreMark>, BlobError> {
    let damaged = || BlobError::Store(format!("the object {MARK} is damaged").into());
    let Some(content) = read(store, faults, MARK, None).await? else { return Ok(None) };
    let (mut text, mut content) = (Vec::new(), content);
    while let Some(bytes) = content.try_next().await? {
        text.extend_from_slice(&bytes);
        if text.len() as u64 > MAX_MARK_BYTES {
            return Err(damaged());
        }
    }
    let text = String::from_utf8(text).map_err(|_| damaged())?;
    let mut words = text.split_whitespace();
    let (Some(store), Some(database), None) = (words.next(), words.next(), words.next()) else { return Err(damaged()) };
    let (store, database) = (store.parse().map_err(|_| damaged())?, database.parse().map_err(|_| damaged())?);
    Ok(Some(StoreMark { store, database }))
}

/// Writes the mark of the store unless it has one.
pub(crate) async fn create_mark(
    store: &dyn ObjectStore,
    faults: &impl Faults,
    mark: &StoreMark,
) -> Result<(), BlobError> {
    let text = Bytes::from(format!("{} {}\n", mark.store, mark.database));
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match store.put_opts(&path(MARK)?, text.clone().into(), options).await {
        Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
        // A store without conditional writes: two first servers at once may see different marks, and the database
        // admits only one of them.
        Err(error) if StoreFault::of(&error).is_some_and(|fault| fault.is_unsupported()) => {
            store.put(&path(MARK)?, text.into()).await.map(drop).map_err(|error| faults.failed(error))
        }
        Err(error) => Err(faults.failed(error)),
    }
}

/// Removes the mark of the store, whose blobs are in another store from now on.
pub(crate) async fn remove_mark(store: &dyn ObjectStore, faults: &impl Faults) -> Result<(), BlobError> {
    delete(store, faults, MARK).await
}
