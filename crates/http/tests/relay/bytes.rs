//! Relays forward bytes unchanged.

use casement_http::relay::{FrameTracker, TooLong};
use pretty_assertions::assert_eq;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Server, TestRandom, connect, frame, frame_header, header, soon};

/// Returns messages of many sizes, some fragmented with a ping in between.
fn traffic(dice: &mut TestRandom, masked: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for size in [0, 1, 125, 126, 127, 65_535, 65_536, 200_000] {
        let mut left = size + dice.below(3);
        // Only the browser may send binary messages.
        let mut opcode = if masked { 1 } else { 1 + dice.below(2) as u8 };
        loop {
            let part = dice.below(left + 1).max(left / 3);
            let mask = masked.then(|| [dice.below(256) as u8, 2, 3, 4]);
            bytes.extend(frame(part == left, opcode, &dice.bytes(part), mask));
            if part == left {
                break;
            }
            bytes.extend(frame(true, 9, b"still there?", mask));
            left -= part;
            opcode = 0;
        }
    }
    bytes
}

#[actix_web::test]
async fn bytes_pass_unchanged_for_any_size_and_fragmentation() {
    let server = Server::start().await;
    for seed in 0..6 {
        let mut dice = TestRandom::new(seed);
        let (client, upstream, _) = server.pair("/cdp").await;
        for (mut from, mut to, masked) in [(client, upstream, true)] {
            let up = traffic(&mut dice, masked);
            let down = traffic(&mut dice, false);
            let (mut from_read, mut from_write) = from.split();
            let (mut to_read, mut to_write) = to.split();
            let (mut seen_up, mut seen_down) = (vec![0; up.len()], vec![0; down.len()]);
            let cut = dice.below(up.len() as u64) as usize;
            soon(async {
                let send_up = async {
                    for part in [&up[..cut], &up[cut..]] {
                        from_write.write_all(part).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                };
                let ((), sent, got_up, got_down) = tokio::join!(
                    send_up,
                    to_write.write_all(&down),
                    to_read.read_exact(&mut seen_up),
                    from_read.read_exact(&mut seen_down)
                );
                sent.unwrap();
                got_up.unwrap();
                got_down.unwrap();
            })
            .await;
            assert!(seen_up == up && seen_down == down, "bytes changed on the way, seed {seed}");
        }
    }
}

#[actix_web::test]
async fn the_upstream_gets_the_servers_handshake_and_nothing_of_the_clients() {
    let server = Server::start().await;
    let extra = "Origin: http://attacker.test\r\nCookie: a=b\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\
                 Sec-WebSocket-Protocol: x\r\nAuthorization: Bearer secret\r\n";
    let (client, upstream) =
        tokio::join!(connect(server.address, "/cdp?jwt=secret", extra), super::support::accept(&server.upstream));
    let (answer, seen) = (client.1, upstream.1);
    assert!(seen.starts_with("GET /devtools/browser/1 HTTP/1.1\r\n"), "{seen}");
    assert_eq!(header(&seen, "host"), Some("127.0.0.1:9222"));
    assert_ne!(header(&seen, "sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    for absent in ["origin", "cookie", "authorization", "sec-websocket-extensions", "sec-websocket-protocol"] {
        assert_eq!(header(&seen, absent), None, "{absent}");
    }
    assert!(!seen.contains("secret"));
    // The value is from the example in RFC 6455 §1.3.
    assert_eq!(header(&answer, "sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(header(&answer, "sec-websocket-extensions"), None);
}

#[actix_web::test]
async fn data_right_after_the_upstreams_handshake_is_not_lost() {
    let server = Server::start().await;
    let early = frame(true, 1, b"first", None);
    let upstream = async {
        let (mut upstream, _) = server.upstream.accept().await.unwrap();
        let head = super::support::read_head(&mut upstream).await;
        let key = header(&head, "sec-websocket-key").unwrap();
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let mut answer = format!("HTTP/1.1 101 OK\r\nsec-websocket-accept: {accept}\r\n\r\n").into_bytes();
        answer.extend(&early);
        upstream.write_all(&answer).await.unwrap();
        upstream
    };
    let ((mut client, _), _upstream) = tokio::join!(connect(server.address, "/cdp", ""), upstream);
    assert_eq!(soon(super::support::read_frame(&mut client)).await, (1, b"first".to_vec()));
}

#[actix_web::test]
async fn a_request_that_is_no_handshake_reaches_no_browser() {
    let server = Server::start().await;
    let good = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (from, to) in [
        ("Upgrade: websocket", "Upgrade: h2c"),
        ("Connection: Upgrade", "Connection: close"),
        ("Version: 13", "Version: 8"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
        ("dGhlIHNhbXBsZSBub25jZQ==", "!"),
    ] {
        let mut client = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET /cdp HTTP/1.1\r\nHost: x\r\n{}\r\n", good.replacen(from, to, 1));
        client.write_all(request.as_bytes()).await.unwrap();
        let head = soon(super::support::read_head(&mut client)).await;
        assert!(head.starts_with("HTTP/1.1 400"), "{to}: {head}");
    }
    assert_eq!(server.open(), 0);
}

#[test]
fn the_tracker_finds_frame_boundaries_for_any_chunk_size() {
    let mut dice = TestRandom::new(7);
    let frames: Vec<Vec<u8>> =
        [0, 1, 125, 126, 70_000].map(|size| frame(true, 1, &dice.bytes(size), Some([1, 2, 3, 4]))).into();
    for cut in 1..20 {
        let mut tracker = FrameTracker::new(u64::MAX);
        for frame in &frames {
            assert!(tracker.between_frames());
            for part in frame.chunks(cut) {
                tracker.feed(part).unwrap();
            }
        }
        assert!(tracker.between_frames());
        tracker.feed(&frames[4][..frames[4].len() - 1]).unwrap();
        assert!(!tracker.between_frames());
    }
}

#[test]
fn the_tracker_counts_a_message_over_its_fragments() {
    let mut tracker = FrameTracker::new(10);
    let mut feed = |fin, opcode, length: u64| {
        let mut bytes = frame_header(fin, opcode, length, false);
        bytes.extend(vec![0; length as usize]);
        tracker.feed(&bytes)
    };
    assert_eq!(feed(true, 1, 10), Ok(()));
    assert_eq!(feed(false, 2, 6), Ok(()));
    assert_eq!(feed(true, 9, 100), Ok(()), "a ping is no part of the message");
    assert_eq!(feed(false, 0, 4), Ok(()));
    assert_eq!(feed(true, 0, 1), Err(TooLong { limit: 10 }));
}
