//! Other ways in which a session ends.

use std::path::PathBuf;
use std::process::Command;

use casement_agent_protocol::{ErrorCode, ExitReason, FailureCode, State};

use crate::headless::refusal;
use crate::sandbox::{Sandbox, config, end, signal};

#[tokio::test]
async fn a_browser_that_cannot_be_started_is_reported_as_failed() {
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
    let reason = end(&mut events).await.0;
    assert_eq!(reason, ExitReason::Oom);
    assert_eq!(sandbox.ended().await, Some(1));
}

#[tokio::test]
async fn files_of_a_session_are_memory_too() {
    const LIMIT: u64 = 900 << 20;
    for directory in ["tmp", "dev/shm", "home/casement"] {
        let mut config = config(true);
        config.memory_limit_bytes = Some(LIMIT);
        let mut sandbox = Sandbox::start(&config);
        sandbox.ready("with a limit").await;
        let mut events = sandbox.client().await.events().await.unwrap();
        let root = format!("/proc/{}/root", sandbox.browser());
        let taken = ["tmp", "dev/shm", "home/casement"].map(|name| {
            let about = rustix::fs::statvfs(format!("{root}/{name}")).unwrap();
            (about.f_blocks - about.f_bfree) * about.f_frsize
        });
        println!("a browser at rest keeps {taken:?} bytes in files");
        assert!(taken.iter().sum::<u64>() < 64 << 20, "{taken:?}");

        // As a process inside the sandbox, because its file systems know no other users.
        let target = sandbox.browser().to_string();
        let inside = ["--user", "--mount", "--setuid", "1000", "--setgid", "1000", "--"];
        let fill = ["fallocate", "-l", &LIMIT.to_string(), &format!("/{directory}/large")].map(str::to_owned);
        let filled = Command::new("nsenter").args(["--target", &target]).args(inside).args(fill).status().unwrap();
        assert!(filled.success());

        let reason = end(&mut events).await.0;
        assert_eq!(reason, ExitReason::Oom, "{directory}");
        assert_eq!(sandbox.ended().await, Some(1));
    }
}

#[tokio::test]
async fn a_session_no_server_speaks_to_ends_itself() {
    let mut config = config(true);
    config.idle_end_seconds = 1;
    let mut sandbox = Sandbox::start(&config);
    assert_eq!(sandbox.ended().await, Some(0));
}

#[tokio::test]
async fn a_sandbox_that_no_server_has_taken_over_ends_within_a_minute() {
    let mut sandbox = Sandbox::start(&config(true));
    // A client would take the sandbox over, so its processes are observed from outside.
    let ended = sandbox.ended().await;
    assert_eq!(ended, Some(0));
    assert_eq!(sandbox.processes("--user-data-dir"), Vec::<u32>::new());
}

#[tokio::test]
async fn a_stopped_browser_is_reported_as_hung_at_once_and_ends_within_a_minute() {
    let (mut sandbox, _, client) = Sandbox::with_browser(&config(true), "to be stopped").await;
    let mut events = client.events().await.unwrap();
    signal(sandbox.browser(), "STOP");
    let taken = client.screenshot(None, (1280, 800)).await.map(drop);
    assert_eq!(refusal(taken), ErrorCode::BrowserHung);
    let (reason, detail) = end(&mut events).await;
    assert_eq!(reason, ExitReason::Hung);
    assert!(detail.contains("was stopped"), "{detail}");
    sandbox.ended().await;
}
