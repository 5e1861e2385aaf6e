//! Tests with clients that send too much, or never read their responses.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Cdp, Options, Server, Shared, until};
use casement_test_support::websocket::frame;
use serde_json::json;

use super::host::{metric, server_process};
use super::hostile::direct;

#[test]
fn a_megabyte_of_headers_is_refused_and_affects_no_other_client() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let one = Request::new("GET", "/browsers").bearer(server.key()).header("X-Much", &"a".repeat(1 << 20));
    let mut many = Request::new("GET", "/browsers").bearer(server.key());
    for number in 0..20_000 {
        many = many.header(&format!("X-{number}"), "a much longer value, fifty bytes all in all");
    }
    for request in [one, many] {
        let mut answer = Vec::new();
        // The server may close the connection while the test still sends.
        if let Ok(mut stream) = request.start(server.address()) {
            drop(stream.read_to_end(&mut answer));
        }
        let status = Answer::read(&answer, false).map(|answer| answer.status).ok();
        assert!(matches!(status, None | Some(400 | 431)), "{status:?}");
        server.get("/browsers")?.expect(200)?;
    }
    Ok(())
}

/// Returns a text frame of a client.
fn text_frame(text: &str) -> Vec<u8> {
    frame(true, 1, text.as_bytes(), Some([0; 4]))
}

/// Returns the memory of the server process, in MiB.
fn resident(server: &Server) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", server_process(server)?.pid))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}

#[test]
fn a_client_that_stops_reading_is_disconnected_and_costs_no_memory() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let session = server.headless()?;
    let before = resident(&server)?;
    let open = r#"casement_relays_open{channel="cdp"}"#;
    let mut stalled = direct(session.id(), session.token()).remove(0).start(server.address())?;
    read_head(&mut stalled)?;
    let large = json!({ "expression": "'x'.repeat(30000000)", "returnByValue": true });
    let target = Cdp::connect(session.text("cdp_ws_url"))?.call("Target.getTargets", &json!({}))?;
    let target = target["targetInfos"].as_array().and_then(|all| all.iter().find(|one| one["type"] == "page")).cloned();
    let target = target.context("no page")?["targetId"].clone();
    let attach =
        json!({ "id": 1, "method": "Target.attachToTarget", "params": { "targetId": target, "flatten": true } });
    stalled.write_all(&text_frame(&attach.to_string()))?;
    let attached = read_until(&mut stalled, "\"sessionId\":\"")?;
    let (_, rest) = attached.split_once("\"sessionId\":\"").context("no session")?;
    let page = rest.split('"').next().context("no session")?;
    for id in 2..8 {
        let ask = json!({ "id": id, "sessionId": page, "method": "Runtime.evaluate", "params": large });
        stalled.write_all(&text_frame(&ask.to_string()))?;
    }

    let mut max = 0;
    until("the server gives the silent client up", Duration::from_secs(180), || {
        max = max.max(resident(&server).ok()?);
        let mut other = Cdp::connect(session.text("cdp_ws_url")).ok()?;
        assert!(other.call("Browser.getVersion", &json!({})).is_ok(), "others are served");
        drop(other);
        // The session is in use until the server detects the disconnect.
        let alone = || (metric(&server, open).ok()?? == 0.0).then_some(());
        until("nobody is connected", Duration::from_secs(2), alone).ok()
    })?;
    assert!(max < before + 24, "{before} MiB before, {max} MiB with 180 MB on the way");
    Ok(())
}

#[test]
fn requests_that_are_sent_ahead_cost_no_memory_before_their_turn() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let before = resident(&server)?;
    let requests = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", server.address()).repeat(2000);
    let mut connections = Vec::new();
    for _ in 0..60 {
        let mut connection = TcpStream::connect(server.address())?;
        connection.write_all(requests.as_bytes())?;
        connections.push(connection);
    }
    let mut max = 0;
    for _ in 0..20 {
        max = max.max(resident(&server)?);
        thread::sleep(Duration::from_millis(100));
    }
    for connection in &mut connections {
        let mut answer = [0; 15];
        connection.read_exact(&mut answer)?;
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    }
    assert!(max < before + 64, "{before} MiB before, {max} MiB with 120,000 requests on the way");
    Ok(())
}

fn read_head(stream: &mut TcpStream) -> anyhow::Result<()> {
    let head = read_until(stream, "\r\n\r\n")?;
    ensure!(head.starts_with("HTTP/1.1 101"), "{head}");
    Ok(())
}

/// Reads byte by byte, so that nothing after the end is lost.
fn read_until(stream: &mut TcpStream, end: &str) -> anyhow::Result<String> {
    let mut read = Vec::new();
    let mut byte = [0];
    let mut enough = 0;
    while enough < 60 {
        stream.read_exact(&mut byte)?;
        read.push(byte[0]);
        if enough > 0 || read.ends_with(end.as_bytes()) {
            enough = if end.starts_with('\r') { 60 } else { enough + 1 };
        }
    }
    Ok(String::from_utf8_lossy(&read).into_owned())
}
