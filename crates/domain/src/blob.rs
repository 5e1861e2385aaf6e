//! The port to blobs: bytes that are stored outside of the database.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use crate::error::{SpecificError, UseCaseError};
use crate::ids::{BlobStoreId, DatabaseId};
use crate::session_operation::{ByteStream, OperationError};

/// The error of storing or reading a blob.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The content to store was refused, or its stream failed.
    #[error(transparent)]
    Content(#[from] OperationError),
    /// The blob store does not respond or refuses requests, for the reason in the text. The same call succeeds once the
    /// store works again.
    #[error("{0}")]
    Unavailable(String),
    /// The blob store failed; the same call may succeed later.
    #[error("stored bytes cannot be reached: {0}")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SpecificError for BlobError {}

impl From<OperationError> for UseCaseError<BlobError> {
    fn from(error: OperationError) -> Self {
        Self::Specific(error.into())
    }
}

impl BlobError {
    /// Returns the error of an operation that needs a blob. `what` is the beginning of a sentence for people that says
    /// what cannot be read; of a failed store nothing else is said.
    #[must_use]
    pub fn of_reading(self, what: &str) -> OperationError {
        match self {
            Self::Content(error) => error,
            Self::Unavailable(why) => OperationError::Unavailable(format!("{what}: {why}")),
            Self::Store(_) => OperationError::Failed(what.to_owned()),
        }
    }
}

/// The mark of a blob store, which lies in the store itself: it is not confused with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreMark {
    /// The identifier of the store.
    pub store: BlobStoreId,
    /// The only database whose blobs are in it.
    pub database: DatabaseId,
}

/// What a database knows of the store of its blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedStore {
    /// The identifier of the database.
    pub database: DatabaseId,
    /// The store; `None` until a server has started with one.
    pub store: Option<BlobStoreId>,
    /// Where the store was when it was recorded, for people.
    pub location: Option<String>,
}

/// What the store knows of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// The length of the content in bytes.
    pub size_bytes: u64,
    /// The time at which the content was stored.
    pub stored_at: OffsetDateTime,
}

/// The blob store. Keys are words of letters, digits, `.`, `_` and `-`, separated by `/`.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Stores the content atomically, and replaces a previous one.
    async fn put(&self, key: &str, content: ByteStream) -> Result<(), BlobError>;

    /// Returns the content as a stream; `None` if the blob does not exist.
    async fn get(&self, key: &str) -> Result<Option<ByteStream>, BlobError>;

    /// Returns `length` bytes from `offset` on, which must lie within the content.
    async fn get_part(&self, key: &str, offset: u64, length: u64) -> Result<Option<ByteStream>, BlobError>;

    /// Returns what is known of a blob; `None` if it does not exist.
    async fn find(&self, key: &str) -> Result<Option<BlobInfo>, BlobError>;

    /// Deletes a blob. A missing blob is not an error.
    async fn delete(&self, key: &str) -> Result<(), BlobError>;

    /// Returns the keys with this prefix, each with the time at which it was stored.
    async fn list(&self, prefix: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError>;

    /// Removes writes that ended processes have not finished and that nobody has continued for this time, or longer if
    /// the store does not know when a write was continued. Returns their number.
    async fn clear_unfinished(&self, untouched: Duration) -> Result<usize, BlobError>;
}
