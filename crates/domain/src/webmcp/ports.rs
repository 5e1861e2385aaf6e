//! The port that lists and calls tools.

use async_trait::async_trait;

use super::{NewToolCall, PageTool, ToolResult};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// The port that lists and calls the tools of a browser's pages.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ToolMachine: Send + Sync {
    /// Returns the tools of all pages and embedded frames. Pages that do not answer have none.
    ///
    /// # Errors
    /// The browser or its agent failed.
    async fn tools(&self, browser: BrowserId) -> Result<Vec<PageTool>, OperationError>;

    /// Calls a tool and waits for its result, or until a form is filled in. Failures and timeouts of the tool are
    /// results, not errors.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if the reference is not valid any more, [`OperationError::State`] if the page has a
    /// dialog, [`OperationError::NotSupported`] if the browser does not know WebMCP.
    async fn call_tool(&self, browser: BrowserId, call: NewToolCall) -> Result<ToolResult, OperationError>;
}
