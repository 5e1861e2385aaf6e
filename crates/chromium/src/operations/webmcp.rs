//! The tools of pages, listed and called by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::webmcp::{self as wire, INVOKE, LIST, MAX_LIST, MAX_OUTPUT};
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::OperationError;
use casement_domain::webmcp::{EmbeddedFrame, NewToolCall, PageTool, ToolHints, ToolMachine, ToolResult, ToolStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::new_operation_error;
use super::process::milliseconds;
use crate::engine::Engine;
use crate::fault::failed;

/// The timeout of a list. Each page has a timeout of its own.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Added to the timeout of a tool: the time to find it and to cancel it.
const FIND_GRACE: Duration = Duration::from_secs(45);
/// The longest response in bytes: a list or an output, with what surrounds it.
const MAX_RESPONSE: usize = MAX_LIST + MAX_OUTPUT + (1 << 20);

#[async_trait]
impl ToolMachine for Engine {
    async fn tools(&self, browser: BrowserId) -> Result<Vec<PageTool>, OperationError> {
        let listed: wire::ToolList = self.ask_pages(browser, LIST, &(), LIST_TIMEOUT).await?;
        Ok(listed.tools.into_iter().map(tool).collect())
    }

    async fn call_tool(&self, browser: BrowserId, call: NewToolCall) -> Result<ToolResult, OperationError> {
        let invalid = |_| failed(EngineFault::AgentError, "the input of a tool is not JSON");
        let request = wire::InvokeTool {
            tool_ref: call.tool_ref,
            input: serde_json::from_str(&call.input).map_err(invalid)?,
            timeout_ms: milliseconds(call.timeout),
        };
        let ended: wire::ToolResult = self.ask_pages(browser, INVOKE, &request, call.timeout + FIND_GRACE).await?;
        Ok(ToolResult {
            invocation_id: ended.invocation_id,
            status: match ended.status {
                wire::ToolStatus::Completed => ToolStatus::Completed,
                wire::ToolStatus::Canceled => ToolStatus::Canceled,
                wire::ToolStatus::Error => ToolStatus::Error,
                wire::ToolStatus::AwaitingSubmission => ToolStatus::AwaitingSubmission,
            },
            output: ended.output.map(|output| output.to_string()),
            error: ended.error_text,
        })
    }
}

impl Engine {
    /// Calls an operation on pages over a separate connection, which is closed when the caller disconnects.
    async fn ask_pages<T: DeserializeOwned>(
        &self,
        browser: BrowserId,
        path: &'static str,
        request: &(impl Serialize + Sync),
        within: Duration,
    ) -> Result<T, OperationError> {
        let running = self.running(browser)?;
        let answered = async { running.agent.download(path, request, within).await?.collect(MAX_RESPONSE).await };
        let bytes = answered.await.map_err(|error| new_operation_error(&running, &error))?;
        serde_json::from_slice(&bytes)
            .map_err(|_| failed(EngineFault::AgentError, "the agent sent an invalid description of tools").into())
    }
}

fn tool(received: wire::Tool) -> PageTool {
    let wire::Annotations { read_only, untrusted_content, consequential, autosubmit } = received.annotations;
    let schema = received.input_schema.filter(serde_json::Value::is_object);
    PageTool {
        tool_ref: received.tool_ref,
        name: received.name,
        title: received.title,
        description: received.description,
        input_schema: schema.map(|schema| schema.to_string()),
        hints: ToolHints { read_only, untrusted_content, consequential, autosubmit },
        window_id: received.window_id,
        tab_id: received.tab_id,
        page_title: received.page_title,
        page_url: received.page_url,
        frame: received.frame.map(|wire::Frame { frame_id, url }| EmbeddedFrame { frame_id, url }),
    }
}
