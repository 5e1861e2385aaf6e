//! WebDriver, classic and BiDi, with a simulated chromedriver.

use std::{sync::atomic::Ordering, time::Duration};

use actix_web::{http::Method, web::Bytes};
use casement_http::{
    relay::{CloseReason, Limits},
    webdriver::{ClassicError, ClassicRequest, WebDriverSessionId},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::support::{Server, close_payload, eventually, frame, header, read_frame, read_head, soon};

const MASK: Option<[u8; 4]> = Some([5, 6, 7, 8]);

async fn send(to: &mut TcpStream, value: &Value, mask: Option<[u8; 4]>) {
    to.write_all(&frame(true, 1, value.to_string().as_bytes(), mask)).await.unwrap();
}

async fn receive(from: &mut TcpStream) -> Value {
    let (opcode, payload) = soon(read_frame(from)).await;
    assert_eq!(opcode, 1, "{payload:?}");
    serde_json::from_slice(&payload).unwrap()
}

fn hostile_new(id: u64) -> Value {
    let options = json!({"goog:chromeOptions": {"binary": "/bin/sh", "args": ["--no-sandbox"]}});
    json!({"id": id, "method": "session.new", "params": {"capabilities": {"alwaysMatch": options}}})
}

#[actix_web::test]
async fn session_new_is_bound_until_one_is_accepted() {
    let server = Server::start().await;
    let (mut client, mut chromedriver, head) = server.pair("/webdriver").await;
    assert!(head.starts_with("GET /session HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "host"), Some("127.0.0.1:9515"));
    for (id, accepted) in [(1, false), (2, false), (3, true)] {
        send(&mut client, &hostile_new(id), MASK).await;
        // A command right after `session.new` must wait for the response; otherwise it would be forwarded unchecked.
        if !accepted {
            send(&mut client, &json!({"id": 100 + id, "method": "session.status", "params": {}}), MASK).await;
        }
        let seen = receive(&mut chromedriver).await;
        let always = json!({"goog:chromeOptions": {"debuggerAddress": "127.0.0.1:9222"}, "webSocketUrl": true});
        let bound = json!({"capabilities": {"alwaysMatch": always, "firstMatch": [{}]}});
        assert_eq!(seen, json!({"id": id, "method": "session.new", "params": bound}));
        let answer = if accepted {
            json!({"type": "success", "id": id, "result": {"sessionId": "abc", "capabilities": {"webSocketUrl": "ws://127.0.0.1:9515/session/abc"}}})
        } else {
            json!({"type": "error", "id": id, "error": "invalid argument", "message": ""})
        };
        send(&mut chromedriver, &answer, None).await;
        let got = receive(&mut client).await;
        assert_eq!(got["id"], id);
        if accepted {
            let address = "wss://casement.test/vm/S/webdriver/session/abc?jwt=TOKEN";
            assert_eq!(got["result"]["capabilities"]["webSocketUrl"], address);
        } else {
            assert_eq!(receive(&mut chromedriver).await["id"], 100 + id);
        }
    }
    // The session is bound: bytes are forwarded unparsed and unchanged.
    let anything = frame(true, 1, b"not even JSON", MASK);
    client.write_all(&anything).await.unwrap();
    let mut seen = vec![0; anything.len()];
    soon(chromedriver.read_exact(&mut seen)).await.unwrap();
    assert_eq!(seen, anything);
}

#[actix_web::test]
async fn messages_are_counted_before_and_after_the_session_is_bound() {
    let server = Server::start().await;
    let (mut client, mut chromedriver, _) = server.pair("/webdriver").await;
    client.write_all(&frame(true, 1, b"no command", MASK)).await.unwrap();
    assert_eq!(receive(&mut client).await["error"], "invalid argument");
    client.write_all(&frame(true, 9, b"a ping is no message", MASK)).await.unwrap();
    assert_eq!(soon(read_frame(&mut client)).await.0, 10);
    for (id, method) in [(1, "session.status"), (2, "session.new"), (3, "browsingContext.getTree")] {
        send(&mut client, &json!({"id": id, "method": method, "params": {}}), MASK).await;
        assert_eq!(receive(&mut chromedriver).await["id"], id);
        send(&mut chromedriver, &json!({"type": "success", "id": id, "result": {}}), None).await;
        assert_eq!(receive(&mut client).await["id"], id);
    }
    server.shared.end.end(CloseReason::Deleted);
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(4000, "deleted")));
    drop(client);
    eventually("the end was observed", || !server.shared.ended.lock().is_empty()).await;
    assert_eq!(*server.shared.ended.lock(), [(Some(CloseReason::Deleted), 8)]);
}

#[actix_web::test]
async fn a_fragmented_session_new_between_pings_is_bound() {
    let server = Server::start().await;
    let (mut client, mut chromedriver, _) = server.pair("/webdriver").await;
    let text = hostile_new(1).to_string();
    let (a, b) = text.as_bytes().split_at(text.len() / 2);
    client.write_all(&frame(false, 1, a, MASK)).await.unwrap();
    client.write_all(&frame(true, 9, b"hi", MASK)).await.unwrap();
    assert_eq!(soon(read_frame(&mut client)).await, (10, b"hi".to_vec()));
    for byte in frame(true, 0, b, MASK) {
        client.write_all(&[byte]).await.unwrap();
    }
    let seen = receive(&mut chromedriver).await.to_string();
    assert!(!seen.contains("no-sandbox") && seen.contains("127.0.0.1:9222"), "{seen}");
}

#[actix_web::test]
async fn unknown_commands_are_refused_and_not_forwarded() {
    let server = Server::start().await;
    let (mut client, mut chromedriver, _) = server.pair("/webdriver").await;
    for text in [
        "",
        "{",
        "[1]",
        r#"{"method":"session.new"}"#,
        r#"{"id":-1,"method":"x"}"#,
        r#"{"id":1,"method":1}"#,
        // Some parsers accept comments, so commands with comments must not be forwarded.
        r#"{"id":1,/**/"method":"session.new","params":{}}"#,
        r#"{"id":1,"method":"session.new","params":[]}"#,
    ] {
        client.write_all(&frame(true, 1, text.as_bytes(), MASK)).await.unwrap();
        assert_eq!(receive(&mut client).await["error"], "invalid argument", "{text}");
    }
    // The last of two equal keys counts, also for chromedriver, because the command is serialized again.
    let twice = r#"{"id":1,"method":"x","method":"session.new","params":{"capabilities":{"alwaysMatch":{"goog:chromeOptions":{"args":["a"]}}}}}"#;
    client.write_all(&frame(true, 1, twice.as_bytes(), MASK)).await.unwrap();
    let seen = receive(&mut chromedriver).await;
    assert_eq!(
        seen["params"]["capabilities"]["alwaysMatch"]["goog:chromeOptions"],
        json!({"debuggerAddress": "127.0.0.1:9222"})
    );
}

/// Returns a masked frame with reserved bits.
fn frame_bits(reserved: u8, opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(true, opcode, payload, MASK);
    bytes[0] |= reserved;
    bytes
}

#[actix_web::test]
async fn a_valid_close_frame_is_answered_with_the_same_payload() {
    for payload in [&b""[..], &[0x03, 0xe8], &[0x0f, 0xa0, b'b', b'y', b'e']] {
        let server = Server::start().await;
        let (mut client, _chromedriver, _) = server.pair("/webdriver").await;
        client.write_all(&frame(true, 8, payload, MASK)).await.unwrap();
        assert_eq!(soon(read_frame(&mut client)).await, (8, payload.to_vec()));
    }
}

#[actix_web::test]
async fn before_a_session_messages_are_bounded_and_well_formed() {
    let unmasked = frame(true, 1, b"{}", None);
    let mut long = super::support::frame_header(true, 1, 1024 * 1024 + 1, true);
    long.extend([1; 4]);
    let binary = frame(true, 2, b"{}", MASK);
    let stray = frame(true, 0, b"{}", MASK);
    let compressed = frame_bits(0x40, 1, b"{}");
    let reserved = frame(true, 3, b"{}", MASK);
    // Close frames with forbidden codes, or with a reason that is not UTF-8.
    let codes = [1004, 1005, 1006, 1015, 999, 2000, 5000].map(|code: u16| frame(true, 8, &code.to_be_bytes(), MASK));
    let reason = frame(true, 8, &[0x03, 0xe8, 0xff], MASK);
    for close in codes.into_iter().chain([reason, frame(true, 8, &[3], MASK)]) {
        let server = Server::start().await;
        let (mut client, _chromedriver, _) = server.pair("/webdriver").await;
        client.write_all(&close).await.unwrap();
        assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(1002, "protocol_error")), "{close:?}");
    }
    for (bytes, code, reason) in [
        (unmasked, 1002, "protocol_error"),
        (long, 1009, "message_too_big"),
        (binary, 1003, "unsupported_data"),
        (stray, 1002, "protocol_error"),
        (compressed, 1002, "protocol_error"),
        (reserved, 1002, "protocol_error"),
    ] {
        let server = Server::start().await;
        let (mut client, _chromedriver, _) = server.pair("/webdriver").await;
        client.write_all(&bytes).await.unwrap();
        assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(code, reason)));
    }
}

