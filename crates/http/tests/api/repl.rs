//! The route `…/repl`.

use std::time::Duration;

use casement_domain::{
    script::{Evaluation, NewEvaluation, ReplChannel, ReplContent},
    session_operation::OperationError,
    testing::{browser_id, session_id},
};
use casement_http::Permission;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Ports, TestApi};

fn path() -> String {
    format!("/browsers/{}/repl", session_id(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn code_is_evaluated_and_its_output_is_returned_in_order() {
    let mut ports = Ports::of_first_session();
    ports.scripts.expect_evaluate().times(1).returning(|browser, code| {
        let wanted = NewEvaluation { code: "1".to_owned(), reset: true, timeout: Duration::from_secs(7), within: None };
        assert_eq!((browser, code), (browser_id(1), wanted));
        let text = |channel, text: &str| ReplContent::Text { channel, text: text.to_owned() };
        let image = ReplContent::Image { data_b64: "AAAA".to_owned(), mime_type: "image/png".to_owned() };
        Ok(Evaluation {
            repl_id: "abc".to_owned(),
            success: true,
            content: vec![
                text(ReplChannel::Write, "w"),
                image,
                text(ReplChannel::Stdout, "o"),
                text(ReplChannel::Stderr, "e"),
            ],
            is_content_truncated: true,
            duration: Duration::from_millis(12),
            ..Evaluation::default()
        })
    });
    let reply = TestApi::start(ports).post(&path(), json!({ "code": "1", "reset": true, "timeout_sec": 7 })).await;
    assert_eq!(reply.status, 200, "{reply}");
    let content = json!([
        { "type": "text", "channel": "write", "text": "w" },
        { "type": "image", "data_b64": "AAAA", "mime_type": "image/png" },
        { "type": "text", "channel": "stdout", "text": "o" },
        { "type": "text", "channel": "stderr", "text": "e" },
    ]);
    let wanted = json!({
        "repl_id": "abc", "success": true, "content": content, "content_truncated": true, "duration_ms": 12,
        "repl_terminated": false,
    });
    assert_eq!(reply.json(), wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_fails_is_no_failure_of_the_call() {
    let mut ports = Ports::of_first_session();
    ports.scripts.expect_evaluate().times(1).returning(|_, _| {
        Ok(Evaluation {
            repl_id: "abc".to_owned(),
            error: Some("Error: no".to_owned()),
            stack: Some("Error: no\n    at repl-1.ts:1:7".to_owned()),
            is_terminated: true,
            ..Evaluation::default()
        })
    });
    let reply = TestApi::start(ports).post(&path(), json!({ "code": "throw new Error('no')" })).await;
    let wanted = json!({
        "repl_id": "abc", "success": false, "content": [], "content_truncated": false, "duration_ms": 0,
        "error": "Error: no", "stack": "Error: no\n    at repl-1.ts:1:7", "repl_terminated": true,
    });
    assert_eq!((reply.status, reply.json()), (200, wanted));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_the_repl_out_of_bounds_are_named_together() {
    let api = TestApi::start(Ports::of_first_session());
    let reply = api.post(&path(), json!({ "code": "", "timeout_sec": 0 })).await;
    let details =
        ["too_short: code: must not be empty without a reset", "out_of_range: timeout_sec: must be from 1 to 600"];
    assert_eq!((reply.status, reply.details()), (400, details.map(str::to_owned).to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_code_states_its_reason_and_a_token_with_full_access_evaluates_code() {
    for (refusal, status, code) in [
        (OperationError::NotSupported("no script runner".to_owned()), 400, "not_supported"),
        (OperationError::Limit("16 calls of the REPL wait already".to_owned()), 429, "limit_exceeded"),
    ] {
        let mut ports = Ports::of_first_session();
        ports.scripts.expect_evaluate().return_once(move |_, _| Err(refusal));
        let reply = TestApi::start(ports).post(&path(), json!({ "code": "1" })).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
    let mut ports = Ports::of_first_session();
    ports.scripts.expect_evaluate().times(1).returning(|_, _| Ok(Evaluation::default()));
    let api = TestApi::start(ports);
    for (permission, status) in [(Permission::Drive, 200), (Permission::View, 403)] {
        let token = api.token(session_id(1), permission);
        let path = format!("/vm/{}/repl?jwt={token}", session_id(1));
        let reply = api.request("POST", &path, &["Content-Type: application/json"], r#"{"code": "1"}"#).await;
        assert_eq!(reply.status, status, "{reply}");
    }
}
