//! The port that lists and calls tools.

use async_trait::async_trait;

use super::{CustomTool, NewCustomTools, NewToolCall, PageTool, ToolResult};
use crate::ids::BrowserId;
use crate::session_operation::OperationError;

/// The port that lists and calls the tools of a browser's pages.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ToolMachine: Send + Sync {
    /// Returns the tools of all pages and embedded frames, with the custom tools for each page unless they are excluded.
    /// Pages that do not answer have none.
    ///
    /// # Errors
    /// The browser or its agent failed.
    async fn tools(&self, browser: BrowserId, excludes_custom: bool) -> Result<Vec<PageTool>, OperationError>;

    /// Calls a tool and waits for its result, or until a form is filled in. Failures and timeouts of the tool are
    /// results, not errors.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if the reference is not valid any more, [`OperationError::State`] if the page has a
    /// dialog, [`OperationError::NotSupported`] if the browser does not know WebMCP.
    async fn call_tool(&self, browser: BrowserId, call: NewToolCall) -> Result<ToolResult, OperationError>;

    /// Adds all custom tools of a source, or none, and returns those that were added.
    ///
    /// # Errors
    /// [`OperationError::Invalid`] if the source is invalid, [`OperationError::Exists`] if its namespace has a tool of the
    /// same name, [`OperationError::State`] if the session would have too many or a page has a dialog,
    /// [`OperationError::Limit`] if too many scripts wait, [`OperationError::NotSupported`] without a script runner.
    async fn add_custom_tools(
        &self,
        browser: BrowserId,
        tools: NewCustomTools,
    ) -> Result<Vec<CustomTool>, OperationError>;

    /// Returns all custom tools, in the order in which they were added.
    ///
    /// # Errors
    /// The agent failed.
    async fn custom_tools(&self, browser: BrowserId) -> Result<Vec<CustomTool>, OperationError>;

    /// Removes a custom tool.
    ///
    /// # Errors
    /// [`OperationError::Missing`] if it does not exist.
    async fn remove_custom_tool(&self, browser: BrowserId, id: String) -> Result<(), OperationError>;
}
