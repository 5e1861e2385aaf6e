//! What a real browser does not do on demand: a capture on a connection to one that says what a test wants it to say.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::capture::Capture;
use super::screenshots::Screenshots;
use super::unconfirmed::UnconfirmedEvents;
use super::{CaptureRequest, On};
use crate::state::AgentState;
use casement_agent_protocol::telemetry::Category;
use casement_agent_protocol::{AgentConfig, Viewport};

/// A capture whose browser says this, each a message shorter than 126 bytes, and nothing more.
pub(super) async fn capture(says: &[Value]) -> (Capture, Arc<UnconfirmedEvents>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut words = b"HTTP/1.1 101 Switching Protocols\r\n\r\n".to_vec();
    for message in says {
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
    let core = Arc::new(AgentState::new(AgentConfig::new("n", true, viewport), Instant::now()));
    let buffered = Arc::<UnconfirmedEvents>::default();
    let capture = Capture::connect(port, "/", Arc::clone(&buffered), Screenshots::new(core), Arc::default()).await;
    (capture.expect("a connection"), buffered)
}

/// The next event that is kept behind a number.
pub(super) async fn retained_after(buffered: &Arc<UnconfirmedEvents>, number: u64) -> Value {
    let lines = buffered.read(number).next().await.expect("an event");
    let line = lines.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line).expect("JSON")
}

#[tokio::test]
async fn a_browser_that_does_not_let_itself_be_listened_to_is_reported_of() {
    let refused = json!({ "id": 1, "error": { "code": -32000, "message": "Not allowed" } });
    let (mut capture, buffered) = capture(&[refused]).await;
    let (_requested_state, mut requested_state) =
        watch::channel(CaptureRequest { on: On::of(&[Category::Console]), ..CaptureRequest::default() });
    let applied = watch::Sender::new(0);
    let reported = tokio::select! {
        ended = capture.run(&mut requested_state, &applied) => panic!("it ended: {ended:?}"),
        reported = retained_after(&buffered, 0) => reported,
    };
    assert_eq!((&reported["type"], &reported["category"]), (&json!("monitor_init_failed"), &json!("monitor")));
    assert_eq!(reported["data"], json!({ "step": "Target.setAutoAttach" }));
}

#[tokio::test]
async fn console_output_since_the_request_is_reported_however_late_the_capture_starts() {
    let given = |level: &str, timestamp: f64| {
        let params = json!({ "type": level, "timestamp": timestamp });
        json!({ "method": "Runtime.consoleAPICalled", "sessionId": "s", "params": params })
    };
    let (mut capture, buffered) = capture(&[given("debug", 999.5), given("info", 1000.0)]).await;
    let wanted = CaptureRequest { on: On::of(&[Category::Console]), number: 1, console_since: 1000.0 };
    let (_requested_state, mut requested_state) = watch::channel(wanted);
    let applied = watch::Sender::new(0);
    let reported = tokio::select! {
        ended = capture.run(&mut requested_state, &applied) => panic!("it ended: {ended:?}"),
        reported = retained_after(&buffered, 0) => reported,
    };
    assert_eq!((&reported["type"], &reported["data"]["level"]), (&json!("console_log"), &json!("info")));
}
