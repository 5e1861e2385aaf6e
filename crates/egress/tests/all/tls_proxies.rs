//! Tests of proxies over TLS: certificate checks, and that no other server gets the password.

use std::{sync::Arc, time::Duration};

use casement_egress::{Egress, Limits, Proxy, ProxyCheck, ProxyFault, ProxyProtocol, Route, Rules};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use secrecy::SecretString;
use tokio::{io::copy_bidirectional, net::TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer},
    },
};

use super::exits::{TestProxy, garbage_server};
use super::support::{Names, Origin, Session, TEST_TIMEOUT};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    /// Starts a TLS server in front of `to`. Its certificate has these names and expires at the beginning of the year
    /// `until`.
    async fn front(&self, names: &[&str], until: i32, to: std::net::SocketAddr) -> Origin {
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate: CertificateDer<'static> = params.signed_by(&key, &self.0).unwrap().der().clone();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Origin::start(move |client| {
            let acceptor = acceptor.clone();
            async move {
                // A client that does not trust the certificate disconnects here.
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut behind = TcpStream::connect(to).await.unwrap();
                copy_bidirectional(&mut client, &mut behind).await.ok();
            }
        })
        .await
    }
}

fn proxy(host: &str, port: u16) -> Arc<Proxy> {
    let credentials = Some(("me".to_owned(), SecretString::from("p:@/%")));
    Arc::new(Proxy::new(ProxyProtocol::Https, (host, port), credentials, &[]).unwrap())
}

/// Opens a session through `proxy` that trusts only this authority. `proxy.example` is this machine.
fn session(proxy: &Arc<Proxy>, trusted: &Authority, timeout: Duration) -> Session {
    let limits = Limits { proxy_timeout: timeout, ..Limits::default() };
    let session =
        Session::shaped(&["127.0.0.0/8"], limits, |egress| egress.with_trusted_certificates(vec![trusted.der()]));
    session.names.answer("proxy.example", &[&["127.0.0.1"]]);
    session.handle.set_route(Route::Through(Arc::clone(proxy)));
    session
}

fn egress(trusted: &Authority) -> Egress {
    let rules = Rules::new(vec![Rules::parse("127.0.0.0/8").unwrap()]);
    Egress::new(rules, Arc::new(Names::default()), Limits::default()).with_trusted_certificates(vec![trusted.der()])
}

#[tokio::test]
async fn requests_and_tunnels_use_a_proxy_with_a_valid_certificate() {
    let (origin, authority) = (Origin::echo_heads().await, Authority::new());
    let exit = TestProxy::http(origin.address).await;
    let front = authority.front(&["proxy.example", "127.0.0.1"], 4000, exit.server.address).await;
    for host in ["proxy.example", "127.0.0.1"] {
        let proxy = proxy(host, front.address.port());
        let session = session(&proxy, &authority, TEST_TIMEOUT);
        assert_eq!(session.get("http://any.example/path?q").await.status, 200, "{host}");
        let mut client = session.connect().await;
        let answer = client.ask("CONNECT secret.example:443 HTTP/1.1\r\nHost: secret.example:443\r\n\r\n").await;
        assert_eq!((answer.status, client.get("http://x/").await.status), (200, 200), "{host}");
    }
    let requests = ["GET http://any.example/path?q HTTP/1.1", "CONNECT secret.example:443 HTTP/1.1"];
    assert_eq!(exit.requests(), [requests, requests].concat());
    let good = proxy("127.0.0.1", front.address.port());
    assert_eq!(egress(&authority).check_proxy(&good, None).await, ProxyCheck::Available(None));
}

#[tokio::test]
async fn a_proxy_with_certificates_of_its_own_trusts_no_others() {
    let (origin, own, machine) = (Origin::echo_heads().await, Authority::new(), Authority::new());
    let exit = TestProxy::http(origin.address).await;
    let trusting = |port, certificates| {
        let credentials = Some(("me".to_owned(), SecretString::from("p:@/%")));
        let proxy = Proxy::new(ProxyProtocol::Https, ("127.0.0.1", port), credentials, &[]).unwrap();
        Arc::new(proxy.with_trusted_certificates(certificates))
    };
    let own_front = own.front(&["127.0.0.1"], 4000, exit.server.address).await;
    let machine_front = machine.front(&["127.0.0.1"], 4000, exit.server.address).await;
    let (of_own, of_machine) = (own_front.address.port(), machine_front.address.port());
    let both = vec![Authority::new().der(), own.der()];
    for (port, certificates, expected) in [
        (of_own, vec![own.der()], ProxyCheck::Available(None)),
        (of_own, both, ProxyCheck::Available(None)),
        (of_machine, vec![own.der()], ProxyCheck::Unavailable(Some(ProxyFault::Tls))),
        (of_machine, vec![b"no certificate".to_vec()], ProxyCheck::Unavailable(Some(ProxyFault::Tls))),
        (of_machine, Vec::new(), ProxyCheck::Unavailable(Some(ProxyFault::Tls))),
    ] {
        assert_eq!(egress(&machine).check_proxy(&trusting(port, certificates), None).await, expected, "{port}");
    }
}

#[tokio::test]
async fn a_proxy_with_an_invalid_certificate_gets_no_password_and_no_traffic() {
    let (origin, authority, other) = (Origin::echo_heads().await, Authority::new(), Authority::new());
    let exit = TestProxy::http(origin.address).await;
    let (garbage, silent) = (garbage_server().await, Origin::silent().await);
    let to = exit.server.address;
    let fronts = [
        ("signed by somebody else", other.front(&["127.0.0.1"], 4000, to).await),
        ("of another name", authority.front(&["proxy.example", "127.0.0.2"], 4000, to).await),
        ("expired", authority.front(&["127.0.0.1"], 2020, to).await),
    ];
    let mut ports: Vec<_> = fronts.iter().map(|(why, front)| (*why, front.address.port())).collect();
    ports.extend([
        ("no TLS", exit.server.address.port()),
        ("garbage", garbage.address.port()),
        ("silence", silent.address.port()),
    ]);
    for (why, port) in ports {
        let proxy = proxy("127.0.0.1", port);
        let session = session(&proxy, &authority, Duration::from_secs(2));
        let mut client = session.connect().await;
        let tunnel = client.ask("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").await;
        let whole = session.get("http://a.example/").await;
        for answer in [tunnel, whole] {
            let reported = String::from_utf8(answer.body).unwrap();
            let kind = match why {
                "silence" => "it did not answer in time",
                _ => "no trusted TLS connection to it could be made",
            };
            assert_eq!(
                (answer.status, reported),
                (502, format!("The session's proxy could not be used: {kind}.\n")),
                "{why}"
            );
        }
        if why != "silence" {
            assert_eq!(
                egress(&authority).check_proxy(&proxy, None).await,
                ProxyCheck::Unavailable(Some(ProxyFault::Tls)),
                "{why}"
            );
        }
    }
    let in_clear: Vec<_> = exit.requests().into_iter().filter(|line| line.contains("HTTP/1.1")).collect();
    assert_eq!(in_clear, [""; 0], "no request, and so no password, was sent");
    assert_eq!(origin.connections(), 0);
}
