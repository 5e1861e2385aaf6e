//! Tests of refused destinations, and of the information that a refusal reveals.

use std::time::{Duration, Instant};

use super::support::{NO_RESPONSE, Origin, Session, at_one_port, closed_port, header};

#[tokio::test]
async fn metadata_is_refused_by_address_and_by_name() {
    let session = Session::open(&[]);
    session.names.answer("innocent.example", &[&["169.254.169.254"]]);
    session.names.answer("metadata.google.internal", &[&["169.254.169.254"]]);
    for (host, status) in [
        ("169.254.169.254", 403),
        ("[fd00:ec2::254]", 403),
        ("100.100.100.200", 403),
        ("metadata.google.internal", 403),
        ("innocent.example", NO_RESPONSE),
    ] {
        assert_eq!(session.get(&format!("http://{host}/latest/meta-data/")).await.status, status, "{host}");
        let connect = format!("CONNECT {host}:80 HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let tunnel = if status == NO_RESPONSE { 502 } else { status };
        assert_eq!(session.connect().await.ask(connect).await.status, tunnel, "{host}");
    }
    assert_eq!(session.handle.stats().refused, 10);
}

#[tokio::test]
async fn dns_rebinding_never_reaches_a_private_address() {
    let session = Session::open(&["127.0.0.2/32"]);
    let (outer, inner) = at_one_port().await;
    let allowed = Origin::start_on(outer, |mut stream| async move {
        while super::support::has_more(&mut stream).await {
            super::support::read_head(&mut stream).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            tokio::io::AsyncWriteExt::write_all(stream.get_mut(), answer).await.unwrap();
        }
    });
    let port = allowed.address.port();
    let inner = Origin::start_on(inner, |_| async {});
    session.names.answer("rebind.example", &[&["127.0.0.2"], &["127.0.0.1"]]);

    let mut client = session.connect().await;
    let url = format!("http://rebind.example:{port}/");
    assert_eq!(client.get(&url).await.body, b"ok");
    assert_eq!(session.names.requests(), 1, "one lookup decides and is dialled");
    assert_eq!(
        client.get(&url).await.status,
        NO_RESPONSE,
        "the open connection does not carry a request past the rules"
    );
    assert_eq!(session.names.requests(), 2);

    session.names.answer("rebind.example", &[&["127.0.0.2"], &["127.0.0.1"]]);
    let connect = format!("CONNECT rebind.example:{port} HTTP/1.1\r\nHost: rebind.example\r\n\r\n");
    assert_eq!(session.connect().await.ask(&connect).await.status, 200);
    assert_eq!(session.connect().await.ask(&connect).await.status, 502);
    assert_eq!(session.names.requests(), 4);
    assert_eq!((allowed.connections(), inner.connections()), (2, 0));
    assert_eq!(session.handle.stats().refused, 2, "the operator sees what was refused");
}

#[tokio::test]
async fn only_allowed_addresses_of_a_name_are_dialled() {
    let session = Session::open(&["127.0.0.2/32"]);
    let inner = Origin::silent().await;
    let port = inner.address.port();
    session.names.answer("both.example", &[&["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"]]);
    let answer = session.get(&format!("http://both.example:{port}/")).await;
    assert_eq!(answer.status, NO_RESPONSE, "127.0.0.2 is allowed and closed");
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let session = Session::open(&["127.0.0.2/32"]);
    let inner = Origin::silent().await;
    let outer = Origin::start_at("127.0.0.2:0", move |mut stream| async move {
        super::support::read_head(&mut stream).await;
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", "http://127.0.0.1/");
        tokio::io::AsyncWriteExt::write_all(stream.get_mut(), answer.as_bytes()).await.unwrap();
    })
    .await;
    let mut client = session.connect().await;
    let redirect = client.get(&outer.url("/")).await;
    assert_eq!(redirect.status, 302);
    assert_eq!(client.get(header(&redirect.head, "location").unwrap()).await.status, 403);
    assert_eq!(client.get(&inner.url("/")).await.status, 403);
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn each_request_on_a_connection_is_checked() {
    let allowed = Origin::echo_heads().await;
    let session = Session::open(&[&allowed.address.to_string()]);
    let other = Origin::silent().await;
    let mut client = session.connect().await;
    for _ in 0..3 {
        assert_eq!(client.get(&allowed.url("/")).await.status, 200);
        assert_eq!(client.get(&other.url("/")).await.status, 403);
    }
    assert_eq!(other.connections(), 0);
    let stats = session.handle.stats();
    assert_eq!((stats.requests, stats.refused), (6, 3));
}

#[tokio::test]
async fn a_refusal_does_not_reveal_open_ports() {
    let session = Session::open(&[]);
    let open = Origin::silent().await;
    let mut seen = Vec::new();
    for place in [open.address.to_string(), closed_port().to_string(), "203.0.113.1:9".into()] {
        let connect = format!("CONNECT {place} HTTP/1.1\r\nHost: x\r\n\r\n");
        seen.push(session.get(&format!("http://{place}/")).await);
        seen.push(session.connect().await.ask(connect).await);
    }
    assert_eq!(seen[0].status, 403);
    assert!(seen.iter().all(|answer| *answer == seen[0]), "{seen:#?}");
    assert_eq!(open.connections(), 0);
}

#[tokio::test]
async fn private_and_unknown_names_get_the_same_response_at_the_same_time() {
    let session = Session::open(&[]);
    let open = Origin::silent().await;
    let port = open.address.port();
    for (name, address) in [("open.inner", "127.0.0.1"), ("other.inner", "10.0.0.1"), ("six.inner", "fd00::1")] {
        session.names.answer(name, &[&[address]]);
    }
    let plain = session.get("http://unknown.inner/").await;
    assert_eq!(plain.status, NO_RESPONSE);
    let tunnel = session.connect().await.ask("CONNECT unknown.inner:443 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(tunnel.status, 502);
    for name in ["open.inner", "other.inner", "six.inner", "unknown.inner"] {
        for (request, unknown) in [
            (format!("GET http://{name}:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n"), &plain),
            (format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: x\r\n\r\n"), &tunnel),
        ] {
            let began = Instant::now();
            assert_eq!(session.connect().await.ask(&request).await, *unknown, "{request}");
            // A lookup that took no time must take as long as one that queried servers.
            assert!(began.elapsed() >= Duration::from_millis(250), "{request}");
        }
    }
    assert_eq!(open.connections(), 0);
    assert_eq!(session.handle.stats().refused, 6, "the operator sees the difference");
}

#[tokio::test]
async fn an_unreachable_allowed_host_reveals_nothing() {
    let session = Session::open(&["127.0.0.0/8"]);
    session.names.answer("closed.example", &[&["127.0.0.1"]]);
    let garbage = Origin::answering(b"SSH-2.0-OpenSSH_9.2\r\n").await;
    let mute = Origin::answering(b"").await;
    let port = closed_port().port();
    let first = session.get(&format!("http://127.0.0.1:{port}/")).await;
    assert_eq!(first.status, NO_RESPONSE);
    for url in
        [format!("http://closed.example:{port}/"), "http://unknown.example/".into(), garbage.url("/"), mute.url("/")]
    {
        assert_eq!(session.get(&url).await, first, "{url}");
    }
    let connect = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n");
    let tunnel = session.connect().await.ask(connect).await;
    let unknown = session.connect().await.ask("CONNECT unknown.example:443 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!((tunnel.status, &tunnel), (502, &unknown));
    let text = format!("{}{}", tunnel.head, String::from_utf8(tunnel.body).unwrap());
    assert!(!text.contains("127.") && !text.to_lowercase().contains("refused"), "{text}");
}

#[tokio::test]
async fn mail_ports_are_refused_without_a_lookup() {
    let session = Session::open(&["127.0.0.1/32"]);
    session.names.answer("mx.example", &[&["127.0.0.1"]]);
    for request in
        ["CONNECT mx.example:25 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://127.0.0.1:25/ HTTP/1.1\r\nHost: x\r\n\r\n"]
    {
        assert_eq!(session.connect().await.ask(request).await.status, 403, "{request}");
    }
    assert_eq!(session.names.requests(), 0);
}

#[tokio::test]
async fn other_schemes_are_refused() {
    let origin = Origin::echo_heads().await;
    let session = Session::open(&["127.0.0.1/32"]);
    let port = origin.address.port();
    for url in [
        format!("https://127.0.0.1:{port}/"),
        format!("ftp://127.0.0.1:{port}/"),
        format!("ws://127.0.0.1:{port}/"),
        format!("view-source://127.0.0.1:{port}/"),
        format!("file://127.0.0.1:{port}/etc/passwd"),
    ] {
        assert_eq!(session.get(&url).await.status, 403, "{url}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_request_that_is_no_proxy_request_is_malformed() {
    let session = Session::open(&["127.0.0.1/32"]);
    for request in [
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET 127.0.0.1:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://a b/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT [::1 HTTP/1.1\r\nHost: x\r\n\r\n",
        "G\u{0}T http://127.0.0.1/ HTTP/1.1\r\n\r\n",
        "GET http://127.0.0.1/ HTTP/1.1\r\nno colon here\r\n\r\n",
        "GET http://127.0.0.1/ HTTP/1.1\r\n Folded: x\r\n\r\n",
        "GET http://127.0.0.1/\r\n\r\n",
        "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\r\n\r\n",
    ] {
        let mut client = session.connect().await;
        client.send(request).await;
        let status = client.answer().await.status;
        assert!((400..=403).contains(&status), "{status} for {request:?}");
    }
    let mut http2 = session.connect().await;
    http2.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(http2.is_closed().await);
    for authority in ["127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:99999999999", "127.0.0.1", "x..example:80"] {
        let connect = format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n");
        let status = session.connect().await.ask(connect).await.status;
        assert!([400, 403].contains(&status), "{status} for {authority}");
    }
}

#[tokio::test]
async fn an_origin_cannot_pose_as_the_proxy() {
    let session = Session::open(&["127.0.0.1/32"]);
    for answer in [
        &b"HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n"[..],
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ] {
        let origin = Origin::answering(answer).await;
        assert_eq!(session.get(&origin.url("/")).await.status, NO_RESPONSE);
    }
}
