//! The use cases of tools.

use std::sync::Arc;

use super::{NewToolCall, PageTool, ToolMachine, ToolResult};
use crate::session::{Activity, Session};
use crate::session_operation::{OperationError, enter};

/// The use cases of tools of pages.
#[derive(Clone)]
pub struct PageTools {
    machine: Arc<dyn ToolMachine>,
    activity: Activity,
}

impl PageTools {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn ToolMachine>, activity: Activity) -> Self {
        Self { machine, activity }
    }

    /// Returns the tools of a session's pages.
    ///
    /// # Errors
    /// See [`ToolMachine::tools`].
    pub async fn list(&self, session: &Session) -> Result<Vec<PageTool>, OperationError> {
        let entered = enter(session, &self.activity)?;
        self.machine.tools(entered.browser).await
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// See [`ToolMachine::call_tool`].
    pub async fn call(&self, session: &Session, call: NewToolCall) -> Result<ToolResult, OperationError> {
        let entered = enter(session, &self.activity)?;
        self.machine.call_tool(entered.browser, call).await
    }
}
