//! The port to blobs: bytes that are stored outside of the database.

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::error::{SpecificError, UseCaseError};
use crate::session_operation::{ByteStream, OperationError};

/// The error of storing or reading a blob.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The content to store was refused, or its stream failed.
    #[error(transparent)]
    Content(#[from] OperationError),
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

    /// Deletes a blob. A missing blob is not an error.
    async fn delete(&self, key: &str) -> Result<(), BlobError>;

    /// Returns the keys with this prefix, each with the time at which it was stored.
    async fn list(&self, prefix: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError>;
}
