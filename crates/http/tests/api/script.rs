//! The route `…/playwright/execute`.

use std::time::Duration;

use casement_domain::{
    browser::{EngineError, EngineFault},
    script::{NewScript, ScriptEnd},
    session_operation::OperationError,
    testing::{browser_id, session, session_id},
};
use casement_http::Permission;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Key, Ports, TestApi};

fn ports() -> Ports {
    let mut ports = Ports::default();
    ports.sessions.expect_find().returning(|wanted| Ok((wanted == session_id(1)).then(|| session(1))));
    ports
        .sessions
        .expect_find_in_project()
        .returning(|_, which, _| Ok((format!("{which:?}").contains(&session_id(1).to_string())).then(|| session(1))));
    ports
}

fn path() -> String {
    format!("/browsers/{}/playwright/execute", session_id(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_and_its_result_is_returned() {
    let mut ports = ports();
    ports.scripts.expect_execute().times(1).returning(|browser, script| {
        let wanted = NewScript { code: "return 1".to_owned(), timeout: Duration::from_secs(7), within: None };
        assert_eq!((browser, script), (browser_id(1), wanted));
        let result = Some(r#"{"a": [1.50, "é"]}"#.to_owned());
        Ok(ScriptEnd { success: true, result, error: None, stdout: "out".to_owned(), stderr: String::new() })
    });
    let api = TestApi::start(ports);
    let reply = api.post(&path(), json!({ "code": "return 1", "timeout_sec": 7 })).await;
    assert_eq!(reply.status, 200, "{reply}");
    let wanted = json!({"success": true, "result": {"a": [1.50, "é"]}, "stdout": "out", "stderr": ""});
    assert_eq!(reply.json(), wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_fails_is_no_failure_of_the_call() {
    let mut ports = ports();
    ports.scripts.expect_execute().times(1).returning(|_, _| {
        Ok(ScriptEnd { error: Some("Error: x\n    at script.ts:1:7".to_owned()), ..ScriptEnd::default() })
    });
    let api = TestApi::start(ports);
    let reply = api.post(&path(), json!({ "code": "throw new Error('x')" })).await;
    assert_eq!(reply.status, 200, "{reply}");
    let wanted = json!({"success": false, "error": "Error: x\n    at script.ts:1:7", "stdout": "", "stderr": ""});
    assert_eq!(reply.json(), wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_response_comes_before_the_client_times_out() {
    let mut ports = ports();
    ports.scripts.expect_execute().times(1).returning(|_, script| {
        assert_eq!((script.timeout, script.within), (Duration::from_secs(60), Some(Duration::from_secs(8))));
        Ok(ScriptEnd { success: true, ..ScriptEnd::default() })
    });
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let reply = api.request("POST", &path(), &[&key, "X-Stainless-Read-Timeout: 10"], r#"{"code": "1"}"#).await;
    assert_eq!(reply.status, 200, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_fields_out_of_bounds_are_named_together() {
    let api = TestApi::start(ports());
    let reply = api.post(&path(), json!({ "timeout_sec": 601 })).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"));
    let details = ["required: code: is required", "out_of_range: timeout_sec: must be from 1 to 600"];
    assert_eq!(reply.details(), details);
    let reply = api.post(&path(), json!({ "code": "x".repeat((1 << 20) + 1) })).await;
    assert_eq!(reply.details(), ["too_long: code: must have at most 1048576 bytes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_script_states_its_reason() {
    let failed = || EngineError::Failed { fault: EngineFault::BrowserHung, message: "hung".to_owned() };
    for (refusal, status, code) in [
        (OperationError::NotSupported("no script runner".to_owned()), 400, "not_supported"),
        (OperationError::Limit("16 scripts wait already".to_owned()), 429, "limit_exceeded"),
        (OperationError::Failed("the script runner did not start".to_owned()), 500, "internal"),
        (OperationError::Timeout { seconds: 60 }, 504, "timeout"),
        (OperationError::Engine(failed()), 503, "browser_unavailable"),
    ] {
        let mut ports = ports();
        ports.scripts.expect_execute().return_once(move |_, _| Err(refusal));
        let reply = TestApi::start(ports).post(&path(), json!({ "code": "1" })).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_full_access_runs_scripts_on_the_direct_route() {
    let mut ports = ports();
    ports.scripts.expect_execute().times(1).returning(|_, _| Ok(ScriptEnd { success: true, ..ScriptEnd::default() }));
    let api = TestApi::start(ports);
    for (permission, status) in [(Permission::Drive, 200), (Permission::View, 403)] {
        let token = api.token(session_id(1), permission);
        let path = format!("/vm/{}/playwright/execute?jwt={token}", session_id(1));
        let reply = api.request("POST", &path, &["Content-Type: application/json"], r#"{"code": "1"}"#).await;
        assert_eq!(reply.status, status, "{reply}");
    }
}
