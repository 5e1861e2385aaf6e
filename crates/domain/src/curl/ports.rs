//! The port that sends requests.

use async_trait::async_trait;

use super::{CurlAnswer, CurlRequest};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// The port that sends requests through a session's browser.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait CurlMachine: Send + Sync {
    /// Sends one request; returns when the head of the response has arrived. Dropping the future or the body aborts it.
    ///
    /// # Errors
    /// [`OperationError::Upstream`] with the browser's name of the error, [`OperationError::Unanswered`],
    /// [`OperationError::Limit`].
    async fn send(&self, browser: BrowserId, request: CurlRequest) -> Result<CurlAnswer, OperationError>;
}
