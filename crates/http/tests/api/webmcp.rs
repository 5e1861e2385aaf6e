//! The routes `…/webmcp`.

use std::time::Duration;

use casement_domain::{
    session_operation::OperationError,
    testing::{browser_id, session, session_id},
    webmcp::{EmbeddedFrame, NewToolCall, PageTool, ToolHints, ToolResult, ToolStatus},
};
use casement_http::Permission;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Ports, TestApi};

pub(super) fn ports() -> Ports {
    let mut ports = Ports::default();
    ports.sessions.expect_find().returning(|wanted| Ok((wanted == session_id(1)).then(|| session(1))));
    ports
        .sessions
        .expect_find_in_project()
        .returning(|_, which, _| Ok((format!("{which:?}").contains(&session_id(1).to_string())).then(|| session(1))));
    ports
}

pub(super) fn path(operation: &str) -> String {
    format!("/browsers/{}/webmcp/{operation}", session_id(1))
}

fn result(status: ToolStatus) -> ToolResult {
    ToolResult { invocation_id: "I1".to_owned(), status, output: None, error: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tools_of_pages_and_their_frames_are_listed() {
    let mut ports = ports();
    ports.page_tools.expect_tools().times(2).returning(|browser, _| {
        assert_eq!(browser, browser_id(1));
        let plain = PageTool {
            tool_ref: "r1".to_owned(),
            name: "add".to_owned(),
            description: "adds".to_owned(),
            window_id: 1,
            tab_id: 2,
            page_title: "Shop".to_owned(),
            page_url: "https://shop.example/".to_owned(),
            ..PageTool::default()
        };
        let framed = PageTool {
            title: Some("Add".to_owned()),
            input_schema: Some(r#"{"type": "object"}"#.to_owned()),
            hints: ToolHints { read_only: Some(true), autosubmit: Some(false), ..ToolHints::default() },
            frame: Some(EmbeddedFrame { frame_id: 3, url: "https://pay.example/".to_owned() }),
            ..plain.clone()
        };
        Ok(vec![plain, framed])
    });
    let api = TestApi::start(ports);
    let source = json!({
        "window_id": 1, "tab_id": 2, "page_title": "Shop", "page_url": "https://shop.example/", "frame": null,
    });
    let plain = json!({ "name": "add", "description": "adds", "inputSchema": {}, "annotations": {} });
    let framed = json!({
        "name": "add", "title": "Add", "description": "adds", "inputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": true, "autosubmit": false },
    });
    let mut frame_source = source.clone();
    frame_source["frame"] = json!({ "frame_id": 3, "url": "https://pay.example/" });
    let tools = json!([
        { "tool_ref": "r1", "tool": plain, "source": source },
        { "tool_ref": "r1", "tool": framed, "source": frame_source },
    ]);
    for query in ["tools", "tools?exclude_custom=true"] {
        let reply = api.get(&path(query)).await;
        assert_eq!((reply.status, reply.json()), (200, json!({ "tools": tools })));
    }
    assert_eq!(api.get(&path("tools?exclude_custom=maybe")).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_invoked_and_its_output_is_returned() {
    let mut ports = ports();
    ports.page_tools.expect_call_tool().times(1).returning(|browser, call| {
        let (tool_ref, input) = ("r1".to_owned(), r#"{"a":1}"#.to_owned());
        assert_eq!((browser, call), (browser_id(1), NewToolCall { tool_ref, input, timeout: Duration::from_secs(7) }));
        Ok(ToolResult { output: Some(r#"{"sum":2}"#.to_owned()), ..result(ToolStatus::Completed) })
    });
    let body = json!({ "tool_ref": "r1", "input": { "a": 1 }, "timeout_sec": 7 });
    let reply = TestApi::start(ports).post(&path("invoke"), body).await;
    let wanted = json!({ "invocation_id": "I1", "status": "completed", "output": { "sum": 2 } });
    assert_eq!((reply.status, reply.json()), (200, wanted));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_fails_is_no_failure_of_the_call() {
    for (status, text) in [
        (ToolStatus::Error, "error"),
        (ToolStatus::Canceled, "canceled"),
        (ToolStatus::AwaitingSubmission, "awaiting_submission"),
    ] {
        let mut ports = ports();
        let ended = ToolResult { error: Some("why".to_owned()), ..result(status) };
        ports.page_tools.expect_call_tool().return_once(move |_, _| Ok(ended));
        let reply = TestApi::start(ports).post(&path("invoke"), json!({ "tool_ref": "r1", "input": {} })).await;
        let wanted = json!({ "invocation_id": "I1", "status": text, "error_text": "why" });
        assert_eq!((reply.status, reply.json()), (200, wanted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_tools_out_of_bounds_and_stale_references_are_refused() {
    let api = TestApi::start(ports());
    let long = "x".repeat(1 << 20);
    let reply = api.post(&path("invoke"), json!({ "input": { "a": long }, "timeout_sec": 0 })).await;
    let details = [
        "required: tool_ref: is required",
        "too_long: input: must have at most 1048576 bytes",
        "out_of_range: timeout_sec: must be from 1 to 600",
    ];
    assert_eq!((reply.status, reply.details()), (400, details.map(str::to_owned).to_vec()));
    let reply = api.post(&path("invoke"), json!({ "tool_ref": "r1", "input": [] })).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"));
    for (refusal, status, code) in [
        (OperationError::Missing("the tool does not exist".to_owned()), 404, "not_found"),
        (OperationError::NotSupported("this browser does not support WebMCP".to_owned()), 400, "not_supported"),
        (OperationError::State("a dialog is open".to_owned()), 409, "invalid_state"),
    ] {
        let mut ports = ports();
        ports.page_tools.expect_call_tool().return_once(move |_, _| Err(refusal));
        let reply = TestApi::start(ports).post(&path("invoke"), json!({ "tool_ref": "r1", "input": {} })).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_full_access_lists_tools_on_the_direct_route() {
    let mut ports = ports();
    ports.page_tools.expect_tools().times(1).returning(|_, _| Ok(Vec::new()));
    let api = TestApi::start(ports);
    for (permission, status) in [(Permission::Drive, 200), (Permission::View, 403)] {
        let token = api.token(session_id(1), permission);
        let reply = api.request("GET", &format!("/vm/{}/webmcp/tools?jwt={token}", session_id(1)), &[], "").await;
        assert_eq!(reply.status, status, "{reply}");
    }
}
