//! Tests of calls of well-behaved programs.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::invocation::{Call, RunFailure, RunFault, Runnable, Runner as _};
use serde_json::{Value, json};

use crate::builds::{NODE, PYTHON};
use crate::support::{Fixture, RecordedLines, TEST_TIMEOUT, call};

/// Creates a fixture with a program that is ready to run.
pub(crate) async fn python(base_url: &str) -> (Fixture, Runnable) {
    let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
    let built = fixture.build(PYTHON, "main.py", &lines).await;
    let built = built.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    let runnable = Fixture::runnable(&built, "main.py", base_url);
    (fixture, runnable)
}

pub(crate) async fn run(fixture: &Fixture, requests: Call, lines: &Arc<RecordedLines>) -> Result<Value, RunFailure> {
    let id = requests.invocation;
    let ended =
        tokio::time::timeout(TEST_TIMEOUT, fixture.pool.run(requests, lines.clone())).await.expect("a call ends");
    fixture.pool.end(id).await;
    ended.map(|output| output.map_or(Value::Null, |output| serde_json::from_str(&output).unwrap()))
}

/// Returns two texts of characters that take several bytes in UTF-8: with a little less than the longest result, and with
/// more. An escaped form would be longer by far.
fn texts_around_the_limit() -> [String; 2] {
    let unit = "ÄÖ€한😀";
    [(1 << 20) - 500, (1 << 20) + 500].map(|bytes: usize| unit.repeat(bytes / unit.len()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_measured_in_utf_8_in_every_language() {
    let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
    for (files, entrypoint) in [(PYTHON, "main.py"), (NODE, "main.ts")] {
        let built = fixture.build(files, entrypoint, &lines).await.unwrap();
        let runnable = Fixture::runnable(&built, entrypoint, "http://127.0.0.1:1");
        let echo = async |text: &str| {
            let payload = json!({ "text": text }).to_string();
            let lines = Arc::new(RecordedLines::default());
            run(&fixture, call(&runnable, "trials", "echo", Some(&payload)), &lines).await
        };
        let [fits, exceeds] = texts_around_the_limit();
        let echoed = echo(&fits).await.unwrap();
        let text = echoed["text"].as_str().or(echoed["payload"]["text"].as_str()).unwrap();
        assert!(text.trim_end_matches('!') == fits, "{entrypoint}");
        let failed = echo(&exceeds).await.unwrap_err();
        let reason = "the action returned more than 1048576 bytes of JSON";
        assert_eq!((failed.fault, &*failed.reason), (RunFault::Result, reason), "{entrypoint}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_action_gets_its_payload_and_returns_its_output() {
    let (fixture, runnable) = python("http://127.0.0.1:1").await;
    fixture.pool.keep(vec![runnable.clone()]);
    let lines = Arc::new(RecordedLines::default());
    let requests = call(&runnable, "trials", "echo", Some(r#"{"round": 1}"#));
    let id = requests.invocation.to_string();
    let answer = run(&fixture, requests, &lines).await.unwrap();
    assert_eq!(answer, json!({"invocation": id, "payload": {"round": 1}, "greeting": "hello"}));
    assert_eq!(lines.texts(), ["loading", "echoing", "to the other"]);
    let lines = Arc::new(RecordedLines::default());
    let ask = |app, action, payload| run(&fixture, call(&runnable, app, action, payload), &lines);
    assert_eq!(ask("trials", "alone", Some("1")).await.unwrap(), json!(["KERNEL_API_KEY", "KERNEL_BASE_URL"]));
    assert_eq!(ask("trials", "later", Some("null")).await.unwrap(), json!([null, "later"]));
    assert_eq!(ask("trials", "nothing", None).await.unwrap(), Value::Null);
    assert_eq!(ask("second", "other", None).await.unwrap(), json!("of the second app"));
    for (action, fault, reason) in [
        ("raise", RunFault::Raised, "ValueError: not today"),
        ("echo", RunFault::Raised, "TypeError: Missing required payload parameter 'payload'"),
        ("exit", RunFault::Raised, "SystemExit: enough"),
        ("leave", RunFault::Died, "the process ended with exit code 7 before the action returned"),
        ("not-json", RunFault::Result, "a value of the type set that is not JSON"),
        ("not-a-number", RunFault::Result, "a value of the type float that is not JSON"),
        ("unheard-of", RunFault::Raised, "registers no action unheard-of of an app trials"),
    ] {
        let failed = ask("trials", action, None).await.unwrap_err();
        assert!(failed.fault == fault && failed.reason.contains(reason), "{action}: {failed:?}");
    }
    assert!(lines.text().contains("raise ValueError(\"not today\")"), "{}", lines.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_action_gets_its_payload_and_returns_its_output() {
    let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
    let built =
        fixture.build(NODE, "main.ts", &lines).await.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    let runnable = Fixture::runnable(&built, "main.ts", "http://127.0.0.1:1");
    fixture.pool.keep(vec![runnable.clone()]);
    let lines = Arc::new(RecordedLines::default());
    let requests = call(&runnable, "trials", "echo", Some(r#"{"text": "one"}"#));
    let id = requests.invocation.to_string();
    let answer = run(&fixture, requests, &lines).await.unwrap();
    assert_eq!(answer, json!({"invocation": id, "text": "ONE!", "greeting": "hello"}));
    assert_eq!(lines.texts(), ["echoing", "to the other"]);
    let lines = Arc::new(RecordedLines::default());
    let ask = |action, payload| run(&fixture, call(&runnable, "trials", action, payload), &lines);
    assert_eq!(ask("alone", None).await.unwrap(), json!(["KERNEL_API_KEY", "KERNEL_BASE_URL"]));
    assert_eq!(ask("nothing", None).await.unwrap(), Value::Null);
    for (action, fault, reason) in [
        ("raise", RunFault::Raised, "TypeError: not today"),
        ("raise-later", RunFault::Raised, "RangeError: much later"),
        ("leave", RunFault::Died, "the process ended with exit code 7 before the action returned"),
        ("not-json", RunFault::Result, "a value of the type Object that is not JSON"),
        ("a-function", RunFault::Result, "a value of the type function, which is not JSON"),
        ("much", RunFault::Result, "more than 1048576 bytes"),
    ] {
        let failed = ask(action, None).await.unwrap_err();
        assert!(failed.fault == fault && failed.reason.contains(reason), "{action}: {failed:?}");
    }
    assert!(lines.text().contains("main.ts:"), "{}", lines.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_call_leaves_nothing_even_if_it_ignores_signals() {
    let (fixture, runnable) = python("http://127.0.0.1:1").await;
    let (requests, lines) = (call(&runnable, "trials", "wait", None), Arc::new(RecordedLines::default()));
    let id = requests.invocation;
    let (ended, ()) = tokio::join!(fixture.pool.run(requests, lines.clone()), async {
        lines.until("waiting").await;
        fixture.pool.end(id).await;
    });
    assert!(ended.is_err());
    assert_eq!(fixture.sandboxes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_get_their_own_results() {
    let (fixture, runnable) = python("http://127.0.0.1:1").await;
    fixture.pool.keep(vec![runnable.clone()]);
    let fixture = Arc::new(fixture);
    let calls: Vec<_> = (0..10)
        .map(|number| {
            let (fixture, runnable) = (Arc::clone(&fixture), runnable.clone());
            tokio::spawn(async move {
                let payload = number.to_string();
                let answer = run(&fixture, call(&runnable, "trials", "later", Some(&payload)), &Arc::default()).await;
                assert_eq!(answer.unwrap(), json!([number, "later"]));
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

/// Simulates a server that is killed after the call has printed `word`: its tasks stop, its connections break, and its
/// sandboxes continue.
fn killed_while(
    action: &'static str,
    payload: &'static str,
    word: &'static str,
) -> (Fixture, casement_domain::ids::InvocationId) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (fixture, id) = runtime.block_on(async {
        let (fixture, runnable) = python("http://127.0.0.1:1").await;
        let fixture = Arc::new(fixture);
        let requests = call(&runnable, "trials", action, Some(payload));
        let (id, lines) = (requests.invocation, Arc::new(RecordedLines::default()));
        let running = tokio::spawn({
            let (fixture, lines) = (Arc::clone(&fixture), Arc::clone(&lines));
            async move { fixture.pool.run(requests, lines).await }
        });
        lines.until(word).await;
        running.abort();
        running.await.ok();
        (Arc::into_inner(fixture).unwrap(), id)
    });
    runtime.shutdown_timeout(Duration::ZERO);
    (fixture, id)
}

#[test]
fn a_call_outlives_its_server_and_the_next_one_gets_its_result() {
    let (mut fixture, id) = killed_while("wait-for", "3", "begun");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        fixture.restart();
        assert_eq!(fixture.pool.adopt().await.calls, [id]);
        let lines = Arc::new(RecordedLines::default());
        let end = tokio::time::timeout(TEST_TIMEOUT, fixture.pool.resume(id, lines.clone())).await.unwrap();
        assert_eq!(end.unwrap().as_deref(), Some("\"waited\""));
        assert_eq!(lines.texts(), ["loading", "begun", "ended"]);
        // Each later server gets the same result until the call is ended.
        fixture.restart();
        assert_eq!(fixture.pool.adopt().await.calls, [id]);
        assert_eq!(
            fixture.pool.resume(id, Arc::new(RecordedLines::default())).await.unwrap().as_deref(),
            Some("\"waited\"")
        );
        fixture.pool.end(id).await;
        fixture.restart();
        assert_eq!(fixture.pool.adopt().await.calls, []);
    });
}

#[test]
fn a_call_whose_process_was_lost_with_the_server_fails() {
    let (mut fixture, id) = killed_while("wait-for", "600", "begun");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        fixture.kill_all().await;
        fixture.restart();
        assert_eq!(fixture.pool.adopt().await.calls, [id]);
        let failed = fixture.pool.resume(id, Arc::new(RecordedLines::default())).await.unwrap_err();
        assert_eq!(
            (failed.fault, failed.reason.as_str()),
            (RunFault::Lost, "its process ended while the server was away")
        );
    });
}
