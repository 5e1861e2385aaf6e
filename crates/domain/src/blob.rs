//! Where the bytes of stored things lie, which no database should hold.

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::session_operation::{ByteStream, OperationError};

/// Bytes could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The bytes to keep broke off, or were refused on their way.
    #[error(transparent)]
    Content(#[from] OperationError),
    /// The store of bytes failed; the same call may work later.
    #[error("stored bytes cannot be reached: {0}")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Keeps bytes under keys: `/`-separated words of letters, digits, `.`, `_` and `-`.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Keeps the bytes, whole or not at all, in place of what was there.
    async fn put(&self, key: &str, content: ByteStream) -> Result<(), BlobError>;

    /// The bytes, as they come.
    async fn get(&self, key: &str) -> Result<Option<ByteStream>, BlobError>;

    /// `length` bytes from `offset` on, which must lie within what is there.
    async fn get_part(&self, key: &str, offset: u64, length: u64) -> Result<Option<ByteStream>, BlobError>;

    /// Forgets the bytes. Forgetting what is not there is fine.
    async fn delete(&self, key: &str) -> Result<(), BlobError>;

    /// The keys below `prefix`, and since when each is there.
    async fn list(&self, prefix: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError>;
}
