//! Tests of the client, with a fake agent.

use futures_util::stream;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::time::sleep;

use super::*;
use crate::Event;

const BRIEF: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(60);

async fn agent() -> (TempDir, UnixListener, AgentClient) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("agent");
    let listener = UnixListener::bind(&path).expect("a socket");
    let client = AgentClient::connect(&path).await.expect("a listener");
    (directory, listener, client)
}

async fn upload(
    client: &AgentClient,
    content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    within: Duration,
    stalled: Duration,
) -> Result<Value, ClientError> {
    client.upload_unless_stalled("/v1/fs/write", &(), content, within, stalled).await
}

fn piece() -> io::Result<Bytes> {
    Ok(Bytes::from_static(&[0; 4096]))
}

#[tokio::test]
async fn a_stalled_upload_times_out() {
    let (_directory, _reads_nothing, client) = agent().await;
    let given_up = upload(&client, stream::repeat_with(piece), LONG, BRIEF).await;
    assert!(matches!(given_up, Err(ClientError::Timeout(BRIEF))), "{given_up:?}");
}

#[tokio::test]
async fn the_response_timeout_starts_after_the_upload() {
    let (_directory, _answers_nothing, client) = agent().await;
    let given_up = upload(&client, stream::iter([piece()]), BRIEF, LONG).await;
    assert!(matches!(given_up, Err(ClientError::Timeout(BRIEF))), "{given_up:?}");
}

#[tokio::test]
async fn slow_content_does_not_time_out() {
    let (_directory, _listener, client) = agent().await;
    let slow = stream::iter([piece()]).chain(stream::pending());
    assert!(timeout(BRIEF * 5, upload(&client, slow, BRIEF, BRIEF)).await.is_err(), "it was given up");
}

#[tokio::test]
async fn a_screenshot_is_bounded_by_its_size() {
    let (_directory, listener, client) = agent().await;
    tokio::spawn(async move {
        let (mut caller, _) = listener.accept().await.expect("the client");
        assert_ne!(caller.read(&mut [0; 4096]).await.expect("a request"), 0);
        drop(caller.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await);
        while caller.write_all(&[0; 4096]).await.is_ok() {}
    });
    let taken = client.screenshot(None, (100, 100)).await;
    assert!(matches!(taken, Err(ClientError::TooLong)), "{taken:?}");
}

#[tokio::test]
async fn an_event_in_pieces_does_not_hide_later_events() {
    let (_directory, listener, client) = agent().await;
    tokio::spawn(async move {
        let (_first, _) = listener.accept().await.expect("the client");
        let (mut caller, _) = listener.accept().await.expect("who listens to events");
        assert_ne!(caller.read(&mut [0; 4096]).await.expect("a request"), 0);
        for part in ["HTTP/1.1 200 OK\r\n\r\n{\"event\":", "\"heart", "beat\"}\n{\"event\":\"heartbeat\"}", "\n"] {
            caller.write_all(part.as_bytes()).await.expect("a listener");
            sleep(Duration::from_millis(20)).await;
        }
    });
    let mut events = client.events().await.expect("events");
    for _ in 0..2 {
        assert!(matches!(events.next().await, Ok(Some(Event::Heartbeat))), "a whole event");
    }
    assert!(matches!(events.next().await, Ok(None)));
}
