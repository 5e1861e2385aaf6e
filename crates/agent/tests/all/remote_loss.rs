//! The loss of the connection to a remote browser.

use std::time::{Duration, Instant};

use casement_agent_protocol::{AgentConfig, ErrorCode, Event, ExitReason, State};
use casement_test_support::remote_browser::{Bridge, socket_in};
use serde_json::json;

use crate::headless::refusal;
use crate::remote::{SIZE, Stage, remote};
use crate::replay;
use crate::sandbox::{end, news};
use crate::script::result;

/// A remote browser that is lost after seconds without a connection.
fn soon_lost() -> AgentConfig {
    AgentConfig { reconnect_seconds: 2, ..remote() }
}

#[tokio::test]
async fn a_short_loss_of_the_connection_changes_nothing() {
    // The emulated size of a page depends on the connection.
    for args in [&[][..], &["--force-device-scale-factor=2"]] {
        let mut stage = Stage::at_page(args).await;
        let mut events = stage.client.events().await.unwrap();
        assert_eq!(news(&mut events).await.map(|event| matches!(event, Event::Hello { .. })), Some(true));
        assert_eq!(result(&stage.client, "return page.title()").await, json!("remote"));
        replay::start(&stage.client, "one", 60).await.unwrap();

        let socket = socket_in(&stage.sandbox.socket("egress"));
        drop(stage.bridge.take());
        std::fs::remove_file(&socket).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(stage.client.status().await.unwrap().state, State::Starting);
        assert_eq!(refusal(stage.client.screenshot(None, (900, 700)).await), ErrorCode::RemoteAway);
        stage.bridge = Some(Bridge::at(&socket, &stage.browser).unwrap());

        assert_eq!(stage.client.ready().await.unwrap().state, State::Ready);
        stage.until(SIZE, json!("900,700,1")).await;
        assert_eq!(result(&stage.client, "return page.title()").await, json!("remote"));
        stage.client.screenshot(None, (900, 700)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        replay::stop(&stage.client, "one").await;
        let video = replay::read(&stage.client, "one", 0, None).await.unwrap();
        assert_eq!(&video[4..8], b"ftyp", "the recording goes on");
    }
}

#[tokio::test]
async fn the_time_without_a_server_does_not_count_as_a_loss() {
    let mut stage = Stage::with(soon_lost(), &[]).await;
    let socket = socket_in(&stage.sandbox.socket("egress"));
    drop(stage.bridge.take());
    // Longer than the time for a connection that a server serves.
    tokio::time::sleep(Duration::from_secs(2 * stage.config.reconnect_seconds)).await;
    assert_eq!(stage.client.status().await.unwrap().state, State::Starting);
    stage.bridge = Some(Bridge::at(&socket, &stage.browser).unwrap());
    assert_eq!(stage.client.ready().await.unwrap().state, State::Ready);
}

#[tokio::test]
async fn a_remote_browser_that_ends_is_reported_when_no_connection_succeeds_in_time() {
    let mut stage = Stage::with(soon_lost(), &[]).await;
    let mut events = stage.client.events().await.unwrap();
    stage.browser.kill();
    let killed_at = Instant::now();
    let (reason, detail) = end(&mut events).await;
    let took = killed_at.elapsed();
    assert_eq!(reason, ExitReason::Crashed);
    assert!(detail.contains("could not be reached again within 2 s"), "{detail}");
    assert!(took >= Duration::from_secs(1), "a short loss changes nothing: {took:?}");
    assert_eq!(stage.sandbox.ended().await, Some(1));
}

#[tokio::test]
async fn a_shutdown_leaves_the_remote_browser_running() {
    let mut stage = Stage::with(remote(), &[]).await;
    stage.client.shutdown().await.unwrap();
    assert_eq!(stage.sandbox.ended().await, Some(0));
    assert!(stage.browser.is_running());
    assert_eq!(stage.cdp.evaluate(&stage.page, "6 * 7").await.unwrap(), json!(42));
}
