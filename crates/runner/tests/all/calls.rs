//! Calls of programs that behave.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::invocation::{Call, RunFailure, RunFault, Runnable, Runner as _};
use serde_json::{Value, json};

use crate::builds::{NODE, PYTHON};
use crate::support::{Heard, LONG, Place, call};

/// A place with a program that is ready to run.
pub(crate) async fn python(base_url: &str) -> (Place, Runnable) {
    let (place, lines) = (Place::new(), Arc::new(Heard::default()));
    let built = place.build(PYTHON, "main.py", &lines).await;
    let built = built.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    let runnable = Place::runnable(&built, "main.py", base_url);
    (place, runnable)
}

pub(crate) async fn run(place: &Place, asked: Call, lines: &Arc<Heard>) -> Result<Value, RunFailure> {
    let id = asked.invocation;
    let ended = tokio::time::timeout(LONG, place.crew.run(asked, lines.clone())).await.expect("a call ends");
    place.crew.end(id).await;
    ended.map(|output| output.map_or(Value::Null, |output| serde_json::from_str(&output).unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_of_python_gets_its_payload_and_answers() {
    let (place, runnable) = python("http://127.0.0.1:1").await;
    place.crew.keep(vec![runnable.clone()]);
    let lines = Arc::new(Heard::default());
    let asked = call(&runnable, "trials", "echo", Some(r#"{"round": 1}"#));
    let id = asked.invocation.to_string();
    let answer = run(&place, asked, &lines).await.unwrap();
    assert_eq!(answer, json!({"invocation": id, "payload": {"round": 1}, "greeting": "hello"}));
    assert_eq!(lines.texts(), ["loading", "echoing", "to the other"]);
    let lines = Arc::new(Heard::default());
    let ask = |app, action, payload| run(&place, call(&runnable, app, action, payload), &lines);
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
async fn an_action_of_typescript_gets_its_payload_and_answers() {
    let (place, lines) = (Place::new(), Arc::new(Heard::default()));
    let built =
        place.build(NODE, "main.ts", &lines).await.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    let runnable = Place::runnable(&built, "main.ts", "http://127.0.0.1:1");
    place.crew.keep(vec![runnable.clone()]);
    let lines = Arc::new(Heard::default());
    let asked = call(&runnable, "trials", "echo", Some(r#"{"text": "one"}"#));
    let id = asked.invocation.to_string();
    let answer = run(&place, asked, &lines).await.unwrap();
    assert_eq!(answer, json!({"invocation": id, "text": "ONE!", "greeting": "hello"}));
    assert_eq!(lines.texts(), ["echoing", "to the other"]);
    let lines = Arc::new(Heard::default());
    let ask = |action, payload| run(&place, call(&runnable, "trials", action, payload), &lines);
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
async fn a_call_that_is_ended_leaves_nothing_whatever_it_ignores() {
    let (place, runnable) = python("http://127.0.0.1:1").await;
    let (asked, lines) = (call(&runnable, "trials", "wait", None), Arc::new(Heard::default()));
    let id = asked.invocation;
    let (ended, ()) = tokio::join!(place.crew.run(asked, lines.clone()), async {
        lines.until("waiting").await;
        place.crew.end(id).await;
    });
    assert!(ended.is_err());
    assert_eq!(place.sandboxes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once_each_have_their_own_end() {
    let (place, runnable) = python("http://127.0.0.1:1").await;
    place.crew.keep(vec![runnable.clone()]);
    let place = Arc::new(place);
    let calls: Vec<_> = (0..10)
        .map(|number| {
            let (place, runnable) = (Arc::clone(&place), runnable.clone());
            tokio::spawn(async move {
                let payload = number.to_string();
                let answer = run(&place, call(&runnable, "trials", "later", Some(&payload)), &Arc::default()).await;
                assert_eq!(answer.unwrap(), json!([number, "later"]));
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

/// A server that is killed: its tasks end where they are, its connections break off, its sandboxes stay.
fn killed_while(
    action: &'static str,
    payload: &'static str,
    word: &'static str,
) -> (Place, casement_domain::ids::InvocationId) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (place, id) = runtime.block_on(async {
        let (place, runnable) = python("http://127.0.0.1:1").await;
        let place = Arc::new(place);
        let asked = call(&runnable, "trials", action, Some(payload));
        let (id, lines) = (asked.invocation, Arc::new(Heard::default()));
        let running = tokio::spawn({
            let (place, lines) = (Arc::clone(&place), Arc::clone(&lines));
            async move { place.crew.run(asked, lines).await }
        });
        lines.until(word).await;
        running.abort();
        running.await.ok();
        (Arc::into_inner(place).unwrap(), id)
    });
    runtime.shutdown_timeout(Duration::ZERO);
    (place, id)
}

#[test]
fn a_call_outlives_its_server_and_its_end_is_known_to_the_next_one() {
    let (mut place, id) = killed_while("wait-for", "3", "begun");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        place.again();
        assert_eq!(place.crew.adopt().await, [id]);
        let lines = Arc::new(Heard::default());
        let end = tokio::time::timeout(LONG, place.crew.resume(id, lines.clone())).await.unwrap();
        assert_eq!(end.unwrap().as_deref(), Some("\"waited\""));
        assert_eq!(lines.texts(), ["loading", "begun", "ended"]);
        // The one after that is told the same, until somebody says that it is known.
        place.again();
        assert_eq!(place.crew.adopt().await, [id]);
        assert_eq!(place.crew.resume(id, Arc::new(Heard::default())).await.unwrap().as_deref(), Some("\"waited\""));
        place.crew.end(id).await;
        place.again();
        assert_eq!(place.crew.adopt().await, []);
    });
}

#[test]
fn a_call_whose_process_died_with_the_server_fails_with_that() {
    let (mut place, id) = killed_while("wait-for", "600", "begun");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        place.kill_all().await;
        place.again();
        assert_eq!(place.crew.adopt().await, [id]);
        let failed = place.crew.resume(id, Arc::new(Heard::default())).await.unwrap_err();
        assert_eq!(
            (failed.fault, failed.reason.as_str()),
            (RunFault::Lost, "its process ended while the server was away")
        );
    });
}
