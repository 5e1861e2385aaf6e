//! The port to logs.

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use super::{FollowLog, LogLine};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// Log lines in order.
pub type LogLines = BoxStream<'static, Result<LogLine, OperationError>>;

/// The port to the logs in a sandbox.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LogMachine: Send + Sync {
    /// Returns the lines of a log from the beginning on, or from the first one that is stored.
    ///
    /// # Errors
    /// [`OperationError::Missing`], [`OperationError::Forbidden`], [`OperationError::Limit`]; [`OperationError::Invalid`] if it is no
    /// regular file.
    async fn follow(&self, browser: BrowserId, log: FollowLog) -> Result<LogLines, OperationError>;
}
