//! Calls the function of a custom tool.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::invoke::{failed, gone, late, unknown};
use super::super::reference::ToolReference;
use super::super::{BROWSER_TIMEOUT, PAGE_TIMEOUT, WebMcp, documents, without_fragment};
use super::Code;
use super::definition::depth;
use crate::cdp::{Cdp, CdpError, Notice, text};
use crate::random_id::new_id;
use crate::reply::Refusal;
use casement_agent_protocol::script::ExecuteScript;
use casement_agent_protocol::webmcp::{InvokeTool, MAX_OUTPUT, ToolResult, ToolStatus};

/// The maximum depth of an output.
const MAX_DEPTH: usize = 100;

/// What the script of a call returns.
#[derive(Deserialize)]
struct Called {
    /// The output as JSON text.
    #[serde(default)]
    output: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    is_too_long: bool,
}

impl WebMcp {
    /// Calls the custom tool with this id for the document of a reference.
    pub(in super::super) async fn call_custom(
        &self,
        id: &str,
        reference: &ToolReference,
        request: &InvokeTool,
        deadline: Instant,
    ) -> Result<ToolResult, Refusal> {
        let registered = self.custom.find(id).ok_or_else(gone)?;
        let (cdp, notices) = Cdp::connect_within(&self.browser.endpoint(), BROWSER_TIMEOUT).await?;
        let pages = documents::pages(&cdp).await?;
        let page = pages.iter().find(|page| page.target_id == reference.target_id).ok_or_else(gone)?;
        let documents = documents::of_page(&cdp, page).await;
        if !documents.iter().any(|document| !document.is_embedded && reference.is_of(document)) {
            return Err(gone());
        }
        let matches: Vec<Value> = registered
            .matches(&documents)
            .map(|document| {
                json!({
                    "frame_id": document.frame_id, "target_id": document.target_id,
                    "top_target_id": page.target_id, "url": without_fragment(&document.url),
                })
            })
            .collect();
        if matches.is_empty() {
            return Err(gone());
        }
        match &registered.code {
            Code::Page(execute) => {
                let call = PageCall::prepare(cdp, notices, reference).await?;
                Ok(call.run(execute, request, deadline).await)
            }
            Code::Cdp(source, index) => self.call_beside(source, *index, &matches, reference, request, deadline).await,
        }
    }

    /// Calls a function by a script whose `page` is the page of the reference.
    async fn call_beside(
        &self,
        source: &str,
        index: usize,
        matches: &[Value],
        reference: &ToolReference,
        request: &InvokeTool,
        deadline: Instant,
    ) -> Result<ToolResult, Refusal> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        let code = format!(
            "const source = {}, index = {index}, input = {}, matches = {}, within = {timeout_ms};\n{}",
            json!(source),
            request.input,
            json!(matches),
            include_str!("call.js").replace("MAX_BYTES", &MAX_OUTPUT.to_string()),
        );
        let script = ExecuteScript { code, timeout_ms, within_ms: Some(timeout_ms), executor: None };
        let end = self.scripts.run(script, Some(reference.target_id.clone())).await?;
        let id = new_id();
        let called = end.result.filter(|_| end.success).map(|result| serde_json::from_str(result.get()));
        Ok(match called {
            Some(Ok(Called { output: Some(output), .. })) => completed(id, &output),
            Some(Ok(Called { is_too_long: true, .. })) => too_long(id),
            Some(Ok(Called { error, .. })) => failed(id, &error.unwrap_or_default()),
            // The process ended before the function did.
            Some(Err(_)) | None => unknown(id, &end.error.unwrap_or_default()),
        })
    }
}

/// The call of a function in a page. Dropping it ends the function.
struct PageCall {
    /// `None` once the call has ended.
    cdp: Option<Cdp>,
    notices: mpsc::Receiver<Notice>,
    session: String,
    /// The object id of an `AbortController` in the page.
    controller: String,
}

