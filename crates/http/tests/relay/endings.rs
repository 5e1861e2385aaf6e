//! A relay ends with a close frame that states the reason, if a close frame is possible.

use casement_http::relay::{CloseReason, Limits};
use pretty_assertions::assert_eq;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Server, close_payload, eventually, frame, frame_header, read_frame, soon};

#[test]
fn close_codes_match_the_documentation() {
    let table: Vec<_> = CloseReason::ALL.iter().map(|reason| (reason.code(), reason.as_str())).collect();
    let expected = [
        (1000, "normal"),
        (4000, "deleted"),
        (4001, "idle_timeout"),
        (4002, "crashed"),
        (4003, "released"),
        (4004, "browser_restarted"),
        (4005, "slow_reader"),
        (4006, "oom"),
        (4007, "browser_closed"),
        (4008, "browser_hung"),
        (4010, "node_drained"),
        (4011, "engine_lost"),
        (1012, "drain"),
        (1009, "message_too_big"),
        (1003, "unsupported_data"),
        (1002, "protocol_error"),
        (1008, "policy"),
        (4009, "node_unreachable"),
        (4012, "too_many_viewers"),
    ];
    assert_eq!(table, expected);
}

#[actix_web::test]
async fn the_close_frame_is_sent_between_two_frames() {
    for reason in CloseReason::ALL {
        let server = Server::start().await;
        let (mut client, mut upstream, _) = server.pair("/cdp").await;
        upstream.write_all(&frame(true, 1, b"the last message", None)).await.unwrap();
        assert_eq!(soon(read_frame(&mut client)).await, (1, b"the last message".to_vec()));
        server.shared.end.end(reason);
        assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(reason.code(), reason.as_str())));
        drop(client);
        eventually("the relay is over", || server.open() == 0).await;
        let mut rest = Vec::new();
        let _ = soon(upstream.read_to_end(&mut rest)).await;
    }
}

#[actix_web::test]
async fn within_an_incomplete_frame_the_connection_closes_without_a_close_frame() {
    let server = Server::start().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    let mut begun = frame_header(true, 2, 1000, false);
    begun.extend([7; 10]);
    upstream.write_all(&begun).await.unwrap();
    let mut seen = vec![0; begun.len()];
    soon(client.read_exact(&mut seen)).await.unwrap();
    server.shared.end.end(CloseReason::Deleted);
    let mut rest = Vec::new();
    soon(client.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
}

#[actix_web::test]
async fn a_relay_after_the_end_of_its_session_closes_at_once() {
    let server = Server::start().await;
    server.shared.end.end(CloseReason::IdleTimeout);
    server.shared.end.end(CloseReason::Deleted);
    let (mut client, _upstream, _) = server.pair("/cdp").await;
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(4001, "idle_timeout")));
}

#[actix_web::test]
async fn a_browser_that_disconnects_has_crashed() {
    let server = Server::start().await;
    let (mut client, upstream, _) = server.pair("/cdp").await;
    drop(upstream);
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(4002, "crashed")));
}

#[actix_web::test]
async fn the_sessions_reason_takes_precedence_over_crashed() {
    let server = Server::with(Limits { crash_grace: Duration::from_secs(15), ..Limits::default() }).await;
    let (mut client, upstream, _) = server.pair("/cdp").await;
    drop(upstream);
    client.write_all(&frame(true, 1, b"anybody?", Some([1; 4]))).await.unwrap();
    server.shared.end.end(CloseReason::Oom);
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(4006, "oom")));
}

#[actix_web::test]
async fn the_browsers_close_frame_passes_and_is_the_last_frame() {
    let server = Server::start().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    upstream.write_all(&frame(true, 8, &close_payload(1000, "bye"), None)).await.unwrap();
    drop(upstream);
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(1000, "bye")));
    let mut rest = Vec::new();
    soon(client.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
}

#[actix_web::test]
async fn a_client_disconnect_closes_its_browser_connection() {
    let server = Server::start().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    assert_eq!(server.open(), 1);
    let farewell = frame(true, 1, b"Browser.close", Some([9; 4]));
    client.write_all(&farewell).await.unwrap();
    drop(client);
    let mut seen = Vec::new();
    let _ = soon(upstream.read_to_end(&mut seen)).await;
    assert_eq!(seen, farewell, "what it said before it went still arrives");
    eventually("the relay is over", || server.open() == 0).await;
}

#[actix_web::test]
async fn a_message_above_the_limit_is_refused_by_its_header_alone() {
    let server = Server::start().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    let mut header = frame_header(true, 1, 100 * 1024 * 1024 + 1, true);
    header.extend([1; 4]);
    client.write_all(&header).await.unwrap();
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(1009, "message_too_big")));
    drop(client);
    let mut seen = Vec::new();
    let _ = soon(upstream.read_to_end(&mut seen)).await;
    assert_eq!(seen, b"", "nothing of it reached the browser");
}

