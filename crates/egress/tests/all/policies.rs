//! Tests of sessions with decisions about destinations: every kind of request is decided by its host as written, and a
//! change reaches open connections.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use casement_egress::{
    Decision, Denial, Destinations, Egress, Limits, ProxyFault, ProxyProtocol, Route, Rules, SessionPolicy,
};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use url::Host;

use super::exits::{TestProxy, proxy};
use super::support::{Answer, NO_RESPONSE, Origin, Session, closed_port, has_more, header, read_head};

/// Decisions by host; all other hosts are denied.
struct Hosts(HashMap<String, Decision>);

impl Destinations for Hosts {
    fn decide(&self, host: &Host<&str>, _: u16) -> Decision {
        self.0.get(&host.to_string()).cloned().unwrap_or(Decision::Denied)
    }
}

fn only(hosts: &[&str]) -> Arc<dyn Destinations> {
    deciding(hosts.iter().map(|host| (*host, Decision::Default)))
}

fn deciding<'a>(decisions: impl IntoIterator<Item = (&'a str, Decision)>) -> Arc<dyn Destinations> {
    Arc::new(Hosts(decisions.into_iter().map(|(host, decision)| (host.to_owned(), decision)).collect()))
}

fn policy(hosts: &[&str]) -> SessionPolicy {
    SessionPolicy { destinations: Some(only(hosts)), ..SessionPolicy::default() }
}

/// Opens the egress of a session that may reach loopback, where `allowed.example` and `denied.example` are.
fn open() -> Session {
    let session = Session::open(&["127.0.0.0/8"]);
    for name in ["allowed.example", "denied.example"] {
        session.names.answer(name, &[&["127.0.0.1"]]);
    }
    session
}

fn connect(host: &str, port: u16) -> String {
    format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: allowed.example:{port}\r\n\r\n")
}

fn assert_denied(answer: &Answer) {
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(header(&answer.head, "x-kernel-proxy-error"), Some("network_policy_denied"), "{answer:?}");
    let text = String::from_utf8_lossy(&answer.body);
    assert!(text.starts_with("The network configuration of this session does not allow this destination"), "{text}");
}

#[tokio::test]
async fn plain_requests_and_tunnels_reach_only_destinations_of_the_policy() {
    let origin = Origin::echo_heads().await;
    let port = origin.address.port();
    let session = open();
    session.handle.set_policy(policy(&["allowed.example"]));
    assert_eq!(session.get(&format!("http://allowed.example:{port}/")).await.status, 200);
    assert_eq!(session.connect().await.ask(connect("allowed.example", port)).await.status, 200);
    let connections = origin.connections();
    for host in ["denied.example", "127.0.0.1", "0x7f.1", "[::ffff:127.0.0.1]", "a.allowed.example", "8.8.8.8"] {
        assert_denied(&session.get(&format!("http://{host}:{port}/")).await);
        assert_denied(&session.connect().await.ask(connect(host, port)).await);
    }
    assert_eq!(origin.connections(), connections, "nothing else was dialled");
    assert_eq!(session.names.requests(), 2, "no name of a denied request is looked up");
    assert_eq!(session.handle.stats().refused, 12);
}

