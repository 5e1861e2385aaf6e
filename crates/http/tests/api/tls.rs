//! HTTPS of the server itself, with HTTP/2 and HTTP/1.1.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use casement_domain::{
    page::Listed,
    pool::{ImmediateLease, TicketOutcome, WaiterEvent},
    store_error::Replaced,
    testing::{leased_session, pool, session, session_id},
};
use casement_http::{Permission, ServerCertificate};
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, client::conn::http2::SendRequest, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pretty_assertions::assert_eq;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    acquire::{self, until},
    sockets::Echo,
    support::{Key, Ports, TestApi, request},
};

/// A directory with the certificate of `localhost`.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.renew();
        files
    }

    /// Replaces the certificate by a new one with a new key.
    fn renew(&self) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(self.certificate(), certificate.pem()).unwrap();
        fs::write(self.key(), key.serialize_pem()).unwrap();
    }

    fn certificate(&self) -> std::path::PathBuf {
        self.0.path().join("certificate.pem")
    }

    fn key(&self) -> std::path::PathBuf {
        self.0.path().join("key.pem")
    }

    fn load(&self) -> ServerCertificate {
        ServerCertificate::load(&self.certificate(), &self.key()).unwrap()
    }

    fn serve(&self, ports: Ports) -> TestApi {
        let public_url = Some("https://localhost".to_owned());
        TestApi::start(Ports { certificate: Some(self.load()), public_url, ..ports })
    }

    /// Connects with this protocol, trusting only the present certificate.
    async fn connect(&self, api: &TestApi, protocol: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut trusted = RootCertStore::empty();
        trusted.add(CertificateDer::from_pem_file(self.certificate()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, api.connect().await).await
    }

    async fn http2(&self, api: &TestApi) -> SendRequest<Full<Bytes>> {
        let stream = self.connect(api, "h2").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

fn call(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header(header::AUTHORIZATION, format!("Bearer {}", Key::Organization.text()))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

async fn text(response: Response<hyper::body::Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn listing() -> Ports {
    let mut ports = Ports::default();
    ports.sessions.expect_list().returning(|_, _, _| Ok(Listed { items: vec![session(1)], next_offset: None }));
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocol_is_negotiated_and_both_versions_give_the_same_response() {
    let files = Files::new();
    let api = files.serve(listing());
    let response = files.http2(&api).await.send_request(call("GET", "/browsers", "")).await.unwrap();
    assert_eq!(response.headers().get("x-request-id").map(|id| id.len()), Some(26));
    assert_eq!(response.headers().get(header::CONNECTION), None);
    let (status, second) = text(response).await;
    assert_eq!(status, 200);

    let mut stream = files.connect(&api, "http/1.1").await.unwrap();
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let raw = String::from_utf8(request("GET", "/browsers", &[&key], "")).unwrap();
    stream.write_all(raw.replace("casement.test", "localhost").as_bytes()).await.unwrap();
    let mut first = String::new();
    stream.read_to_string(&mut first).await.unwrap();
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    assert!(first.ends_with(&second), "{first} {second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_connection_serves_many_requests_and_keeps_the_rules_of_http1() {
    let files = Files::new();
    let api = files.serve(listing());
    let sender = files.http2(&api).await;
    let calls = (0..50).map(|_| sender.clone().send_request(call("GET", "/browsers", "")));
    for response in futures_util::future::join_all(calls).await {
        assert_eq!(response.unwrap().status(), 200);
    }
    let mut sender = sender;
    let (status, body) = text(sender.send_request(call("POST", "/browser_pools", "{")).await.unwrap()).await;
    assert_eq!((status, body.contains("\"bad_request\"")), (400, true), "{body}");
    let mut foreign = call("GET", "/browsers", "");
    *foreign.uri_mut() = "https://elsewhere.test/browsers".parse().unwrap();
    let (status, body) = text(sender.send_request(foreign).await.unwrap()).await;
    assert_eq!((status, body.contains("does not go by that Host")), (400, true), "{body}");
    let mut two = call("GET", "/browsers", "");
    two.headers_mut().insert(header::HOST, "elsewhere.test".parse().unwrap());
    assert_eq!(sender.send_request(two).await.unwrap().status(), 400);
    let mut long = call("GET", "/browsers", "");
    long.headers_mut().insert("x-long", "x".repeat(100 << 10).parse().unwrap());
    // The head is refused before it reaches a handler, and the connection goes on.
    assert!(sender.send_request(long).await.is_ok_and(|response| response.status().is_client_error()));
    assert_eq!(sender.send_request(call("GET", "/healthz", "")).await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_cancels_its_http2_request_leaves_the_queue_at_once() {
    let files = Files::new();
    let turn = Arc::new(Semaphore::new(0));
    let (queued, left) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut ports = acquire::waiting(&turn, WaiterEvent::Look);
    let queued_flag = queued.clone();
    ports.wait_queue.expect_outcome().returning(move |_| {
        queued_flag.store(true, Ordering::SeqCst);
        Ok(TicketOutcome::Waiting)
    });
    let leaving = left.clone();
    ports.wait_queue.expect_leave().returning(move |_| {
        leaving.fetch_add(1, Ordering::SeqCst);
        Ok(TicketOutcome::Gone)
    });
    let api = files.serve(ports);
    let mut sender = files.http2(&api).await;
    let response = tokio::spawn(sender.send_request(call("POST", acquire::PATH, "{}")));
    until("in the queue", || queued.load(Ordering::SeqCst)).await;
    assert_eq!(left.load(Ordering::SeqCst), 0);
    response.abort();
    until("left", || left.load(Ordering::SeqCst) == 1).await;
    assert_eq!(sender.send_request(call("GET", "/healthz", "")).await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_stays_if_its_http2_caller_has_the_response() {
    let files = Files::new();
    let back = Arc::new(AtomicUsize::new(0));
    let mut ports = Ports::default();
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
    ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
    ports.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Leased(Box::new(leased_session(1)))));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports.wake.expect_wake().return_const(());
    ports.sessions.expect_find().returning(|_| Ok(Some(leased_session(1))));
    let ended = back.clone();
    ports.sessions.expect_end().returning(move |_, _| {
        ended.fetch_add(1, Ordering::SeqCst);
        Ok(Replaced::Yes)
    });
    let api = files.serve(ports);
    let mut sender = files.http2(&api).await;
    for _ in 0..20 {
        let (status, body) = text(sender.send_request(call("POST", acquire::PATH, "{}")).await.unwrap()).await;
        assert_eq!(status, 200, "{body}");
    }
    assert_eq!(sender.send_request(call("GET", "/healthz", "")).await.unwrap().status(), 200);
    assert_eq!(back.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_over_tls_uses_http1() {
    let files = Files::new();
    let mut ports = Ports { session_connector: Some(Echo::start().await), ..Ports::default() };
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let api = files.serve(ports);
    let stream = files.connect(&api, "http/1.1").await.unwrap();
    let token = api.token(session_id(1), Permission::Drive);
    let url = format!("wss://localhost/vm/{}/cdp?jwt={token}", session_id(1));
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let large = "x".repeat(1 << 20);
    socket.send(Message::text(large.clone())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap().into_text().unwrap().as_str(), large);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_of_a_request_without_tls_names_https() {
    let files = Files::new();
    let api = files.serve(Ports::default());
    let reply = api.request("GET", "/healthz", &[], "").await;
    assert_eq!((reply.status, &*reply.code()), (400, "bad_request"));
    assert!(reply.to_string().contains("use https://"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_certificate_is_for_new_connections_and_an_invalid_one_is_not_used() {
    let files = Files::new();
    let certificate = files.load();
    let public_url = Some("https://localhost".to_owned());
    let api = TestApi::start(Ports { certificate: Some(certificate.clone()), public_url, ..listing() });
    let mut before = files.http2(&api).await;
    files.renew();
    assert!(files.connect(&api, "h2").await.is_err(), "the new certificate is not in use yet");
    assert!(certificate.reload().unwrap());
    let mut after = files.http2(&api).await;
    for sender in [&mut before, &mut after] {
        assert_eq!(sender.send_request(call("GET", "/browsers", "")).await.unwrap().status(), 200);
    }
    assert!(!certificate.reload().unwrap(), "nothing has changed");

    let (good, key) = (fs::read(files.certificate()).unwrap(), fs::read_to_string(files.key()).unwrap());
    let other = Files::new();
    let foreign = fs::read(other.certificate()).unwrap();
    for (content, message) in [
        (Some(&b"junk"[..]), "has no certificate in PEM form"),
        (Some(&foreign), "cannot be used together"),
        (None, "cannot read"),
    ] {
        match content {
            Some(content) => fs::write(files.certificate(), content).unwrap(),
            None => fs::remove_file(files.certificate()).unwrap(),
        }
        let error = certificate.reload().unwrap_err().to_string();
        assert!(error.contains(message) && !error.contains(key.lines().nth(1).unwrap()), "{error}");
    }
    fs::write(files.certificate(), good).unwrap();
    drop(files.http2(&api).await);
}
