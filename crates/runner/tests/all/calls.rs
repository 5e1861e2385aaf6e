//! Calls of programs that behave.

use std::sync::Arc;
use std::time::Instant;

use casement_domain::invocation::{RunFault, Runner as _};
use serde_json::{Value, json};

use crate::builds::{NODE, PYTHON};
use crate::support::{Heard, Place, call};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_of_python_gets_its_payload_and_answers() {
    let (place, lines) = (Place::new(), Arc::new(Heard::default()));
    let built = place.build(PYTHON, "main.py", &lines).await.unwrap();
    let runnable = Place::runnable(&built, "main.py", "http://127.0.0.1:1");
    place.crew.keep(vec![runnable.clone()]);
    for round in 0..10 {
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        let lines = Arc::new(Heard::default());
        let asked = call(&runnable, "trials", "echo", Some(r#"{"round": 1}"#));
        let began = Instant::now();
        let answer = place.crew.run(asked.clone(), lines.clone()).await.unwrap().unwrap();
        eprintln!("{round}: {:?}", began.elapsed());
        let wanted = json!({"invocation": asked.invocation.to_string(), "payload": {"round": 1}, "greeting": "hello"});
        assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), wanted);
        assert_eq!(lines.texts(), ["loading", "echoing", "to the other"]);
        place.crew.end(asked.invocation).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_of_typescript_gets_its_payload_and_answers() {
    let (place, lines) = (Place::new(), Arc::new(Heard::default()));
    let built = place.build(NODE, "main.ts", &lines).await.unwrap();
    let runnable = Place::runnable(&built, "main.ts", "http://127.0.0.1:1");
    place.crew.keep(vec![runnable.clone()]);
    for round in 0..10 {
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        let lines = Arc::new(Heard::default());
        let asked = call(&runnable, "trials", "echo", Some(r#"{"text": "one"}"#));
        let began = Instant::now();
        let answer = place.crew.run(asked.clone(), lines.clone()).await.unwrap().unwrap();
        eprintln!("{round}: {:?}", began.elapsed());
        let wanted = json!({"invocation": asked.invocation.to_string(), "text": "ONE!", "greeting": "hello"});
        assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), wanted);
        assert_eq!(lines.texts(), ["echoing", "to the other"]);
        place.crew.end(asked.invocation).await;
    }
    let failed =
        place.crew.run(call(&runnable, "trials", "raise", None), Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!((failed.fault, failed.reason.as_str()), (RunFault::Raised, "TypeError: not today"));
}
