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
    let kept = Arc::<UnconfirmedEvents>::default();
    let capture = Capture::connect(port, "/", Arc::clone(&kept), Screenshots::new(core), Arc::default()).await;
    (capture.expect("a connection"), kept)
}

/// The next event that is kept behind a number.
pub(super) async fn kept_after(kept: &Arc<UnconfirmedEvents>, number: u64) -> Value {
    let lines = kept.read(number).next().await.expect("an event");
    let line = lines.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line).expect("JSON")
}

#[tokio::test]
async fn a_browser_that_does_not_let_itself_be_listened_to_is_told_of() {
    let refused = json!({ "id": 1, "error": { "code": -32000, "message": "Not allowed" } });
    let (mut capture, kept) = capture(&[refused]).await;
    let (_wish, mut wish) =
        watch::channel(CaptureRequest { on: On::of(&[Category::Console]), ..CaptureRequest::default() });
    let applied = watch::Sender::new(0);
    let told = tokio::select! {
        ended = capture.run(&mut wish, &applied) => panic!("it ended: {ended:?}"),
        told = kept_after(&kept, 0) => told,
    };
    assert_eq!((&told["type"], &told["category"]), (&json!("monitor_init_failed"), &json!("monitor")));
    assert_eq!(told["data"], json!({ "step": "Target.setAutoAttach" }));
}

#[tokio::test]
async fn what_a_console_said_since_it_was_wanted_is_told_however_late_the_capture_comes() {
    let said = |level: &str, timestamp: f64| {
        let params = json!({ "type": level, "timestamp": timestamp });
        json!({ "method": "Runtime.consoleAPICalled", "sessionId": "s", "params": params })
    };
    let (mut capture, kept) = capture(&[said("debug", 999.5), said("info", 1000.0)]).await;
    let wanted = CaptureRequest { on: On::of(&[Category::Console]), number: 1, console_since: 1000.0 };
    let (_wish, mut wish) = watch::channel(wanted);
    let applied = watch::Sender::new(0);
    let told = tokio::select! {
        ended = capture.run(&mut wish, &applied) => panic!("it ended: {ended:?}"),
        told = kept_after(&kept, 0) => told,
    };
    assert_eq!((&told["type"], &told["data"]["level"]), (&json!("console_log"), &json!("info")));
}
