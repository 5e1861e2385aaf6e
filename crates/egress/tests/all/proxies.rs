//! Tests of sessions with a proxy: the requests that go through it, those that do not, and the reports of failures.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use casement_egress::{Egress, Limits, Proxy, ProxyCheck, ProxyFault, ProxyProtocol, Route, Rules};
use parking_lot::Mutex;

use super::exits::{TestProxy, both, garbage_server, proxy, resetting_server, silent_close_server};
use super::support::{NO_RESPONSE, Names, Origin, Session, closed_port, has_more, header, until};

#[tokio::test]
async fn requests_and_tunnels_use_the_proxy_which_resolves_the_names() {
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
        assert_eq!(session.names.requests(), 0, "no name of the session's is looked up here");
        let requests = exit.requests().join("\n");
        assert!(requests.contains("any.example") && requests.contains("secret.example"), "{requests}");
        if protocol == ProxyProtocol::Http {
            assert_eq!(
                exit.requests(),
                ["GET http://any.example/path?q HTTP/1.1", "CONNECT secret.example:443 HTTP/1.1"]
            );
        } else {
            assert_eq!(exit.tunnels.load(SeqCst), 2);
        }
    }
}

#[tokio::test]
async fn proxy_failures_are_reported_and_nothing_goes_directly() {
    let origin = Origin::echo_heads().await;
    let (garbage, mute, reset) = (garbage_server().await, silent_close_server().await, resetting_server());
    for (protocol, exit) in both(origin.address).await {
        let through = |address, password: &str| Route::Through(proxy(protocol, address, password, &[]));
        for (route, fault, why) in [
            (Route::Nowhere, ProxyFault::Unknown, "the server does not know it any more"),
            (through(closed_port(), "p:@/%"), ProxyFault::Unreachable, "no connection to it could be made"),
            (through(garbage.address, "p:@/%"), ProxyFault::Protocol, "its answer is not in the proxy's protocol"),
            (through(mute.address, "p:@/%"), ProxyFault::Closed, "it closed the connection without an answer"),
            (through(reset, "p:@/%"), ProxyFault::Reset, "it reset the connection"),
            (through(exit.server.address, "wrong"), ProxyFault::Authentication, "it does not accept the credentials"),
        ] {
            let response_parts = Arc::<Mutex<Vec<ProxyFault>>>::default();
            let received = Arc::clone(&response_parts);
            let callback = Arc::new(move |_: &str, fault| received.lock().push(fault));
            let session = Session::shaped(&["127.0.0.0/8"], Limits::default(), |egress| {
                egress.with_proxy_down_callback(callback)
            });
            session.handle.set_route(route.clone());
            let mut client = session.connect().await;
            let tunnel = client.ask("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").await;
            let reported = format!("The session's proxy could not be used: {why}.\n");
            assert_eq!((tunnel.status, &*String::from_utf8_lossy(&tunnel.body)), (502, &*reported), "{protocol:?}");
            let details = format!("details=\"{}\"", fault.as_str());
            assert!(header(&tunnel.head, "proxy-status").unwrap().ends_with(&details), "{protocol:?} {}", tunnel.head);
            let whole = session.get(&origin.url("/")).await;
            assert_eq!((whole.status, &*String::from_utf8_lossy(&whole.body)), (502, &*reported), "{protocol:?}");
            assert_eq!(*response_parts.lock(), [fault, fault], "{protocol:?}");
            assert!(
                !whole.head.to_lowercase().contains("proxy-authenticate"),
                "the browser asks nobody for a password"
            );
        }
        let session = Session::open(&["127.0.0.0/8"]);
        session.handle.set_route(Route::Through(proxy(protocol, exit.server.address, "p:@/%", &[])));
        let mut client = session.connect().await;
        let answer = client.ask("CONNECT nowhere.example:443 HTTP/1.1\r\nHost: nowhere.example:443\r\n\r\n").await;
        let reported = String::from_utf8(answer.body).unwrap();
        assert_eq!(reported, "This destination could not be reached, or is not allowed.\n");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn the_callback_gets_each_proxy_failure_and_nothing_else() {
    let response_parts = Arc::<Mutex<Vec<String>>>::default();
    let received = Arc::clone(&response_parts);
    let callback = Arc::new(move |session: &str, _| received.lock().push(session.to_owned()));
    let session =
        Session::shaped(&["127.0.0.0/8"], Limits::default(), |egress| egress.with_proxy_down_callback(callback));
    let nowhere = format!("http://{}/", closed_port());
    assert_eq!(session.get(&nowhere).await.status, NO_RESPONSE);
    assert_eq!(*response_parts.lock(), Vec::<String>::new(), "it has no proxy");
    session.handle.set_route(Route::Through(proxy(ProxyProtocol::Http, closed_port(), "p:@/%", &[])));
    assert_eq!(session.get("http://a.example/").await.status, 502);
    let tunnel = session.connect().await.ask("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").await;
    assert_eq!(tunnel.status, 502);
    assert_eq!(*response_parts.lock(), ["s1", "s1"]);
}

#[tokio::test]
async fn a_silent_proxy_times_out() {
    let silent = Origin::silent().await;
    for protocol in [ProxyProtocol::Http, ProxyProtocol::Https, ProxyProtocol::Socks5] {
        let limits = Limits { proxy_timeout: Duration::from_millis(100), ..Limits::default() };
        let session = Session::with_limits(&["127.0.0.0/8"], limits);
        session.handle.set_route(Route::Through(proxy(protocol, silent.address, "p:@/%", &[])));
        let mut client = session.connect().await;
        let answer = client.ask("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").await;
        assert_eq!(
            (answer.status, &*String::from_utf8_lossy(&answer.body)),
            (502, "The session's proxy could not be used: it did not answer in time.\n"),
            "{protocol:?}"
        );
    }
}

#[tokio::test]
async fn bypassed_hosts_go_directly_and_obey_the_rules() {
    let origin = Origin::echo_heads().await;
    let exit = TestProxy::http(origin.address).await;
    let session = Session::open(&["127.0.0.1"]);
    let bypass = ["127.0.0.0/8", "10.0.0.0/8", "*.inner.example"];
    session.handle.set_route(Route::Through(proxy(ProxyProtocol::Http, exit.server.address, "p:@/%", &bypass)));
    session.names.answer("a.inner.example", &[&["127.0.0.1"]]);
    session.names.answer("b.inner.example", &[&["10.0.0.1"]]);
    assert_eq!(session.get(&origin.url("/")).await.status, 200);
    let port = origin.address.port();
    assert_eq!(session.get(&format!("http://a.inner.example:{port}/")).await.status, 200);
    assert_eq!(exit.requests(), [""; 0]);
    for (refused, status) in [("http://10.0.0.1/", 403), ("http://b.inner.example/", NO_RESPONSE)] {
        assert_eq!(session.get(refused).await.status, status, "{refused}");
    }
    // Private destinations are not requested from the proxy, which may be in a private network itself.
    for refused in
        ["http://192.168.0.1/", "http://169.254.169.254/", "http://localhost/", "http://metadata.google.internal/"]
    {
        assert_eq!(session.get(refused).await.status, 403, "{refused}");
    }
    assert_eq!(exit.requests(), [""; 0]);
}

#[tokio::test]
async fn a_proxy_on_a_private_address_is_refused() {
    let origin = Origin::echo_heads().await;
    let exit = TestProxy::http(origin.address).await;
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
async fn a_new_route_applies_to_the_next_request_on_a_connection() {
    let origin = Origin::echo_heads().await;
    let exit = TestProxy::http(origin.address).await;
    let session = Session::open(&["127.0.0.0/8"]);
    let mut client = session.connect().await;
    assert_eq!(client.get(&origin.url("/1")).await.status, 200);
    assert_eq!(exit.requests().len(), 0);
    session.handle.set_route(Route::Through(proxy(ProxyProtocol::Http, exit.server.address, "p:@/%", &[])));
    assert_eq!(client.get("http://8.8.8.8/2").await.status, 200);
    assert_eq!(client.get("http://8.8.8.8/3").await.status, 200, "on the connection that is kept");
    assert_eq!(exit.requests(), ["GET http://8.8.8.8/2 HTTP/1.1"]);
    session.handle.set_route(Route::Direct);
    assert_eq!(client.get(&origin.url("/4")).await.status, 200);
    assert_eq!(exit.requests().len(), 1);
}

#[tokio::test]
async fn a_new_route_closes_open_tunnels_and_reroutes_pending_ones() {
    let origin = Origin::echo_heads().await;
    let (first, second) = (TestProxy::http(origin.address).await, TestProxy::http(origin.address).await);
    let through = |exit: &TestProxy| Route::Through(proxy(ProxyProtocol::Http, exit.server.address, "p:@/%", &[]));
    let session = Session::open(&["127.0.0.0/8"]);
    session.handle.set_route(through(&first));
    let connect = "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n";
    let mut standing = session.connect().await;
    assert_eq!(standing.ask(connect).await.status, 200);
    assert_eq!(standing.get("http://x/").await.status, 200, "through the first");
    session.handle.set_route(through(&second));
    assert!(!has_more(&mut standing.stream).await, "it is cut");
    assert_eq!((first.tunnels.load(SeqCst), second.tunnels.load(SeqCst)), (1, 0));

    let silent = Origin::silent().await;
    session.handle.set_route(Route::Through(proxy(ProxyProtocol::Http, silent.address, "p:@/%", &[])));
    let mut under_way = session.connect().await;
    under_way.send(connect).await;
    until("the silent proxy is asked", || silent.connections() == 1).await;
    session.handle.set_route(through(&second));
    assert_eq!(under_way.answer().await.status, 200, "it was begun anew, by the route that is in force");
    assert_eq!((first.tunnels.load(SeqCst), second.tunnels.load(SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_proxy_check_does_not_resolve_names_here() {
    let address = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let names = Arc::new(Names::default());
    names.answer("private.inner", &[&["10.0.0.1"]]);
    let rules = Rules::new(vec![Rules::parse("127.0.0.0/8").unwrap()]);
    let egress = Egress::new(rules, Arc::clone(&names) as _, Limits::default());
    for (protocol, exit) in both(address.address).await {
        let proxy = proxy(protocol, exit.server.address, "p:@/%", &[]);
        for name in ["private.inner", "unknown.inner"] {
            let url = format!("http://{name}/").parse().unwrap();
            assert_eq!(
                egress.check_proxy(&proxy, Some(&url)).await,
                ProxyCheck::Available(None),
                "{protocol:?} {name}"
            );
        }
    }
    assert_eq!(names.requests(), 0);
}

#[tokio::test]
async fn a_proxy_check_distinguishes_working_from_failing_proxies() {
    let address = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n198.51.100.7\n").await;
    let garbage = garbage_server().await;
    let egress = |allow: &[&str]| {
        let rules = Rules::new(allow.iter().map(|text| Rules::parse(text).unwrap()).collect());
        Egress::new(rules, Arc::new(Names::default()), Limits::default())
    };
    let open = egress(&["127.0.0.0/8"]);
    for (protocol, exit) in both(address.address).await {
        let good = proxy(protocol, exit.server.address, "p:@/%", &[]);
        assert_eq!(open.check_proxy(&good, None).await, ProxyCheck::Available(None), "{protocol:?}");
        let url = "http://seen.example/".parse().unwrap();
        let found = open.check_proxy(&good, Some(&url)).await;
        assert_eq!(found, ProxyCheck::Available("198.51.100.7".parse().ok()), "{protocol:?}");
        for (bad, fault) in [
            (proxy(protocol, exit.server.address, "wrong", &[]), ProxyFault::Authentication),
            (proxy(protocol, closed_port(), "p:@/%", &[]), ProxyFault::Unreachable),
            (proxy(protocol, garbage.address, "p:@/%", &[]), ProxyFault::Protocol),
        ] {
            let unavailable = ProxyCheck::Unavailable(Some(fault));
            assert_eq!(open.check_proxy(&bad, None).await, unavailable, "{protocol:?}");
            assert_eq!(open.check_proxy(&bad, Some(&url)).await, unavailable, "{protocol:?}");
        }
        let nowhere = "http://nowhere.example/".parse().unwrap();
        assert_eq!(open.check_proxy(&good, Some(&nowhere)).await, ProxyCheck::Unavailable(None), "{protocol:?}");
        for url in ["http://10.0.0.1/", "http://localhost/", "http://[::1]/"] {
            assert_eq!(open.check_proxy(&good, Some(&url.parse().unwrap())).await, ProxyCheck::Blocked, "{url}");
        }
        assert_eq!(
            egress(&[]).check_proxy(&good, None).await,
            ProxyCheck::Unavailable(Some(ProxyFault::Unreachable)),
            "the proxy's own address is private"
        );
    }
}

#[tokio::test]
async fn a_plain_request_that_is_being_dialled_takes_the_proxy_of_now() {
    let origin = Origin::echo_heads().await;
    let (silent, exit) = (Origin::silent().await, TestProxy::http(origin.address).await);
    let session = Session::open(&["127.0.0.0/8"]);
    session.handle.set_route(Route::Through(proxy(ProxyProtocol::Socks5, silent.address, "p:@/%", &[])));
    let mut client = session.connect().await;
    client.send("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    until("the silent proxy has the connection", || silent.connections() == 1).await;
    session.handle.set_route(Route::Through(proxy(ProxyProtocol::Http, exit.server.address, "p:@/%", &[])));
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(exit.requests(), ["GET http://a.example/ HTTP/1.1"]);
}
