//! A session's own proxy: what goes through it, what does not, and what is said when it fails.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use casement_egress::{Checked, Egress, Limits, Proxy, ProxyProtocol, Route, Rules};
use secrecy::SecretString;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::TcpStream,
};

use super::support::{Names, Origin, Session, closed_port, header, read_head};

const BASIC: &str = "Basic bWU6cDpALyU=";

/// A proxy of either protocol that asks for `me` and `p:@/%` and leads everywhere to one place, whatever name it is asked for.
struct Exit {
    server: Origin,
    asked: Arc<Mutex<Vec<String>>>,
    tunnels: Arc<AtomicUsize>,
}

impl Exit {
    async fn http(to: std::net::SocketAddr) -> Self {
        let (asked, tunnels) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicUsize::new(0)));
        let (heads, count) = (asked.clone(), tunnels.clone());
        let server = Origin::start(move |mut client| {
            let (heads, count) = (heads.clone(), count.clone());
            async move {
                let head = read_head(&mut client).await;
                let line = head.lines().next().unwrap().to_owned();
                heads.lock().unwrap().push(line.clone());
                if header(&head, "proxy-authorization") != Some(BASIC) {
                    let refusal =
                        b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n";
                    client.get_mut().write_all(refusal).await.unwrap();
                    return;
                }
                if line.contains("nowhere.example") || line.contains(".invalid") {
                    client.get_mut().write_all(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                    return;
                }
                let mut origin = TcpStream::connect(to).await.unwrap();
                if line.starts_with("CONNECT ") {
                    count.fetch_add(1, SeqCst);
                    client.get_mut().write_all(b"HTTP/1.1 200 Yes\r\n\r\n").await.unwrap();
                } else {
                    origin.write_all(head.as_bytes()).await.unwrap();
                }
                copy_bidirectional(&mut client, &mut origin).await.ok();
            }
        })
        .await;
        Self { server, asked, tunnels }
    }

    async fn socks(to: std::net::SocketAddr) -> Self {
        let (asked, tunnels) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicUsize::new(0)));
        let (names, count) = (asked.clone(), tunnels.clone());
        let server = Origin::start(move |mut client| {
            let (names, count) = (names.clone(), count.clone());
            async move {
                let methods = usize::from(bytes(&mut client, 2).await[1]);
                bytes(&mut client, methods).await;
                client.write_all(&[5, 2]).await.unwrap();
                let length = usize::from(bytes(&mut client, 2).await[1]);
                let name = bytes(&mut client, length).await;
                let length = usize::from(bytes(&mut client, 1).await[0]);
                let good = (name, bytes(&mut client, length).await) == (b"me".to_vec(), b"p:@/%".to_vec());
                client.write_all(&[1, u8::from(!good)]).await.unwrap();
                if !good {
                    return;
                }
                let kind = bytes(&mut client, 4).await[3];
                let length = if kind == 3 { usize::from(bytes(&mut client, 1).await[0]) } else { 4 };
                let name = String::from_utf8_lossy(&bytes(&mut client, length).await).into_owned();
                bytes(&mut client, 2).await;
                names.lock().unwrap().push(name.clone());
                let status = if name == "nowhere.example" || name.ends_with(".invalid") { 4 } else { 0 };
                client.write_all(&[5, status, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
                if status == 0 {
                    count.fetch_add(1, SeqCst);
                    let mut origin = TcpStream::connect(to).await.unwrap();
                    copy_bidirectional(&mut client, &mut origin).await.ok();
                }
            }
        })
        .await;
        Self { server, asked, tunnels }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Says something that is no proxy's word, to whoever comes.
async fn nonsense() -> Origin {
    Origin::start(|mut client| async move {
        client.write_all(b"\x00\x01 nonsense\r\n\r\n").await.unwrap();
        // Until the other side has had enough.
        client.read_to_end(&mut Vec::new()).await.ok();
    })
    .await
}

async fn bytes(client: &mut BufReader<TcpStream>, length: usize) -> Vec<u8> {
    let mut found = vec![0; length];
    client.read_exact(&mut found).await.unwrap();
    found
}

fn proxy(protocol: ProxyProtocol, at: std::net::SocketAddr, password: &str, bypass: &[&str]) -> Arc<Proxy> {
    let credentials = Some(("me".to_owned(), SecretString::from(password)));
    let bypass: Vec<_> = bypass.iter().map(ToString::to_string).collect();
    Arc::new(Proxy::new(protocol, (&at.ip().to_string(), at.port()), credentials, &bypass).unwrap())
}

async fn both(to: std::net::SocketAddr) -> [(ProxyProtocol, Exit); 2] {
    [(ProxyProtocol::Http, Exit::http(to).await), (ProxyProtocol::Socks5, Exit::socks(to).await)]
}

#[tokio::test]
async fn requests_and_tunnels_go_through_the_proxy_which_looks_up_the_names() {
    let origin = Origin::echo_heads().await;
    for (protocol, exit) in both(origin.address).await {
        let session = Session::open(&["127.0.0.0/8"]);
        session.handle.set_route(Route::Through(proxy(protocol, exit.server.address, "p:@/%", &[])));
        let answer = session.get("http://any.example/path?q").await;
        assert_eq!(answer.status, 200, "{protocol:?}");
        let head = String::from_utf8(answer.body).unwrap();
        assert_eq!(header(&head, "host"), Some("any.example"));

        let mut client = session.connect().await;
        let answer = client.ask("CONNECT secret.example:443 HTTP/1.1\r\nHost: secret.example:443\r\n\r\n").await;
        assert_eq!(answer.status, 200, "{protocol:?}");
        assert_eq!(client.get("http://x/").await.status, 200, "through the tunnel");
        assert_eq!(session.names.asked(), 0, "no name of the session's is looked up here");
        let asked = exit.asked().join("\n");
        assert!(asked.contains("any.example") && asked.contains("secret.example"), "{asked}");
        if protocol == ProxyProtocol::Http {
            assert_eq!(exit.asked(), ["GET http://any.example/path?q HTTP/1.1", "CONNECT secret.example:443 HTTP/1.1"]);
        } else {
            assert_eq!(exit.tunnels.load(SeqCst), 2);
        }
    }
}

#[tokio::test]
async fn a_proxy_that_fails_is_said_and_nothing_goes_straight() {
    let origin = Origin::echo_heads().await;
    let garbage = nonsense().await;
    for (protocol, exit) in both(origin.address).await {
        for route in [
            Route::Nowhere,
            Route::Through(proxy(protocol, closed_port(), "p:@/%", &[])),
            Route::Through(proxy(protocol, garbage.address, "p:@/%", &[])),
            Route::Through(proxy(protocol, exit.server.address, "wrong", &[])),
        ] {
            let session = Session::open(&["127.0.0.0/8"]);
            session.handle.set_route(route.clone());
            let mut client = session.connect().await;
            let tunnel = client.ask("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").await;
            let said = String::from_utf8(tunnel.body).unwrap();
            assert_eq!(
                (tunnel.status, &*said),
                (502, "The session's proxy could not be used.\n"),
                "{protocol:?} {route:?}"
            );
            assert!(header(&tunnel.head, "proxy-status").is_some());
            let whole = session.get(&origin.url("/")).await;
            assert_eq!(whole.status, 502, "{protocol:?} {route:?}");
            assert!(
                !whole.head.to_lowercase().contains("proxy-authenticate"),
                "the browser asks nobody for a password"
            );
        }
        let session = Session::open(&["127.0.0.0/8"]);
        session.handle.set_route(Route::Through(proxy(protocol, exit.server.address, "p:@/%", &[])));
        let mut client = session.connect().await;
        let answer = client.ask("CONNECT nowhere.example:443 HTTP/1.1\r\nHost: nowhere.example:443\r\n\r\n").await;
        assert_eq!(String::from_utf8(answer.body).unwrap(), "This destination could not be reached.\n");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn what_bypasses_the_proxy_goes_straight_but_not_past_the_wall() {
    let origin = Origin::echo_heads().await;
    let exit = Exit::http(origin.address).await;
    let session = Session::open(&["127.0.0.1"]);
    let bypass = ["127.0.0.0/8", "10.0.0.0/8", "*.inner.example"];
    session.handle.set_route(Route::Through(proxy(ProxyProtocol::Http, exit.server.address, "p:@/%", &bypass)));
    session.names.answer("a.inner.example", &[&["127.0.0.1"]]);
    session.names.answer("b.inner.example", &[&["10.0.0.1"]]);
    assert_eq!(session.get(&origin.url("/")).await.status, 200);
    let port = origin.address.port();
    assert_eq!(session.get(&format!("http://a.inner.example:{port}/")).await.status, 200);
    assert_eq!(exit.asked(), [""; 0]);
    for refused in ["http://10.0.0.1/", "http://b.inner.example/"] {
        assert_eq!(session.get(refused).await.status, 403, "{refused}");
    }
    // Nor is what is private asked of the proxy, which may stand in a private network itself.
    for refused in
        ["http://192.168.0.1/", "http://169.254.169.254/", "http://localhost/", "http://metadata.google.internal/"]
    {
        assert_eq!(session.get(refused).await.status, 403, "{refused}");
    }
    assert_eq!(exit.asked(), [""; 0]);
}

#[tokio::test]
async fn a_proxy_on_a_private_address_is_not_dialled() {
    let origin = Origin::echo_heads().await;
    let exit = Exit::http(origin.address).await;
    let session = Session::open(&[]);
    session.names.answer("proxy.example", &[&["127.0.0.1"]]);
    let named = Proxy::new(ProxyProtocol::Http, ("proxy.example", exit.server.address.port()), None, &[]).unwrap();
    for route in [proxy(ProxyProtocol::Http, exit.server.address, "p:@/%", &[]), Arc::new(named)] {
        session.handle.set_route(Route::Through(route));
        assert_eq!(session.get("http://a.example/").await.status, 502);
    }
    assert_eq!(exit.server.connections(), 0);
}

#[tokio::test]
async fn a_changed_route_counts_from_the_next_request_on_the_same_connection() {
    let origin = Origin::echo_heads().await;
    let exit = Exit::http(origin.address).await;
    let session = Session::open(&["127.0.0.0/8"]);
    let mut client = session.connect().await;
    assert_eq!(client.get(&origin.url("/1")).await.status, 200);
    assert_eq!(exit.asked().len(), 0);
    session.handle.set_route(Route::Through(proxy(ProxyProtocol::Http, exit.server.address, "p:@/%", &[])));
    assert_eq!(client.get("http://8.8.8.8/2").await.status, 200);
    assert_eq!(client.get("http://8.8.8.8/3").await.status, 200, "on the connection that is kept");
    assert_eq!(exit.asked(), ["GET http://8.8.8.8/2 HTTP/1.1"]);
    session.handle.set_route(Route::Direct);
    assert_eq!(client.get(&origin.url("/4")).await.status, 200);
    assert_eq!(exit.asked().len(), 1);
}

#[tokio::test]
async fn a_check_tells_a_proxy_that_works_from_one_that_does_not() {
    let address = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n198.51.100.7\n").await;
    let garbage = nonsense().await;
    let egress = |allow: &[&str]| {
        let rules = Rules::new(allow.iter().map(|text| Rules::parse(text).unwrap()).collect());
        Egress::new(rules, Arc::new(Names::default()), Limits::default())
    };
    let open = egress(&["127.0.0.0/8"]);
    for (protocol, exit) in both(address.address).await {
        let good = proxy(protocol, exit.server.address, "p:@/%", &[]);
        assert_eq!(open.check_proxy(&good, None).await, Checked::Available(None), "{protocol:?}");
        let url = "http://seen.example/".parse().unwrap();
        let found = open.check_proxy(&good, Some(&url)).await;
        assert_eq!(found, Checked::Available("198.51.100.7".parse().ok()), "{protocol:?}");
        for bad in [
            proxy(protocol, exit.server.address, "wrong", &[]),
            proxy(protocol, closed_port(), "p:@/%", &[]),
            proxy(protocol, garbage.address, "p:@/%", &[]),
        ] {
            assert_eq!(open.check_proxy(&bad, None).await, Checked::Unavailable, "{protocol:?}");
            assert_eq!(open.check_proxy(&bad, Some(&url)).await, Checked::Unavailable, "{protocol:?}");
        }
        for url in ["http://10.0.0.1/", "http://localhost/", "http://[::1]/"] {
            assert_eq!(open.check_proxy(&good, Some(&url.parse().unwrap())).await, Checked::Blocked, "{url}");
        }
        assert_eq!(
            egress(&[]).check_proxy(&good, None).await,
            Checked::Unavailable,
            "the proxy's own address is private"
        );
    }
}
