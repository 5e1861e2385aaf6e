//! The routes `…/playwright`.

use std::time::Duration;

use casement_domain::{
    browser::{EngineError, EngineFault},
    script::{Executor, ExecutorName, NewScript, ScriptEnd, ScriptTab},
    session_operation::OperationError,
    testing::{browser_id, session_id},
};
use casement_http::Permission;
use pretty_assertions::assert_eq;
use serde_json::json;
use time::macros::datetime;

use super::support::{Key, Ports, TestApi};

fn path() -> String {
    format!("/browsers/{}/playwright/execute", session_id(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_and_its_result_is_returned() {
    let mut ports = Ports::of_first_session();
    ports.scripts.expect_execute().times(1).returning(|browser, script| {
        let executor = ExecutorName::default();
        let wanted = NewScript { code: "return 1".to_owned(), timeout: Duration::from_secs(7), within: None, executor };
        assert_eq!((browser, script), (browser_id(1), wanted));
        let result = Some(r#"{"a": [1.50, "é"]}"#.to_owned());
        Ok(ScriptEnd { success: true, result, stdout: "out".to_owned(), ..ScriptEnd::default() })
    });
    let api = TestApi::start(ports);
    let reply = api.post(&path(), json!({ "code": "return 1", "timeout_sec": 7 })).await;
    assert_eq!(reply.status, 200, "{reply}");
    let wanted = json!({"success": true, "result": {"a": [1.50, "é"]}, "stdout": "out", "stderr": ""});
    assert_eq!(reply.json(), wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_fails_is_no_failure_of_the_call() {
    let mut ports = Ports::of_first_session();
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
    let mut ports = Ports::of_first_session();
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
    let api = TestApi::start(Ports::of_first_session());
    let reply = api.post(&path(), json!({ "timeout_sec": 601 })).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"));
    let details = ["required: code: is required", "out_of_range: timeout_sec: must be from 1 to 600"];
    assert_eq!(reply.details(), details);
    let reply = api.post(&path(), json!({ "code": "1", "executor": "a b" })).await;
    assert_eq!(reply.details()[0].split(": may").next(), Some("invalid_format: executor"), "{reply}");
    let reply = api.post(&path(), json!({ "code": "x".repeat((1 << 20) + 1) })).await;
    assert_eq!(reply.details(), ["too_long: code: must have at most 1048576 bytes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_script_states_its_reason() {
    let failed = || EngineError::Failed { fault: EngineFault::BrowserHung, message: "hung".to_owned() };
    for (refusal, status, code) in [
        (OperationError::NotSupported("no script runner".to_owned()), 400, "not_supported"),
        (OperationError::Limit("16 scripts wait already".to_owned()), 429, "limit_exceeded"),
        (OperationError::State("the session has 8 named executors".to_owned()), 409, "invalid_state"),
        (OperationError::Failed("the script runner did not start".to_owned()), 500, "internal"),
        (OperationError::Timeout { seconds: 60 }, 504, "timeout"),
        (OperationError::Engine(failed()), 503, "browser_unavailable"),
    ] {
        let mut ports = Ports::of_first_session();
        ports.scripts.expect_execute().return_once(move |_, _| Err(refusal));
        let reply = TestApi::start(ports).post(&path(), json!({ "code": "1" })).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_full_access_runs_scripts_on_the_direct_route() {
    let mut ports = Ports::of_first_session();
    ports.scripts.expect_execute().times(1).returning(|_, _| Ok(ScriptEnd { success: true, ..ScriptEnd::default() }));
    let api = TestApi::start(ports);
    for (permission, status) in [(Permission::Drive, 200), (Permission::View, 403)] {
        let token = api.token(session_id(1), permission);
        let path = format!("/vm/{}/playwright/execute?jwt={token}", session_id(1));
        let reply = api.request("POST", &path, &["Content-Type: application/json"], r#"{"code": "1"}"#).await;
        assert_eq!(reply.status, status, "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_of_a_named_executor_reports_its_tab() {
    let mut ports = Ports::of_first_session();
    ports.scripts.expect_execute().times(1).returning(|_, script| {
        assert_eq!(script.executor.named(), Some("tab-1"));
        let tab = Some(ScriptTab { target_id: "T1".to_owned(), created: true });
        Ok(ScriptEnd { success: true, tab, ..ScriptEnd::default() })
    });
    let reply = TestApi::start(ports).post(&path(), json!({ "code": "return", "executor": "tab-1" })).await;
    let tab = json!({ "created": true, "target_id": "T1" });
    assert_eq!(reply.json(), json!({ "success": true, "stdout": "", "stderr": "", "tab": tab }));
}

fn executors_path() -> String {
    format!("/browsers/{}/playwright/executors", session_id(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn executors_are_listed_and_none_is_older_than_its_session() {
    let mut ports = Ports::of_first_session();
    ports.scripts.expect_executors().times(1).returning(|browser| {
        assert_eq!(browser, browser_id(1));
        let default = Executor {
            name: ExecutorName::default(),
            is_busy: false,
            created_at: datetime!(2000-01-01 0:00 UTC),
            last_used_at: None,
            target_id: None,
            url: None,
        };
        let named = Executor {
            name: ExecutorName::parse("a").expect("a name"),
            is_busy: true,
            created_at: datetime!(2100-01-01 0:00 UTC),
            last_used_at: Some(datetime!(2100-01-01 0:01 UTC)),
            target_id: Some("T1".to_owned()),
            url: Some("https://example.com/".to_owned()),
        };
        Ok(vec![default, named])
    });
    let reply = TestApi::start(ports).get(&executors_path()).await;
    let created = reply.json()["executors"][0]["created_at"].clone();
    assert!(created.as_str().is_some_and(|created| created > "2001"), "{reply}");
    let named = json!({
        "name": "a", "busy": true, "created_at": "2100-01-01T00:00:00.000000Z", "last_used_at": "2100-01-01T00:01:00.000000Z",
        "target_id": "T1", "url": "https://example.com/",
    });
    let default = json!({ "name": "default", "busy": false, "created_at": created, "last_used_at": created });
    assert_eq!(reply.json(), json!({ "executors": [default, named] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_an_executor_closes_its_tab_unless_the_caller_forbids_it() {
    let mut ports = Ports::of_first_session();
    ports.scripts.expect_delete_executor().times(3).returning(|_, name, close_tab| match (name.as_str(), close_tab) {
        ("a", true) | ("default", false) => Ok(()),
        (other, _) => Err(OperationError::Missing(format!("executor {other} not found"))),
    });
    let api = TestApi::start(ports);
    for (query, status) in [("a", 204), ("default?close_tab=false", 204), ("b", 404)] {
        let reply = api.call("DELETE", &format!("{}/{query}", executors_path()), "").await;
        assert_eq!(reply.status, status, "{query}: {reply}");
    }
    let reply = api.call("DELETE", &format!("{}/a%20b", executors_path()), "").await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"));
}
