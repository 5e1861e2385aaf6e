//! What requests need from outside.

use async_trait::async_trait;

use super::{CurlAnswer, CurlRequest};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// Sends requests through a session's browser.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait CurlMachine: Send + Sync {
    /// Sends one request; answers when the head of the answer is there. Dropping the future, or the body, gives the request up.
    ///
    /// # Errors
    /// [`OperationError::Upstream`] with the browser's word for what failed, [`OperationError::Unanswered`], [`OperationError::Limit`].
    async fn send(&self, browser: BrowserId, request: CurlRequest) -> Result<CurlAnswer, OperationError>;
}