/// Responds to one request as chromedriver would. Returns the head and the body of the request.
async fn play(server: &Server, answer: &str) -> (String, String) {
    let (mut stream, _) = soon(server.upstream.accept()).await.unwrap();
    let head = read_head(&mut stream).await;
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
        answer.len()
    );
    stream.write_all(response.as_bytes()).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}

async fn call(server: &Server, method: &str, path: &str, body: &str) -> String {
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: casement.test\r\nOrigin: http://attacker.test\r\nAuthorization: Basic c2VjcmV0\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(client.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[actix_web::test]
async fn a_classic_session_is_bound_and_gets_the_public_url() {
    let server = Server::start().await;
    let given =
        json!({"capabilities": {"alwaysMatch": {"webSocketUrl": true, "goog:chromeOptions": {"binary": "/bin/sh"}}}});
    let result =
        json!({"value": {"sessionId": "abc", "capabilities": {"webSocketUrl": "ws://127.0.0.1:9515/session/abc"}}});
    let (given, result) = (given.to_string(), result.to_string());
    let ((head, body), answer) = tokio::join!(play(&server, &result), call(&server, "POST", "/wd/session", &given));
    assert!(head.starts_with("POST /session HTTP/1.1\r\n"), "{head}");
    assert_eq!(
        (header(&head, "host"), header(&head, "origin"), header(&head, "authorization")),
        (Some("127.0.0.1:9515"), None, None)
    );
    let always = json!({"goog:chromeOptions": {"debuggerAddress": "127.0.0.1:9222"}, "webSocketUrl": true});
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({"capabilities": {"alwaysMatch": always, "firstMatch": [{}]}})
    );
    assert!(answer.contains("wss://casement.test/vm/S/webdriver/session/abc?jwt=TOKEN"), "{answer}");
    assert!(!answer.contains("9515"), "{answer}");
}

