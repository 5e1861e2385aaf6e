//! The tools of pages, listed and called by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::webmcp::{
    self as wire, ADD_CUSTOM, INVOKE, LIST, LIST_CUSTOM, MAX_CUSTOM_TOOL, MAX_CUSTOM_TOOLS, MAX_LIST, MAX_OUTPUT,
    REMOVE_CUSTOM,
};
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::OperationError;
use casement_domain::webmcp::{
    CustomSource, CustomTool, CustomToolKind, EmbeddedFrame, NewCustomTools, NewToolCall, PageTool, ToolHints,
    ToolMachine, ToolResult, ToolStatus,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::new_operation_error;
use super::process::milliseconds;
use crate::engine::Engine;
use crate::fault::failed;

/// A schema or an output as text.
type Raw = Box<RawValue>;

/// The timeout of a list. Each page has a timeout of its own.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Added to the timeout of a tool: the time to find it and to cancel it.
const FIND_GRACE: Duration = Duration::from_secs(45);
/// The timeout of adding custom tools: the agent's own, and the time to start a process.
const ADD_TIMEOUT: Duration = Duration::from_secs(75);
/// The timeout of listing and removing custom tools.
const CUSTOM_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest response in bytes: a list or an output, with what surrounds it.
const MAX_RESPONSE: usize = MAX_LIST + MAX_OUTPUT + (1 << 20);
/// The longest list of custom tools in bytes, with their patterns.
const MAX_CUSTOM_RESPONSE: usize = MAX_CUSTOM_TOOLS * 2 * MAX_CUSTOM_TOOL;

#[async_trait]
impl ToolMachine for Engine {
    async fn tools(&self, browser: BrowserId, excludes_custom: bool) -> Result<Vec<PageTool>, OperationError> {
        let request = wire::ListTools { exclude_custom: excludes_custom };
        let listed: wire::ToolList<Raw> = self.ask_pages(browser, LIST, &request, LIST_TIMEOUT, MAX_RESPONSE).await?;
        Ok(listed.tools.into_iter().map(tool).collect())
    }

    async fn call_tool(&self, browser: BrowserId, call: NewToolCall) -> Result<ToolResult, OperationError> {
        let invalid = |_| failed(EngineFault::AgentError, "the input of a tool is not JSON");
        let request = wire::InvokeTool {
            tool_ref: call.tool_ref,
            input: serde_json::from_str(&call.input).map_err(invalid)?,
            timeout_ms: milliseconds(call.timeout),
        };
        let within = call.timeout + FIND_GRACE;
        let ended: wire::ToolResult<Raw> = self.ask_pages(browser, INVOKE, &request, within, MAX_RESPONSE).await?;
        Ok(ToolResult {
            invocation_id: ended.invocation_id,
            status: match ended.status {
                wire::ToolStatus::Completed => ToolStatus::Completed,
                wire::ToolStatus::Canceled => ToolStatus::Canceled,
                wire::ToolStatus::Error => ToolStatus::Error,
                wire::ToolStatus::AwaitingSubmission => ToolStatus::AwaitingSubmission,
            },
            output: ended.output.map(|output| output.get().to_owned()),
            error: ended.error_text,
        })
    }

    async fn add_custom_tools(
        &self,
        browser: BrowserId,
        tools: NewCustomTools,
    ) -> Result<Vec<CustomTool>, OperationError> {
        let NewCustomTools { namespace, source, overwrites } = tools;
        let request = wire::AddTools { namespace, source, overwrite: overwrites };
        let added: wire::CustomTools<Raw> =
            self.ask_pages(browser, ADD_CUSTOM, &request, ADD_TIMEOUT, MAX_CUSTOM_RESPONSE).await?;
        Ok(added.tools.into_iter().map(custom_tool).collect())
    }

    async fn custom_tools(&self, browser: BrowserId) -> Result<Vec<CustomTool>, OperationError> {
        let listed: wire::CustomTools<Raw> =
            self.ask_pages(browser, LIST_CUSTOM, &(), CUSTOM_TIMEOUT, MAX_CUSTOM_RESPONSE).await?;
        Ok(listed.tools.into_iter().map(custom_tool).collect())
    }

    async fn remove_custom_tool(&self, browser: BrowserId, id: String) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let removed = running.agent.command(REMOVE_CUSTOM, &wire::RemoveTool { id }, CUSTOM_TIMEOUT).await;
        removed.map_err(|error| new_operation_error(&running, &error))
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
        max_bytes: usize,
    ) -> Result<T, OperationError> {
        let running = self.running(browser)?;
        let answered = async { running.agent.download(path, request, within).await?.collect(max_bytes).await };
        let bytes = answered.await.map_err(|error| new_operation_error(&running, &error))?;
        serde_json::from_slice(&bytes)
            .map_err(|_| failed(EngineFault::AgentError, "the agent sent an invalid description of tools").into())
    }
}

fn tool(received: wire::Tool<Raw>) -> PageTool {
    PageTool {
        tool_ref: received.tool_ref,
        name: received.name,
        title: received.title,
        description: received.description,
        input_schema: schema(received.input_schema),
        output_schema: schema(received.output_schema),
        hints: hints(received.annotations),
        window_id: received.window_id,
        tab_id: received.tab_id,
        page_title: received.page_title,
        page_url: received.page_url,
        frame: received.frame.map(|wire::Frame { frame_id, url }| EmbeddedFrame { frame_id, url }),
        custom: received.custom.map(|wire::CustomSource { id, namespace, target_id }| CustomSource {
            id,
            namespace,
            target_id,
        }),
    }
}

fn custom_tool(received: wire::CustomTool<Raw>) -> CustomTool {
    CustomTool {
        id: received.id,
        namespace: received.namespace,
        kind: match received.kind {
            wire::CustomToolKind::Page => CustomToolKind::Page,
            wire::CustomToolKind::Cdp => CustomToolKind::Cdp,
        },
        url_patterns: received.url_patterns,
        name: received.name,
        title: received.title,
        description: received.description,
        input_schema: received.input_schema.get().to_owned(),
        output_schema: schema(received.output_schema),
        hints: hints(received.annotations),
    }
}

fn hints(received: wire::Annotations) -> ToolHints {
    let wire::Annotations {
        read_only,
        untrusted_content,
        consequential,
        autosubmit,
        destructive,
        idempotent,
        open_world,
    } = received;
    ToolHints { read_only, untrusted_content, consequential, autosubmit, destructive, idempotent, open_world }
}

/// Returns a schema as JSON text; `None` if it is no object.
fn schema(received: Option<Raw>) -> Option<String> {
    received.filter(|schema| schema.get().starts_with('{')).map(|schema| schema.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pages_describe_and_return_stays_text() {
        let output = format!("[{}0]", r#"{"":0},"#.repeat(500_000));
        let text = format!(r#"{{"invocation_id":"1","status":"completed","output":{output}}}"#);
        let received: wire::ToolResult<Raw> = serde_json::from_str(&text).expect("a result");
        assert!(received.output.is_some_and(|raw| raw.get() == output));
        let raw = |text: &str| serde_json::from_str::<Option<Raw>>(text).expect("JSON");
        assert_eq!(schema(raw(r#"{"type":"object"}"#)).as_deref(), Some(r#"{"type":"object"}"#));
        for other in ["[]", "1", "null", "\"{}\""] {
            assert_eq!(schema(raw(other)), None, "{other}");
        }
    }
}
