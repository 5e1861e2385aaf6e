//! The use cases of tools.

use std::sync::Arc;

use super::{CustomTool, NewCustomTools, NewToolCall, PageTool, ToolMachine, ToolResult};
use crate::engine::Capability;
use crate::session::Session;
use crate::session_operation::{OperationError, SessionOperations};

/// The use cases of tools of pages.
#[derive(Clone)]
pub struct PageTools {
    machine: Arc<dyn ToolMachine>,
    operations: SessionOperations,
}

impl PageTools {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn ToolMachine>, operations: SessionOperations) -> Self {
        Self { machine, operations }
    }

    /// Returns the tools of a session's pages.
    ///
    /// # Errors
    /// See [`ToolMachine::tools`].
    pub async fn list(&self, session: &Session, excludes_custom: bool) -> Result<Vec<PageTool>, OperationError> {
        let entered = self.operations.begin(session, Capability::WebMcp)?;
        self.machine.tools(entered.browser, excludes_custom).await
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// See [`ToolMachine::call_tool`].
    pub async fn call(&self, session: &Session, call: NewToolCall) -> Result<ToolResult, OperationError> {
        let entered = self.operations.begin(session, Capability::WebMcp)?;
        self.machine.call_tool(entered.browser, call).await
    }

    /// Adds custom tools to a session.
    ///
    /// # Errors
    /// See [`ToolMachine::add_custom_tools`].
    pub async fn add_custom(
        &self,
        session: &Session,
        tools: NewCustomTools,
    ) -> Result<Vec<CustomTool>, OperationError> {
        let entered = self.operations.begin(session, Capability::WebMcp)?;
        self.machine.add_custom_tools(entered.browser, tools).await
    }

    /// Returns the custom tools of a session.
    ///
    /// # Errors
    /// See [`ToolMachine::custom_tools`].
    pub async fn list_custom(&self, session: &Session) -> Result<Vec<CustomTool>, OperationError> {
        let entered = self.operations.begin(session, Capability::WebMcp)?;
        self.machine.custom_tools(entered.browser).await
    }

    /// Removes a custom tool of a session.
    ///
    /// # Errors
    /// See [`ToolMachine::remove_custom_tool`].
    pub async fn remove_custom(&self, session: &Session, id: String) -> Result<(), OperationError> {
        let entered = self.operations.begin(session, Capability::WebMcp)?;
        self.machine.remove_custom_tool(entered.browser, id).await
    }
}