/// The browser itself would only close the connection, which looks like a crash.
#[actix_web::test]
async fn a_protocol_violation_is_reported_as_such_and_not_as_a_browser_crash() {
    let mask = Some([9; 4]);
    let mut compressed = frame(true, 1, b"x", mask);
    compressed[0] |= 0x40;
    for (what, bad) in [
        ("unmasked", frame(true, 1, b"x", None)),
        ("RSV1", compressed),
        ("a reserved opcode", frame(true, 3, b"x", mask)),
        ("a continuation of nothing", frame(true, 0, b"x", mask)),
    ] {
        let server = Server::start().await;
        let (mut client, mut upstream, _) = server.pair("/cdp").await;
        let good = frame(true, 1, b"good", mask);
        client.write_all(&[good.clone(), bad].concat()).await.unwrap();
        assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(1002, "protocol_error")), "{what}");
        // The server still reads data of the client, so that the client can read the close frame.
        client.write_all(&vec![0; 1 << 20]).await.unwrap();
        drop(client);
        let mut seen = Vec::new();
        let _ = soon(upstream.read_to_end(&mut seen)).await;
        assert!(seen.starts_with(&good), "{what}: what was good before it arrives");
        eventually("the relay is over", || server.open() == 0).await;
    }
}

/// The browser itself would only close the connection, which looks like a crash.
#[actix_web::test]
async fn a_binary_message_is_refused_with_its_own_code_and_the_browser_gets_nothing_of_it() {
    for path in ["/cdp", "/webdriver"] {
        let server = Server::start().await;
        let (mut client, mut upstream, _) = server.pair(path).await;
        client.write_all(&frame(true, 2, b"binary", Some([9; 4]))).await.unwrap();
        assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(1003, "unsupported_data")), "{path}");
        drop(client);
        let mut seen = Vec::new();
        let _ = soon(upstream.read_to_end(&mut seen)).await;
        assert_eq!(seen, b"", "{path}");
        eventually("the relay is over", || server.open() == 0).await;
    }
}

#[actix_web::test]
async fn a_close_frame_of_the_client_is_answered_even_if_the_browser_only_disconnects() {
    let server = Server::start().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    let close = frame(true, 8, &close_payload(1000, ""), Some([9; 4]));
    client.write_all(&close).await.unwrap();
    let mut seen = vec![0; close.len()];
    soon(upstream.read_exact(&mut seen)).await.unwrap();
    drop(upstream);
    assert_eq!(soon(read_frame(&mut client)).await, (8, close_payload(1000, "normal")));
}

#[actix_web::test]
async fn a_message_at_the_limit_passes_in_frames_that_the_browser_accepts() {
    let server = Server::start().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    let length = 100 * 1024 * 1024;
    let mut header = frame_header(true, 1, length, true);
    header.extend([0; 4]);
    let sending = async {
        client.write_all(&header).await.unwrap();
        for _ in 0..length / (1 << 20) {
            client.write_all(&vec![7; 1 << 20]).await.unwrap();
        }
    };
    let receiving = async {
        let (mut left, mut frames) = (length, Vec::new());
        while left > 0 {
            let mut head = [0; 14];
            upstream.read_exact(&mut head).await.unwrap();
            assert_eq!(head[1], 0xff, "masked, with a long length");
            let piece = u64::from_be_bytes(head[2..10].try_into().unwrap());
            let mut payload = vec![0; usize::try_from(piece).unwrap()];
            upstream.read_exact(&mut payload).await.unwrap();
            assert!(payload.iter().all(|byte| *byte == 7));
            frames.push((head[0], piece));
            left -= piece;
        }
        frames
    };
    let (_, frames) = soon(async { tokio::join!(sending, receiving) }).await;
    assert!(frames.iter().all(|(_, piece)| *piece <= 32 << 20), "{frames:?}");
    assert_eq!((frames.first().map(|first| first.0), frames.last().map(|last| last.0)), (Some(0x01), Some(0x80)));
}

#[actix_web::test]
async fn an_upstream_that_refuses_the_handshake_leads_to_an_ordinary_response() {
    let server = Server::start().await;
    let refuse = async {
        let (mut upstream, _) = server.upstream.accept().await.unwrap();
        super::support::read_head(&mut upstream).await;
        upstream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    };
    let ((_, head), ()) = tokio::join!(super::support::connect(server.address, "/cdp", ""), refuse);
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    eventually("nothing stays open", || server.open() == 0).await;
}
