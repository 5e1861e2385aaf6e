//! The rows of deleted resources, which stay for a while because sessions and connections refer to them.

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::StoreError;

/// The rows of deleted projects, API keys, pools, proxies and profiles.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeletedResources: Send + Sync + 'static {
    /// Removes resources that were deleted before `before` and to which nothing refers, at most `max` of each kind. Returns
    /// their number.
    ///
    /// # Errors
    /// Returns the error of the store.
    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError>;
}