impl PageCall {
    /// Makes the signal in the document of the reference.
    async fn prepare(cdp: Cdp, notices: mpsc::Receiver<Notice>, reference: &ToolReference) -> Result<Self, Refusal> {
        let session = cdp.attach(&reference.target_id, BROWSER_TIMEOUT).await.map_err(|_| gone())?;
        let params = json!({ "expression": "new AbortController()" });
        let made = cdp.call(Some(&session), "Runtime.evaluate", params, PAGE_TIMEOUT).await?;
        let controller = text(&made["result"]["objectId"]).to_owned();
        // The signal is of this document or of a later one.
        let frames = documents::frames(&cdp, &session).await?;
        let is_current = |(frame, is_root): &(Value, bool)| *is_root && reference.is_frame(frame);
        if controller.is_empty() || !frames.iter().any(is_current) {
            return Err(gone());
        }
        Ok(Self { cdp: Some(cdp), notices, session, controller })
    }

    /// Calls the function that an expression describes, and waits for its output.
    async fn run(mut self, execute: &str, request: &InvokeTool, deadline: Instant) -> ToolResult {
        let id = new_id();
        let Some(cdp) = &self.cdp else { return unknown(id, "the browser ended") };
        let function = format!(
            "async function (input) {{ const output = JSON.stringify(await {execute}(input, {{ signal: this.signal }})) ?? 'null'; \
             return output.length > {MAX_OUTPUT} ? null : output; }}"
        );
        let params = json!({
            "objectId": self.controller, "functionDeclaration": function, "arguments": [{ "value": request.input }],
            "awaitPromise": true, "returnByValue": true, "userGesture": true,
        });
        let left = deadline.saturating_duration_since(Instant::now());
        let called = cdp.call(Some(&self.session), "Runtime.callFunctionOn", params, left);
        let called = tokio::select! {
            called = called => called,
            reason = left_page(&mut self.notices) => {
                self.cdp.take();
                return unknown(id, reason);
            }
        };
        if let Err(CdpError::Timeout { .. }) = called {
            // Dropping the call ends the function.
            return unknown(id, &late(request.timeout_ms));
        }
        self.cdp.take();
        match called {
            Ok(reply) if reply["exceptionDetails"].is_object() => failed(id, &exception(&reply["exceptionDetails"])),
            Ok(reply) => match &reply["result"] {
                result if result["subtype"] == "null" => too_long(id),
                result => completed(id, text(&result["value"])),
            },
            Err(CdpError::Refused { .. }) => unknown(id, "its page was left"),
            Err(_) => unknown(id, "the browser ended"),
        }
    }
}

impl Drop for PageCall {
    fn drop(&mut self) {
        let Some(cdp) = self.cdp.take() else { return };
        let (session, controller) = (std::mem::take(&mut self.session), std::mem::take(&mut self.controller));
        tokio::spawn(async move { abort(&cdp, &session, &controller).await });
    }
}

/// Aborts the signal, and terminates the page's code if the page does not answer.
async fn abort(cdp: &Cdp, session: &str, controller: &str) {
    let params = json!({ "objectId": controller, "functionDeclaration": "function () { this.abort(); }" });
    let aborted = cdp.call(Some(session), "Runtime.callFunctionOn", params, PAGE_TIMEOUT).await;
    if let Err(CdpError::Timeout { .. }) = aborted {
        drop(cdp.call(Some(session), "Runtime.terminateExecution", json!({}), PAGE_TIMEOUT).await);
    }
}

/// Waits until the page is closed or the browser ends, and returns which.
async fn left_page(notices: &mut mpsc::Receiver<Notice>) -> &'static str {
    loop {
        match notices.recv().await {
            Some(notice) if notice.method == "Target.detachedFromTarget" => return "its page was closed",
            Some(_) => {}
            None => return "the browser ended",
        }
    }
}

/// Returns the text of an exception.
fn exception(details: &Value) -> String {
    let thrown = &details["exception"];
    let texts = [&thrown["description"], &thrown["value"], &details["text"]];
    texts.into_iter().map(text).find(|text| !text.is_empty()).unwrap_or("the tool failed").to_owned()
}

fn completed(invocation_id: String, output: &str) -> ToolResult {
    if output.len() > MAX_OUTPUT {
        return too_long(invocation_id);
    }
    match serde_json::from_str::<Value>(output) {
        Ok(output) if depth(&output) <= MAX_DEPTH => {
            let output = Some(output).filter(|output| !output.is_null());
            ToolResult { invocation_id, status: ToolStatus::Completed, output, error_text: None }
        }
        _ => failed(invocation_id, "the tool has completed, but its output cannot be read"),
    }
}

fn too_long(invocation_id: String) -> ToolResult {
    failed(invocation_id, &format!("the tool has completed, but its output has more than {MAX_OUTPUT} bytes"))
}
