//! CDP connections that are carried to a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use casement_webdriver::{Channel, Credentials, GridError, GridStream, RemoteSession, WebDriverEngine};
use pretty_assertions::assert_eq;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::{browser, config, engine};

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nCookie: a=b\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSet-Cookie: secret\r\n\r\n";

/// A session whose server answers every connection with these bytes, and then returns what it receives.
struct Tunnel {
    path: std::path::PathBuf,
    engine: WebDriverEngine,
    session: RemoteSession,
    heads: tokio::sync::mpsc::UnboundedReceiver<String>,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl Tunnel {
    async fn open(response: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let mut config = config(&format!("http://{}/wd/hub", listener.local_addr().expect("bound")));
        config.credentials = Some(Credentials::new("me".to_owned(), "geheim"));
        let engine = engine(config);
        let (sender, heads) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo(stream, response, sender.clone()));
            }
        });
        let record = json!({
            "version": 1, "id": "abc", "browser": browser(1).to_string(), "browser_version": "156",
            "cdp": { "path": "/wd/hub/session/abc/se/cdp" }, "bidi": null, "capabilities": {},
        });
        let session = RemoteSession::parse_record(&record.to_string()).expect("a record");
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("cdp");
        let listener = UnixListener::bind(&path).expect("a socket");
        let served = (engine.clone(), session.clone());
        let serving = tokio::spawn(async move { served.0.serve_cdp(listener, served.1).await });
        Self { path, engine, session, heads, serving, _folder: folder }
    }

    async fn send(&self, request: &[u8]) -> UnixStream {
        let mut stream = UnixStream::connect(&self.path).await.expect("served");
        stream.write_all(request).await.expect("sent");
        stream
    }

    async fn refused(&self, request: &[u8]) -> String {
        let mut stream = self.send(request).await;
        let mut response = String::new();
        let reading = stream.read_to_string(&mut response);
        timeout(Duration::from_secs(12), reading).await.expect("an answer").ok();
        response.lines().next().unwrap_or_default().to_owned()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn echo(mut stream: TcpStream, response: &str, heads: tokio::sync::mpsc::UnboundedSender<String>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    heads.send(String::from_utf8(head).expect("UTF-8")).ok();
    stream.write_all(response.as_bytes()).await.ok();
    let (mut reader, mut writer) = stream.split();
    tokio::io::copy(&mut reader, &mut writer).await.ok();
}

async fn read_head(stream: &mut UnixStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(Duration::from_secs(5), stream.read_u8()).await.expect("in time").expect("a byte"));
    }
    String::from_utf8(head).expect("UTF-8")
}

#[tokio::test]
async fn a_websocket_is_carried_with_the_path_and_the_credentials_of_the_session() {
    let mut tunnel = Tunnel::open(SWITCHED).await;
    let mut stream = tunnel.send(format!("{UPGRADE}early").as_bytes()).await;
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    assert!(!head.contains("secret"), "{head}");
    stream.write_all(b" and late").await.expect("sent");
    let mut echoed = [0; 14];
    stream.read_exact(&mut echoed).await.expect("echoed");
    assert_eq!(&echoed, b"early and late");
    let sent = tunnel.heads.recv().await.expect("a request");
    assert!(sent.starts_with("GET /wd/hub/session/abc/se/cdp HTTP/1.1\r\nHost: 127.0.0.1:"), "{sent}");
    assert!(sent.contains("authorization: Basic bWU6Z2VoZWlt\r\n"), "{sent}");
    assert!(sent.contains("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), "{sent}");
    assert!(!sent.contains("localhost") && !sent.contains("a=b"), "{sent}");
}

#[tokio::test]
async fn nothing_but_the_websocket_can_be_requested() {
    let mut tunnel = Tunnel::open(SWITCHED).await;
    for (request, status) in [
        (UPGRADE.replace("GET / ", "GET /json/list "), "403 Forbidden"),
        (UPGRADE.replace("GET / ", "GET /session/other "), "403 Forbidden"),
        (UPGRADE.replace("GET / ", "DELETE / "), "403 Forbidden"),
        (UPGRADE.replace("Upgrade: websocket", "X: y"), "403 Forbidden"),
        ("nonsense\r\n\r\n".to_owned(), "400 Bad Request"),
        (format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(16_365)), "400 Bad Request"),
    ] {
        assert_eq!(tunnel.refused(request.as_bytes()).await, format!("HTTP/1.1 {status}"), "{request:.40}");
    }
    assert!(tunnel.heads.try_recv().is_err(), "the server heard of it");
}

#[tokio::test]
async fn a_server_that_gives_no_websocket_is_a_bad_gateway() {
    for response in ["HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", "HTTP/1.1 404 Not Found\r\n\r\n", "x\r\n\r\n"]
    {
        let tunnel = Tunnel::open(response).await;
        assert_eq!(tunnel.refused(UPGRADE.as_bytes()).await, "HTTP/1.1 502 Bad Gateway", "{response}");
    }
}

#[tokio::test]
async fn a_request_that_never_ends_is_given_up() {
    let tunnel = Tunnel::open(SWITCHED).await;
    assert_eq!(tunnel.refused(b"GET / HTTP/1.1\r\n").await, "HTTP/1.1 400 Bad Request");
}

#[tokio::test]
async fn all_connections_end_with_the_service() {
    let tunnel = Tunnel::open(SWITCHED).await;
    let mut stream = tunnel.send(UPGRADE.as_bytes()).await;
    read_head(&mut stream).await;
    tunnel.serving.abort();
    let read = timeout(Duration::from_secs(2), stream.read(&mut [0; 1])).await.expect("closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_session_has_a_bounded_number_of_connections() {
    let tunnel = Tunnel::open(SWITCHED).await;
    let open = Arc::new(AtomicUsize::new(0));
    let mut streams = Vec::new();
    for _ in 0..70 {
        let mut stream = UnixStream::connect(&tunnel.path).await.expect("served");
        let open = open.clone();
        streams.push(tokio::spawn(async move {
            // A connection too many is closed before it is asked.
            if stream.write_all(UPGRADE.as_bytes()).await.is_ok() && stream.read_u8().await.is_ok() {
                open.fetch_add(1, Ordering::Relaxed);
            }
            sleep(Duration::from_secs(5)).await;
        }));
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(open.load(Ordering::Relaxed), 64);
}

#[tokio::test]
async fn a_relay_gets_a_stream_and_what_its_request_must_hold() {
    let tunnel = Tunnel::open(SWITCHED).await;
    let (stream, endpoint) = tunnel.engine.connect(&tunnel.session, Channel::Http).await.expect("connected");
    assert!(matches!(stream, GridStream::Plain(_)));
    assert_eq!(endpoint.path, "/wd/hub");
    let authorization = &endpoint.headers["authorization"];
    assert!(authorization.is_sensitive());
    assert!(!format!("{endpoint:?}").contains("bWU6Z2VoZWlt"));
    let (_, endpoint) = tunnel.engine.connect(&tunnel.session, Channel::Cdp).await.expect("connected");
    assert_eq!(endpoint.path, "/wd/hub/session/abc/se/cdp");
    let error = tunnel.engine.connect(&tunnel.session, Channel::Bidi).await.expect_err("no BiDi");
    assert_eq!(error, GridError::Unsupported { what: "WebDriver BiDi" });
}
