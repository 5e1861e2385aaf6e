//! A fake browser for tests, which sends the messages of a test to a capture.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::capture::Capture;
use super::categories::{CaptureRequest, CapturedCategories};
use super::screenshots::Screenshots;
use super::unconfirmed::UnconfirmedEvents;
use crate::browser_handle::BrowserHandle;
use crate::cdp::Endpoint;
use crate::screen_capture::ScreenCapture;
use crate::status::StatusPublisher;
use casement_agent_protocol::telemetry::Category;
use casement_agent_protocol::{AgentConfig, Viewport};

/// Creates a capture whose browser sends these messages, each shorter than 126 bytes, and nothing more.
pub(super) async fn capture(messages: &[Value]) -> (Capture, Arc<UnconfirmedEvents>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut words = b"HTTP/1.1 101 Switching Protocols\r\n\r\n".to_vec();
    for message in messages {
        let text = message.to_string();
        words.extend([0x81, u8::try_from(text.len()).expect("short")]);
        words.extend(text.as_bytes());
    }
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        stream.write_all(&words).await?;
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    });
    let viewport = Viewport { width: 800, height: 600, refresh_rate: 60 };
    let status = StatusPublisher::new(&AgentConfig::new("n", true, viewport), Instant::now());
    let screenshots = Screenshots::new(BrowserHandle::new(status, port, None), ScreenCapture::default());
    let events = Arc::<UnconfirmedEvents>::default();
    let endpoint = Endpoint::Local { port, path: "/".to_owned() };
    let capture = Capture::connect(&endpoint, Arc::clone(&events), screenshots, Arc::default()).await;
    (capture.expect("a connection"), events)
}

/// Returns the first event after a number.
pub(super) async fn event_after(events: &Arc<UnconfirmedEvents>, number: u64) -> Value {
    let lines = events.read(number).next().await.expect("an event");
    let line = lines.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line).expect("JSON")
}

#[tokio::test]
async fn a_refused_attachment_is_reported() {
    let refused = json!({ "id": 1, "error": { "code": -32000, "message": "Not allowed" } });
    let (mut capture, events) = capture(&[refused]).await;
    let (_request, mut request) = watch::channel(CaptureRequest {
        categories: CapturedCategories::of(&[Category::Console]),
        ..CaptureRequest::default()
    });
    let applied = watch::Sender::new(0);
    let event = tokio::select! {
        ended = capture.run(&mut request, &applied) => panic!("it ended: {ended:?}"),
        event = event_after(&events, 0) => event,
    };
    assert_eq!((&event["type"], &event["category"]), (&json!("monitor_init_failed"), &json!("monitor")));
    assert_eq!(event["data"], json!({ "step": "Target.setAutoAttach" }));
}

#[tokio::test]
async fn console_messages_since_the_request_are_captured() {
    let message = |level: &str, timestamp: f64| {
        let params = json!({ "type": level, "timestamp": timestamp });
        json!({ "method": "Runtime.consoleAPICalled", "sessionId": "s", "params": params })
    };
    let (mut capture, events) = capture(&[message("debug", 999.5), message("info", 1000.0)]).await;
    let requested =
        CaptureRequest { categories: CapturedCategories::of(&[Category::Console]), number: 1, console_since: 1000.0 };
    let (_request, mut request) = watch::channel(requested);
    let applied = watch::Sender::new(0);
    let event = tokio::select! {
        ended = capture.run(&mut request, &applied) => panic!("it ended: {ended:?}"),
        event = event_after(&events, 0) => event,
    };
    assert_eq!((&event["type"], &event["data"]["level"]), (&json!("console_log"), &json!("info")));
}