#[actix_web::test]
async fn other_commands_pass_unchanged() {
    let server = Server::start().await;
    let long = format!(r#"{{"value":"{}"}}"#, "x".repeat(3_000_000));
    let path = "/wd/session/abc/element/f.1.d.2.e.3/attribute/data-x%20y";
    let ((head, body), answer) = tokio::join!(play(&server, &long), call(&server, "POST", path, r#"{"a":1}"#));
    assert!(head.starts_with("POST /session/abc/element/f.1.d.2.e.3/attribute/data-x%20y HTTP/1.1\r\n"), "{head}");
    assert_eq!(body, r#"{"a":1}"#);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.len() > 3_000_000);
}

#[test]
fn chromedrivers_own_commands_are_closed_to_callers() {
    for tail in [
        "",
        "shutdown",
        "sessions",
        "session/",
        "/session",
        "session//url",
        "session/x/../../shutdown",
        "session/..",
        "session/%2e%2e",
        "session/abc/%2E%2e/x",
        "session/abc/%2fshutdown",
        "session/abc/.",
        "session/a b",
        "SESSION",
        "status/x",
        "wd/hub/session",
        "session/abc/x%00",
        "session/abc/%252e%252e",
        "session?x",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let refused = ClassicRequest::check(&method, tail, Bytes::from_static(b"{}"));
            assert!(matches!(refused, Err(ClassicError::UnknownCommand)), "{method} {tail}");
        }
    }
    assert!(matches!(ClassicRequest::check(&Method::GET, "session", Bytes::new()), Err(ClassicError::UnknownCommand)));
    assert!(matches!(ClassicRequest::check(&Method::PUT, "status", Bytes::new()), Err(ClassicError::Method)));
    for body in [&b""[..], b"{", b"{} {}"] {
        assert!(matches!(
            ClassicRequest::check(&Method::POST, "session", Bytes::from_static(body)),
            Err(ClassicError::Body)
        ));
    }
    assert!(ClassicRequest::check(&Method::GET, "status", Bytes::new()).is_ok());
    assert!(ClassicRequest::check(&Method::POST, "session/abc/goog/cdp/execute", Bytes::new()).is_ok());
}

#[test]
fn a_webdriver_session_id_has_only_letters_digits_and_hyphens() {
    assert_eq!(WebDriverSessionId::parse("0a-Z").unwrap().upstream_path(), "/session/0a-Z");
    for bad in ["", "..", "a/b", "a%2fb", "ä", &"a".repeat(65)] {
        assert!(WebDriverSessionId::parse(bad).is_err(), "{bad}");
    }
}

#[actix_web::test]
async fn a_truncated_response_of_chromedriver_is_a_webdriver_error() {
    let server = Server::start().await;
    let hang_up = async {
        let (mut stream, _) = server.upstream.accept().await.unwrap();
        read_head(&mut stream).await;
    };
    let ((), answer) = tokio::join!(hang_up, call(&server, "GET", "/wd/session/abc/url", ""));
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(r#""error":"unknown error""#), "{answer}");
    // An informational status would not end the response.
    let switch = async {
        let (mut stream, _) = server.upstream.accept().await.unwrap();
        read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nstray")
            .await
            .unwrap();
    };
    let ((), answer) = tokio::join!(switch, call(&server, "GET", "/wd/session/abc/url", ""));
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(r#""error":"unknown error""#), "{answer}");
    let answer = call(&server, "POST", "/wd/shutdown", "").await;
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains(r#""error":"unknown command""#), "{answer}");
}

#[actix_web::test]
async fn a_chromedriver_disconnect_is_a_normal_end_while_the_session_is_active() {
    let server = Server::start().await;
    // chromedriver disconnects before a session is bound.
    let (mut client, chromedriver, _) = server.pair("/webdriver").await;
    drop(chromedriver);
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(1000, "normal")));
    // chromedriver disconnects after a session was bound, as it does after `session.end`.
    let (mut client, mut chromedriver, _) = server.pair("/webdriver").await;
    send(&mut client, &hostile_new(1), MASK).await;
    receive(&mut chromedriver).await;
    send(&mut chromedriver, &json!({"type": "success", "id": 1, "result": {}}), None).await;
    receive(&mut client).await;
    send(&mut client, &json!({"id": 2, "method": "session.end", "params": {}}), MASK).await;
    receive(&mut chromedriver).await;
    send(&mut chromedriver, &json!({"type": "success", "id": 2, "result": {}}), None).await;
    drop(chromedriver);
    assert_eq!(receive(&mut client).await["id"], 2);
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(1000, "normal")));
}

#[actix_web::test]
async fn a_chromedriver_that_ends_with_its_session_closes_with_its_reason() {
    for bound in [false, true] {
        let patient = Limits { crash_grace: Duration::from_secs(15), ..Limits::default() };
        let server = Server::with(patient).await;
        let (mut client, mut chromedriver, _) = server.pair("/webdriver").await;
        if bound {
            send(&mut client, &hostile_new(1), MASK).await;
            receive(&mut chromedriver).await;
            send(&mut chromedriver, &json!({"type": "success", "id": 1, "result": {}}), None).await;
            receive(&mut client).await;
        }
        drop(chromedriver);
        server.shared.end.end(CloseReason::Crashed);
        assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(4002, "crashed")));
    }
}

