//! Tests of plain HTTP through the proxy.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{Origin, Session, has_more, header, read_head, until};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn the_origin_sees_a_request_as_if_sent_directly() {
    let origin = Origin::echo_heads().await;
    let session = Session::open(&["127.0.0.1/32"]);
    let request = format!(
        "GET http://user:secret@{}/a/b?c=%20d HTTP/1.1\r\nHost: lie.example\r\nX-Own: 1\r\nAccept: */*\r\nCookie: a=b\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nConnection: X-Hop, close-not\r\nX-Hop: 1\r\n\
         Keep-Alive: timeout=9\r\nTE: trailers\r\nUpgrade: h2c\r\nUser-Agent: me\r\n\r\n",
        origin.address
    );
    let answer = session.connect().await.ask(request).await;
    let expected = format!(
        "GET /a/b?c=%20d HTTP/1.1\r\nHost: {}\r\nX-Own: 1\r\nAccept: */*\r\nCookie: a=b\r\nConnection: keep-alive\r\nUser-Agent: me\r\n\r\n",
        origin.address
    );
    assert_eq!(String::from_utf8(answer.body).unwrap(), expected);
}

#[tokio::test]
async fn hop_by_hop_response_headers_are_removed() {
    let origin = Origin::answering(
        b"HTTP/1.1 203 Maybe\r\nServer: x\r\nDate: then\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nConnection: close, X-Hop\r\n\
          X-Hop: 1\r\nProxy-Authenticate: Basic\r\nKeep-Alive: x\r\nContent-Length: 2\r\n\r\nhi",
    )
    .await;
    let session = Session::open(&["127.0.0.1/32"]);
    let answer = session.get(&origin.url("/")).await;
    assert_eq!(answer.status, 203);
    assert_eq!(answer.body, b"hi");
    let names: Vec<_> =
        answer.head.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    assert_eq!(names, ["Server", "Date", "Set-Cookie", "Set-Cookie", "Content-Length"]);
}

#[tokio::test]
async fn requests_to_one_origin_share_a_connection() {
    let origin = Origin::echo_heads().await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut client = session.connect().await;
    for n in 0..5 {
        let answer = client.get(&origin.url(&format!("/{n}"))).await;
        assert!(answer.body.starts_with(format!("GET /{n} ").as_bytes()));
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(session.get(&origin.url("/")).await.status, 200);
    assert_eq!(origin.connections(), 2, "another connection of the session has its own");
}

#[tokio::test]
async fn a_closed_pooled_connection_is_replaced_transparently() {
    let origin = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut client = session.connect().await;
    for _ in 0..20 {
        assert_eq!(client.get(&origin.url("/")).await.status, 200);
        let post = format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", origin.url("/"));
        assert_eq!(client.ask(post).await.status, 200);
    }
    assert_eq!(origin.connections(), 40);
}

#[tokio::test]
async fn bodies_of_every_framing_pass() {
    let session = Session::open(&["127.0.0.1/32"]);
    for (sent, body) in [
        (&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"[..], &b"abcde"[..]),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x"),
    ] {
        let origin = Origin::answering(sent).await;
        let answer = session.get(&origin.url("/")).await;
        assert_eq!((answer.status, &answer.body[..]), (200, body));
    }
}

#[tokio::test]
async fn a_head_response_keeps_its_length_and_has_no_body() {
    let origin = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n").await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut client = session.connect().await;
    client.send(format!("HEAD {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url("/"))).await;
    let head = read_head(&mut client.stream).await;
    assert_eq!(header(&head, "content-length"), Some("1234"));
    assert_eq!(client.get("http://10.0.0.1/").await.status, 403, "the connection goes on after the head");
}

#[tokio::test]
async fn a_chunked_upload_is_streamed() {
    let received = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&received);
    let origin = Origin::start(move |mut stream| {
        let counter = Arc::clone(&counter);
        async move {
            let head = read_head(&mut stream).await;
            assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
            let mut tail = Vec::new();
            let mut buffer = vec![0; 64 * 1024];
            while !tail.ends_with(b"0\r\n\r\n") {
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "the upload broke off");
                counter.fetch_add(buffer[..read].iter().filter(|byte| **byte == b'x').count(), SeqCst);
                tail.extend_from_slice(&buffer[..read]);
                tail.drain(..tail.len().saturating_sub(5));
            }
            stream.get_mut().write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut client = session.connect().await;
    let url = origin.url("/");
    client
        .send(format!("POST {url} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"))
        .await;
    let go_on = read_head(&mut client.stream).await;
    assert!(go_on.starts_with("HTTP/1.1 100"), "{go_on}");
    let chunk = [format!("{:x}\r\n", MIB).into_bytes(), vec![b'x'; MIB], b"\r\n".to_vec()].concat();
    for n in 1..=20 {
        client.send(&chunk).await;
        // At most one chunk may be buffered on the way when the next one is sent.
        until("the chunk arrives", || received.load(SeqCst) + MIB >= n * MIB).await;
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 201);
    assert_eq!(received.load(SeqCst), 20 * MIB);
}

#[tokio::test]
async fn a_client_that_stops_reading_stops_the_origin() {
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    let origin = Origin::start(move |mut stream| {
        let counter = Arc::clone(&counter);
        async move {
            read_head(&mut stream).await;
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let block = vec![b'x'; 64 * 1024];
            while stream.get_mut().write_all(&block).await.is_ok() {
                counter.fetch_add(block.len() as u64, SeqCst);
            }
        }
    })
    .await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut client = session.connect().await;
    client.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url("/"))).await;
    read_head(&mut client.stream).await;
    let (mut last, mut unchanged) = (0, 0);
    until("the origin stands still", || {
        let now = written.load(SeqCst);
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
        unchanged > 100
    })
    .await;
    // The kernel may buffer some MiB for a TCP connection; the proxy buffers almost nothing.
    assert!(last < 16 * MIB as u64, "{last} bytes were taken from the origin");
    assert!(session.handle.stats().bytes_to_session < MIB as u64);
    drop(client);
    until("the connection is given up", || session.handle.stats().connections == 0).await;
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_request() {
    let origin = Origin::start(|mut stream| async move {
        read_head(&mut stream).await;
        // The stream ends when the proxy disconnects, without an answer.
        assert!(!has_more(&mut stream).await);
    })
    .await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut client = session.connect().await;
    client.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url("/"))).await;
    until("the origin is asked", || origin.connections() == 1).await;
    drop(client);
    until("the connection is given up", || session.handle.stats().connections == 0).await;
}

#[tokio::test]
async fn concurrent_clients_get_their_own_responses() {
    let origin = Arc::new(Origin::echo_heads().await);
    let session = Arc::new(Session::open(&["127.0.0.1/32"]));
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..200 {
        let (origin, session) = (Arc::clone(&origin), Arc::clone(&session));
        clients.spawn(async move {
            let mut client = session.connect().await;
            for m in 0..10 {
                let answer = client.get(&origin.url(&format!("/{n}/{m}"))).await;
                assert!(answer.body.starts_with(format!("GET /{n}/{m} HTTP/1.1\r\n").as_bytes()));
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(session.handle.stats().requests, 2000);
    assert_eq!(origin.connections(), 200);
    until("all are gone", || session.handle.stats().connections == 0).await;
}
