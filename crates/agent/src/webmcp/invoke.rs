//! Invokes a tool and waits for its result.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::reference::ToolReference;
use super::{BROWSER_TIMEOUT, PAGE_TIMEOUT, WebMcp, documents};
use crate::cdp::{Cdp, CdpError, Notice, text};
use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::webmcp::{InvokeTool, MAX_OUTPUT, ToolResult, ToolStatus};

/// The longest error text, in characters.
const MAX_ERROR: usize = 10_000;

impl WebMcp {
    pub(super) async fn invoke(&self, request: InvokeTool) -> Result<ToolResult, Refusal> {
        let running = self.browser.usable()?;
        let reference = ToolReference::decode(&request.tool_ref).ok_or_else(gone)?;
        if let Some(block) = running.browser.block_of(&reference.target_id) {
            return Err(block.into());
        }
        let deadline = Instant::now() + Duration::from_millis(request.timeout_ms);
        if let Some(id) = &reference.custom {
            return self.call_custom(id, &reference, &request, deadline).await;
        }
        let (cdp, notices) = Cdp::connect_within(&self.browser.endpoint(), BROWSER_TIMEOUT).await?;
        let session = cdp.attach(&reference.target_id, BROWSER_TIMEOUT).await.map_err(missing)?;
        let tools = documents::tools(&cdp, &session, &reference.frame_id).await.map_err(missing)?;
        let tool = tools.iter().find(|tool| reference.names(tool)).ok_or_else(gone)?;
        cdp.call(Some(&session), "WebMCP.enable", json!({}), PAGE_TIMEOUT).await.map_err(unsupported)?;
        // The tools may be those of a document that came meanwhile.
        let frames = documents::frames(&cdp, &session).await.map_err(missing)?;
        if !frames.iter().any(|(frame, _)| reference.is_frame(frame)) {
            return Err(gone());
        }
        let params = json!({ "frameId": reference.frame_id, "toolName": tool.name, "input": request.input });
        let begun = cdp.call(Some(&session), "WebMCP.invokeTool", params, PAGE_TIMEOUT).await.map_err(missing)?;
        let id = text(&begun["invocationId"]).to_owned();
        let mut invocation = Invocation { cdp, session, notices, id };
        let ended = if tool.awaits_submission() {
            timeout_at(deadline, invocation.fill_in()).await
        } else {
            timeout_at(deadline, invocation.end()).await
        };
        Ok(match ended {
            Ok(result) => result,
            Err(_) => invocation.time_out(request.timeout_ms).await,
        })
    }
}

/// A tool that runs.
struct Invocation {
    cdp: Cdp,
    session: String,
    notices: mpsc::Receiver<Notice>,
    id: String,
}

impl Invocation {
    /// Waits for the end of the tool.
    async fn end(&mut self) -> ToolResult {
        loop {
            let Some(notice) = self.notices.recv().await else {
                return self.unknown("the browser ended");
            };
            if let Some(result) = self.result(notice) {
                return result;
            }
        }
    }

    /// Waits until a form is filled in, or for the end of the tool if that comes before.
    async fn fill_in(&mut self) -> ToolResult {
        loop {
            let Some(notice) = self.notices.recv().await else {
                return self.unknown("the browser ended");
            };
            if notice.method == "WebMCP.toolInvoked" && text(&notice.params["invocationId"]) == self.id {
                break;
            }
            if let Some(result) = self.result(notice) {
                return result;
            }
        }
        // The page answers after it has filled in the form.
        let nothing = json!({ "expression": "0" });
        drop(self.cdp.call(Some(&self.session), "Runtime.evaluate", nothing, PAGE_TIMEOUT).await);
        while let Ok(notice) = self.notices.try_recv() {
            if let Some(result) = self.result(notice) {
                return result;
            }
        }
        self.ended(ToolStatus::AwaitingSubmission)
    }

    /// Returns the result that a notice contains.
    fn result(&self, mut notice: Notice) -> Option<ToolResult> {
        match notice.method.as_str() {
            "WebMCP.toolResponded" if text(&notice.params["invocationId"]) == self.id => {}
            "Target.detachedFromTarget" => return Some(self.unknown("its page was closed")),
            _ => return None,
        }
        let output = Some(notice.params["output"].take()).filter(|output| !output.is_null());
        let is_too_long = output.as_ref().is_some_and(|output| output.to_string().len() > MAX_OUTPUT);
        Some(match text(&notice.params["status"]) {
            "Completed" if is_too_long => {
                self.failed(&format!("the tool has completed, but its output has more than {MAX_OUTPUT} bytes"))
            }
            "Completed" => ToolResult { output, ..self.ended(ToolStatus::Completed) },
            "Canceled" => self.ended(ToolStatus::Canceled),
            _ => {
                let reasons = [&notice.params["errorText"], &notice.params["exception"]["description"]];
                let reason = reasons.into_iter().map(text).find(|reason| !reason.is_empty());
                self.failed(reason.unwrap_or("the tool failed"))
            }
        })
    }

    /// Cancels the tool, whose time is over.
    async fn time_out(&mut self, timeout_ms: u64) -> ToolResult {
        let invocation = json!({ "invocationId": self.id });
        drop(self.cdp.call(Some(&self.session), "WebMCP.cancelInvocation", invocation, PAGE_TIMEOUT).await);
        self.unknown(&late(timeout_ms))
    }

    fn ended(&self, status: ToolStatus) -> ToolResult {
        ToolResult { invocation_id: self.id.clone(), status, output: None, error_text: None }
    }

    fn failed(&self, reason: &str) -> ToolResult {
        failed(self.id.clone(), reason)
    }

    fn unknown(&self, reason: &str) -> ToolResult {
        unknown(self.id.clone(), reason)
    }
}

/// Returns the result of a tool that failed.
pub(super) fn failed(invocation_id: String, reason: &str) -> ToolResult {
    let error_text = Some(reason.chars().take(MAX_ERROR).collect());
    ToolResult { invocation_id, status: ToolStatus::Error, output: None, error_text }
}

/// Returns the result of a tool whose effects are unknown.
pub(super) fn unknown(invocation_id: String, reason: &str) -> ToolResult {
    failed(invocation_id, &format!("outcome_unknown: {reason}"))
}

/// Returns the reason of a tool that was canceled at its timeout.
pub(super) fn late(timeout_ms: u64) -> String {
    format!("it had not ended within {} s and was canceled", Duration::from_millis(timeout_ms).as_secs_f64())
}

/// Returns the refusal of a reference whose tool does not exist any more.
pub(super) fn gone() -> Refusal {
    Refusal::new(ErrorCode::Missing, "the tool does not exist, or its page has changed: list the tools again")
}

/// Converts the browser's refusal of a target or of a tool.
fn missing(error: CdpError) -> Refusal {
    match error {
        CdpError::Refused { .. } => gone(),
        error => error.into(),
    }
}

/// Converts the refusal of a browser that does not know WebMCP.
fn unsupported(error: CdpError) -> Refusal {
    match error {
        CdpError::Refused { .. } => Refusal::new(ErrorCode::NotSupported, "this browser does not support WebMCP"),
        error => error.into(),
    }
}