/// Sends a command that chromedriver does not read completely. Returns the connections of the client and of
/// chromedriver, and the length of the command.
async fn clogged(server: &Server) -> (TcpStream, TcpStream, usize) {
    SockRef::from(&server.upstream).set_recv_buffer_size(4096).unwrap();
    server.shared.has_small_buffer.store(true, Ordering::SeqCst);
    let (mut client, chromedriver, _) = server.pair("/webdriver").await;
    let command = json!({"id": 1, "method": "session.status", "params": {"x": "x".repeat(1_000_000)}}).to_string();
    let command = frame(true, 1, command.as_bytes(), MASK);
    soon(client.write_all(&command)).await.unwrap();
    soon(chromedriver.readable()).await.unwrap();
    (client, chromedriver, command.len())
}

/// Asserts that the relay ended in the middle of the command.
async fn assert_cut(mut chromedriver: TcpStream, whole: usize) {
    let mut got = Vec::new();
    drop(soon(chromedriver.read_to_end(&mut got)).await);
    assert!(got.len() < whole, "{} of {whole}", got.len());
}

#[actix_web::test]
async fn a_session_that_ends_while_chromedriver_stalls_closes_the_connection() {
    let server = Server::start().await;
    let (mut client, chromedriver, whole) = clogged(&server).await;
    server.shared.end.end(CloseReason::Deleted);
    let (opcode, payload) = soon(read_frame(&mut client)).await;
    assert_eq!((opcode, &payload[2..]), (8, &b"deleted"[..]));
    eventually("it is over", || server.open() == 0).await;
    assert_cut(chromedriver, whole).await;
}

#[actix_web::test]
async fn a_client_that_disconnects_while_chromedriver_stalls_leaves_nothing_open() {
    let server = Server::start().await;
    let (client, chromedriver, whole) = clogged(&server).await;
    drop(client);
    eventually("it is over", || server.open() == 0).await;
    assert_cut(chromedriver, whole).await;

    let (mut client, mut chromedriver, _) = server.pair("/webdriver").await;
    send(&mut client, &hostile_new(1), MASK).await;
    receive(&mut chromedriver).await;
    assert_eq!(server.open(), 1, "it waits for the answer");
    drop(client);
    eventually("it is over", || server.open() == 0).await;
}
