//! The port to logs.

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use super::{FollowLog, LogLine};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// Lines, in order.
pub type LogLines = BoxStream<'static, Result<LogLine, OperationError>>;

/// Reads logs inside a session's machine.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait LogMachine: Send + Sync {
    /// The lines of a log from its beginning on, or from the first one kept.
    ///
    /// # Errors
    /// [`OperationError::Missing`], [`OperationError::Forbidden`], [`OperationError::Limit`]; [`OperationError::Invalid`] for what is no regular
    /// file.
    async fn follow(&self, browser: BrowserId, log: FollowLog) -> Result<LogLines, OperationError>;
}
