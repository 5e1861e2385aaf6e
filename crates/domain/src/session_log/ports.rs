//! The port to logs.

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use super::{FollowLog, LogLine};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// The lines of a log, in order.
pub type LogLines = BoxStream<'static, Result<LogLine, OperationError>>;

/// The port to the logs in a sandbox.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LogMachine: Send + Sync {
    /// Returns the lines of a log from the beginning on, or from the first buffered line on.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if the file does not exist, [`OperationError::Forbidden`] if it may not be read,
    /// [`OperationError::Invalid`] if it is no regular file, [`OperationError::Limit`] if too many logs are read.
    async fn follow(&self, browser: BrowserId, log: FollowLog) -> Result<LogLines, OperationError>;
}
