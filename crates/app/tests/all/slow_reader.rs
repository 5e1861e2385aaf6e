//! Tests a reader of a session's telemetry stream that is far slower than the events.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Options, Server, until};
use serde_json::json;

/// The timeout, for more than a minute of work of two slow cores.
const TEST_TIMEOUT: Duration = Duration::from_secs(180);
/// The pause of the reader after every 64 KiB, which makes it far slower than the capture of a busy machine.
const READ_INTERVAL: Duration = Duration::from_millis(600);
/// The requests of the page: fifty with long bodies, which get no response.
const QUESTIONS: &str = "(async () => {
    const ask = () => fetch('http://127.0.0.1:9/', { method: 'POST', mode: 'no-cors', body: 'x'.repeat(60_000) });
    await Promise.allSettled(Array.from({ length: 50 }, ask));
    return true;
})()";

#[test]
fn a_stream_that_is_read_too_slowly_is_closed_and_slows_no_other() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let telemetry = json!({ "browser": { "network": { "enabled": true } } });
    let session = server.create(&json!({ "headless": true, "timeout_seconds": 600, "telemetry": telemetry }))?;
    let path = format!("/browsers/{}/telemetry/stream", session.id());
    let mut slow = Request::new("GET", &path).bearer(server.key()).start(server.address())?;
    let mut head = [0; 12];
    slow.read_exact(&mut head)?;
    assert_eq!(&head, b"HTTP/1.1 200");

    // The reader reads slowly, because one that reads nothing is disconnected without a readable reason.
    let hurry = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&hurry);
    let reader = thread::spawn(move || -> std::io::Result<Vec<u8>> {
        let (mut read, mut part) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match slow.read(&mut part)? {
                0 => return Ok(read),
                count => read.extend_from_slice(&part[..count]),
            }
            if !seen.load(Ordering::Relaxed) {
                thread::sleep(READ_INTERVAL);
            }
        }
    });
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    until("the reader is too slow", TEST_TIMEOUT, || {
        // The page and the API still respond.
        cdp.evaluate(&page, QUESTIONS).ok()?;
        let metrics = server.get("/metrics").ok()?.text();
        metrics.contains("casement_telemetry_slow_followers_total 1\n").then_some(())
    })?;
    hurry.store(true, Ordering::Relaxed);
    let read = reader.join().map_err(|_| anyhow!("the reader panicked"))??;

    let end = String::from_utf8_lossy(&read[read.len().saturating_sub(200)..]).into_owned();
    assert!(end.contains(": slow_reader\n\n"), "{end}");
    // The session continues, and a reader with the last number can resume.
    let text = String::from_utf8_lossy(&read);
    let last: u64 = text.rsplit("\nid: ").next().and_then(|tail| tail.split('\n').next()?.trim().parse().ok()).unwrap();
    let resumed = Request::new("GET", &path).bearer(server.key()).header("Last-Event-ID", &last.to_string());
    let mut resumed = resumed.start(server.address())?;
    let mut beginning = Vec::new();
    until("the stream goes on", TEST_TIMEOUT, || {
        let mut part = [0; 4096];
        let count = resumed.read(&mut part).ok()?;
        beginning.extend_from_slice(&part[..count]);
        String::from_utf8_lossy(&beginning).contains(&format!("id: {}\n", last + 1)).then_some(())
    })?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}