#[tokio::test]
async fn every_request_of_an_open_connection_is_decided_by_its_own_target() {
    let origin = Origin::echo_heads().await;
    let port = origin.address.port();
    let session = open();
    session.handle.set_policy(policy(&["allowed.example"]));
    let mut client = session.connect().await;
    let good = format!("http://allowed.example:{port}/");
    assert_eq!(client.get(&good).await.status, 200);
    let bad = format!("GET http://denied.example:{port}/ HTTP/1.1\r\nHost: allowed.example:{port}\r\n\r\n");
    assert_denied(&client.ask(bad).await);
    assert_eq!(client.get(&good).await.status, 200, "the connection is usable after a refusal");
    // A WebSocket handshake without a tunnel, as programs send it.
    let upgrade = format!(
        "GET http://denied.example:{port}/ HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    assert_denied(&client.ask(upgrade).await);
    assert_denied(&client.ask(connect("denied.example", port)).await);
}

#[tokio::test]
async fn an_allowed_name_does_not_open_addresses_that_the_rules_refuse() {
    let origin = Origin::echo_heads().await;
    let port = origin.address.port();
    let session = Session::open(&[]);
    session.names.answer("allowed.example", &[&["127.0.0.1"], &["169.254.169.254"], &["10.0.0.1"]]);
    session.handle.set_policy(policy(&["allowed.example"]));
    for _ in 0..3 {
        let answer = session.get(&format!("http://allowed.example:{port}/")).await;
        assert_eq!((answer.status, header(&answer.head, "x-kernel-proxy-error")), (NO_RESPONSE, None));
    }
    assert_eq!(session.names.requests(), 3);
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn an_origin_cannot_pretend_that_the_policy_refused() {
    let origin = Origin::answering(
        b"HTTP/1.1 403 No\r\nX-Kernel-Proxy-Error: network_policy_denied\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let session = open();
    session.handle.set_policy(policy(&["127.0.0.1"]));
    let answer = session.get(&origin.url("/")).await;
    assert_eq!((answer.status, header(&answer.head, "x-kernel-proxy-error")), (403, None));
}

#[tokio::test]
async fn a_change_closes_tunnels_to_denied_destinations_and_leaves_others_open() {
    let origin = Origin::echo_heads().await;
    let port = origin.address.port();
    let session = open();
    session.handle.set_policy(policy(&["allowed.example", "denied.example"]));
    let (mut stays, mut ends) = (session.connect().await, session.connect().await);
    assert_eq!(stays.ask(connect("allowed.example", port)).await.status, 200);
    assert_eq!(ends.ask(connect("denied.example", port)).await.status, 200);
    assert_eq!(ends.get("http://x/").await.status, 200, "through the tunnel");

    session.handle.set_destinations(Some(only(&["allowed.example"])));
    assert!(!has_more(&mut ends.stream).await, "it is closed");
    assert_eq!(stays.get("http://x/").await.status, 200, "through the tunnel that is still allowed");
    assert_denied(&session.connect().await.ask(connect("denied.example", port)).await);

    session.handle.set_destinations(None);
    assert_eq!(session.connect().await.ask(connect("denied.example", port)).await.status, 200);
    assert_eq!(stays.get("http://x/").await.status, 200);
}

#[tokio::test]
async fn a_change_closes_a_response_that_is_under_way() {
    let origin = Origin::start(|mut stream| async move {
        read_head(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegin";
        stream.get_mut().write_all(head).await.unwrap();
        has_more(&mut stream).await;
    })
    .await;
    let session = open();
    session.handle.set_policy(policy(&["denied.example"]));
    let mut client = session.connect().await;
    client.send(format!("GET http://denied.example:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", origin.address.port())).await;
    assert!(read_head(&mut client.stream).await.contains("200 OK"));
    session.handle.set_destinations(Some(only(&["allowed.example"])));
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut client.stream, &mut rest).await.ok();
    assert!(rest.len() <= "begin".len(), "{rest:?}");
}

#[tokio::test]
async fn a_tunnel_that_is_being_opened_is_not_opened_after_a_change_denies_it() {
    let silent = Origin::silent().await;
    let session = open();
    let route = Route::Through(proxy(ProxyProtocol::Http, silent.address, "p:@/%", &[]));
    session.handle.set_policy(SessionPolicy { route, ..policy(&["denied.example"]) });
    let mut client = session.connect().await;
    client.send(connect("denied.example", 443)).await;
    super::support::until("the silent proxy has the request", || silent.connections() == 1).await;
    session.handle.set_destinations(Some(only(&["allowed.example"])));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_host_uses_the_proxy_of_its_route_and_no_other_way() {
    let origin = Origin::echo_heads().await;
    let (first, second) = (TestProxy::http(origin.address).await, TestProxy::http(origin.address).await);
    let through = |address: SocketAddr| Route::Through(proxy(ProxyProtocol::Http, address, "p:@/%", &[]));
    let session = Session::open(&["127.0.0.0/8"]);
    let destinations = deciding([
        ("a.example", Decision::Default),
        ("b.example", Decision::By(through(second.server.address))),
        ("c.example", Decision::By(through(closed_port()))),
        ("d.example", Decision::By(Route::Nowhere)),
        ("127.0.0.1", Decision::Direct),
    ]);
    let policy =
        SessionPolicy { route: through(first.server.address), destinations: Some(destinations), exceptions: None };
    session.handle.set_policy(policy);
    let mut client = session.connect().await;
    assert_eq!(client.get("http://a.example/").await.status, 200);
    assert_eq!(client.get("http://b.example/").await.status, 200);
    assert_eq!(client.get(&origin.url("/")).await.status, 200);
    for (host, fault) in [("c.example", ProxyFault::Unreachable), ("d.example", ProxyFault::Unknown)] {
        let answer = client.get(&format!("http://{host}/")).await;
        let status = header(&answer.head, "proxy-status").unwrap();
        assert!(answer.status == 502 && status.contains(fault.as_str()), "{answer:?}");
    }
    assert_eq!(first.requests(), ["GET http://a.example/ HTTP/1.1"]);
    assert_eq!(second.requests(), ["GET http://b.example/ HTTP/1.1"]);
}

#[tokio::test]
async fn the_exceptions_of_a_session_replace_those_of_the_server_but_not_for_proxies() {
    let origin = Origin::echo_heads().await;
    let port = origin.address.port();
    let session = Session::open(&["127.0.0.0/8"]);
    session.names.answer("lent.example", &[&["127.0.0.1"]]);
    session.names.answer("other.example", &[&["127.0.0.1"]]);
    let exception = |text: &str| Rules::parse(text).unwrap().for_literal_addresses();
    let exceptions = Some(vec![exception("lent.example"), exception("127.0.0.1/32")]);
    session.handle.set_policy(SessionPolicy { exceptions, ..SessionPolicy::default() });
    let status = async |host: &str| session.get(&format!("http://{host}:{port}/")).await.status;
    assert_eq!((status("lent.example").await, status("127.0.0.1").await), (200, 200));
    assert_eq!(
        status("other.example").await,
        NO_RESPONSE,
        "an address of an exception is not for names that resolve to it"
    );
    assert_eq!(status("127.0.0.2").await, 403);

    let exit = TestProxy::http(origin.address).await;
    let route = Route::Through(proxy(ProxyProtocol::Http, exit.server.address, "p:@/%", &[]));
    session.handle.set_policy(SessionPolicy { route, exceptions: Some(Vec::new()), ..SessionPolicy::default() });
    assert_eq!(session.get("http://any.example/").await.status, 200);
    assert_eq!(status("127.0.0.1").await, 403);
}

#[tokio::test]
async fn denied_requests_are_reported_with_host_port_and_method() {
    let reported = Arc::<Mutex<Vec<(String, Denial)>>>::default();
    let received = Arc::clone(&reported);
    let callback = Arc::new(move |session: &str, denial| received.lock().push((session.to_owned(), denial)));
    let session = Session::shaped(&[], Limits::default(), |egress: Egress| egress.with_denied_callback(callback));
    session.handle.set_policy(policy(&["allowed.example"]));
    session.get("http://Denied.example/secret?token").await;
    session.connect().await.ask(connect("denied.example", 443)).await;
    let denial = |port, method: &str| {
        ("s1".to_owned(), Denial { host: "denied.example".to_owned(), port, method: method.to_owned() })
    };
    assert_eq!(*reported.lock(), [denial(80, "GET"), denial(443, "CONNECT")]);
    assert_eq!(session.handle.stats().requests, 2);
    assert_eq!(session.names.requests.load(SeqCst), 0);
}
