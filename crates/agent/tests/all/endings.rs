//! How a session ends otherwise.

use std::path::PathBuf;

use casement_agent::protocol::{Event, ExitReason, FailureCode, State};

use crate::sandbox::{Sandbox, config};

#[tokio::test]
async fn a_browser_that_cannot_be_started_is_said_to_have_failed() {
    let mut config = config(true);
    config.chromium = PathBuf::from("/nowhere/chromium");
    let mut sandbox = Sandbox::start(&config);
    let status = sandbox.client().await.ready().await.unwrap();
    assert!(matches!(&status.state, State::Failed { code: FailureCode::BrowserSpawn, .. }), "{:?}", status.state);
    assert_eq!(sandbox.ended().await, Some(1));
}

#[tokio::test]
async fn a_switch_that_would_weaken_the_isolation_is_refused() {
    let mut config = config(true);
    config.extra_chromium_args = vec!["--no-sandbox".to_owned()];
    let sandbox = Sandbox::start(&config);
    let status = sandbox.client().await.ready().await.unwrap();
    assert!(matches!(&status.state, State::Failed { code: FailureCode::Config, .. }), "{:?}", status.state);
}

#[tokio::test]
async fn a_session_over_its_memory_limit_ends_for_that_reason() {
    let mut config = config(true);
    config.memory_limit_bytes = Some(16 << 20);
    let mut sandbox = Sandbox::start(&config);
    let mut events = sandbox.client().await.events().await.unwrap();
    let reason = loop {
        match events.next().await.unwrap() {
            Some(Event::Exited { reason, .. }) => break reason,
            Some(_) => {}
            None => panic!("the stream ended without a last word"),
        }
    };
    assert_eq!(reason, ExitReason::Oom);
    assert_eq!(sandbox.ended().await, Some(1));
}

#[tokio::test]
async fn a_session_no_server_speaks_to_ends_itself() {
    let mut config = config(true);
    config.idle_end_seconds = 1;
    let mut sandbox = Sandbox::start(&config);
    assert_eq!(sandbox.ended().await, Some(0));
}
