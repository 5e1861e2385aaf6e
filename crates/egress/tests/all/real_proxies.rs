//! Tests with tinyproxy and dante.

use std::sync::Arc;

use casement_egress::{Egress, Limits, Proxy, ProxyCheck, ProxyFault, ProxyProtocol, Route, Rules};
use secrecy::SecretString;

use super::exits::RealProxy;
use super::support::{Names, Origin, Session, header};

fn proxy(protocol: ProxyProtocol, at: &RealProxy, password: Option<&str>) -> Arc<Proxy> {
    let credentials = password.map(|word| ("me".to_owned(), SecretString::from(word)));
    Arc::new(Proxy::new(protocol, (&at.address.ip().to_string(), at.address.port()), credentials, &[]).unwrap())
}

/// Returns the status and body of the response to a CONNECT to `place`.
async fn tunnel(session: &Session, place: &str) -> (u16, String) {
    let mut client = session.connect().await;
    let answer = client.ask(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n")).await;
    (answer.status, String::from_utf8(answer.body).unwrap())
}

#[tokio::test]
async fn tinyproxy_and_dante_work_with_and_without_a_password() {
    let origin = Origin::echo_heads().await;
    let port = origin.address.port();
    let (http, socks) = (ProxyProtocol::Http, ProxyProtocol::Socks5);
    // Tinyproxy accepts passwords of letters and digits only.
    let tinies = (RealProxy::tinyproxy(None).await, RealProxy::tinyproxy(Some("hunter2")).await);
    let dantes = (RealProxy::dante(false).await, RealProxy::dante(true).await);
    let wrong = [proxy(http, &tinies.1, Some("wrong")), proxy(socks, &dantes.1, Some("wrong"))];
    let without = [proxy(http, &tinies.1, None), proxy(socks, &dantes.1, None)];
    let good = [
        proxy(http, &tinies.0, None),
        proxy(http, &tinies.1, Some("hunter2")),
        proxy(socks, &dantes.0, None),
        proxy(socks, &dantes.1, Some("p:@/%")),
    ];
    let rules = Rules::new(vec![Rules::parse("127.0.0.0/8").unwrap()]);
    let egress = Egress::new(rules, Arc::new(Names::default()), Limits::default());

    for (n, proxy) in good.into_iter().enumerate() {
        let session = Session::open(&["127.0.0.0/8"]);
        session.handle.set_route(Route::Through(Arc::clone(&proxy)));
        let answer = session.get(&format!("http://there.example:{port}/path?q")).await;
        let head = String::from_utf8(answer.body).unwrap();
        assert_eq!((answer.status, header(&head, "host")), (200, Some(&*format!("there.example:{port}"))), "{n}");
        assert_eq!(header(&head, "proxy-authorization"), None, "{n}: the credentials end at the proxy");

        let mut client = session.connect().await;
        let place = format!("there.example:{port}");
        assert_eq!(client.ask(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n")).await.status, 200, "{n}");
        assert_eq!(client.get("http://x/").await.status, 200, "{n}: through the tunnel");
        assert_eq!(session.names.requests(), 0, "{n}: the names are the proxy's to look up");
        let nowhere = tunnel(&session, "nowhere.invalid:443").await;
        assert_eq!(nowhere, (502, "This destination could not be reached, or is not allowed.\n".to_owned()), "{n}");
        assert_eq!(egress.check_proxy(&proxy, None).await, ProxyCheck::Available(None), "{n}");
    }
    for (n, proxy) in wrong.into_iter().chain(without).enumerate() {
        let session = Session::open(&["127.0.0.0/8"]);
        session.handle.set_route(Route::Through(Arc::clone(&proxy)));
        let reported = "The session's proxy could not be used: it does not accept the credentials.\n";
        let refused = (502, reported.to_owned());
        assert_eq!(tunnel(&session, &format!("there.example:{port}")).await, refused, "{n}");
        assert_eq!(
            egress.check_proxy(&proxy, None).await,
            ProxyCheck::Unavailable(Some(ProxyFault::Authentication)),
            "{n}"
        );
    }
}
