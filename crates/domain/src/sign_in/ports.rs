//! The port of sign-ins.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{CookieHash, SignIn};
use crate::ids::ApiKeyId;
use crate::store_error::StoreError;

/// The sign-ins that are kept beside a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignInBounds {
    /// Those that began after this time.
    pub started_after: OffsetDateTime,
    /// Those that were used after this time.
    pub used_after: OffsetDateTime,
    /// The maximum number with one key, the new one included.
    pub max_per_key: u32,
    /// The maximum number in total, the new one included.
    pub max_total: u32,
}

/// The port to the stored sign-ins.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait SignInRepository: Send + Sync {
    /// Stores a new sign-in, and deletes those beyond `bounds`, longest idle first.
    async fn create(&self, sign_in: &SignIn, bounds: &SignInBounds) -> Result<(), StoreError>;

    /// Returns the sign-in of a cookie.
    async fn find(&self, cookie: CookieHash) -> Result<Option<SignIn>, StoreError>;

    /// Stores that the sign-in was used at `at`, unless a later use is stored.
    async fn mark_used(&self, cookie: CookieHash, at: OffsetDateTime) -> Result<(), StoreError>;

    /// Deletes the sign-in of a cookie, if there is one.
    async fn delete(&self, cookie: CookieHash) -> Result<(), StoreError>;

    /// Deletes all sign-ins with this key.
    async fn delete_of_key(&self, key: ApiKeyId) -> Result<(), StoreError>;
}
