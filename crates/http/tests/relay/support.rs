//! A server in this process with the relay's routes, and raw WebSocket peers on both sides.

use std::{
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, ResponseError as _, dev::ServerHandle, web};
use async_trait::async_trait;
use casement_http::{
    ApiError,
    live_view::{Access, LiveView, PageDialogs, WholeDisplay},
    relay::{
        BrowserConnection, BrowserConnector, BrowserStream, Channel, ClientHandshake, CloseReason, ConnectorError,
        EndSender, Limits, Relay, RelayObserver, SessionFiles, end_signal, prepare_connection,
    },
    webdriver::{BidiRelay, ClassicRequest, forward},
};
pub(super) use casement_test_support::until as eventually;
pub(super) use casement_test_support::websocket::{close_payload, frame, frame_header, header, read_frame, read_head};
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use url::Url;

/// The time after which a test counts as hanging.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Awaits `future` with a timeout.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(TEST_TIMEOUT, future).await.expect("this should have happened by now")
}

/// The observed ends of relays: the reason and the number of messages.
type EndedRelays = Arc<Mutex<Vec<(Option<CloseReason>, u64)>>>;

/// The state of the test server.
pub(super) struct Shared {
    pub(super) upstream: SocketAddr,
    pub(super) end: EndSender,
    pub(super) limits: Limits,
    /// The number of open relays.
    pub(super) open: Arc<AtomicUsize>,
    pub(super) ended: EndedRelays,
    /// The display that live views show in place of a tab.
    pub(super) display: Mutex<Option<WholeDisplay>>,
    pub(super) dialogs: Mutex<Option<PageDialogs>>,
    /// Whether the send buffer to chromedriver is minimal.
    pub(super) has_small_buffer: AtomicBool,
}

struct Guard(Arc<AtomicUsize>);

impl Guard {
    fn new(open: &Arc<AtomicUsize>) -> Box<Self> {
        open.fetch_add(1, Ordering::SeqCst);
        Box::new(Self(open.clone()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct EndObserver(EndedRelays);

impl RelayObserver for EndObserver {
    fn opened(&self) {}

    fn ended(&self, reason: Option<CloseReason>, messages: u64) {
        self.0.lock().push((reason, messages));
    }
}

struct UpstreamConnector(SocketAddr);

#[async_trait]
impl BrowserConnector for UpstreamConnector {
    async fn dial(&self, _: Channel) -> Result<BrowserConnection, ConnectorError> {
        std::net::TcpStream::connect(self.0)
            .map(BrowserConnection::local)
            .map_err(|error| ConnectorError::Unavailable(Box::new(error)))
    }

    async fn cdp_path(&self) -> Result<String, ConnectorError> {
        Ok("/devtools/browser/1".to_owned())
    }
}

/// A session that has the files below `/tmp`, and no others.
struct OnlyTemporary;

#[async_trait]
impl SessionFiles for OnlyTemporary {
    async fn first_missing(&self, paths: Vec<String>) -> Option<String> {
        tokio::task::yield_now().await;
        paths.into_iter().find(|path| !path.starts_with("/tmp/"))
    }
}

/// The running server, and the listener that simulates the browser.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) upstream: TcpListener,
    pub(super) shared: web::Data<Shared>,
    handle: ServerHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The call itself stops the server; the future only waits for the end.
        drop(self.handle.stop(false));
    }
}

impl Server {
    pub(super) async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = web::Data::new(Shared {
            upstream: upstream.local_addr().unwrap(),
            end: end_signal().0,
            limits,
            open: Arc::default(),
            ended: Arc::default(),
            display: Mutex::default(),
            dialogs: Mutex::default(),
            has_small_buffer: AtomicBool::default(),
        });
        let data = shared.clone();
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .route("/cdp", web::get().to(cdp))
                .route("/webdriver", web::get().to(bidi))
                .route("/wd/{tail:.*}", web::route().to(classic))
                .route("/live/{access}", web::get().to(live))
        })
        .workers(1)
        .h1_allow_half_closed(false)
        .on_connect(|connection, _| connection.downcast_ref().into_iter().for_each(prepare_connection))
        .disable_signals()
        .listen(listener)
        .unwrap()
        .run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Self { address, upstream, shared, handle }
    }

    pub(super) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Connects a client. Returns the client, the upstream connection of its relay, and the head of the server's
    /// handshake.
    pub(super) async fn pair(&self, path: &str) -> (TcpStream, TcpStream, String) {
        let (client, upstream) = tokio::join!(connect(self.address, path, ""), accept(&self.upstream));
        assert!(client.1.starts_with("HTTP/1.1 101"), "{}", client.1);
        (client.0, upstream.0, upstream.1)
    }
}

/// Returns the public BiDi URL of these tests.
pub(super) fn public_url() -> Url {
    "wss://casement.test/vm/S/webdriver?jwt=TOKEN".parse().unwrap()
}

fn failed(error: impl std::fmt::Display) -> HttpResponse {
    HttpResponse::BadGateway().body(error.to_string())
}

async fn cdp(request: HttpRequest, payload: web::Payload, shared: web::Data<Shared>) -> HttpResponse {
    let handshake = match ClientHandshake::read(&request) {
        Ok(handshake) => handshake,
        Err(bad) => return HttpResponse::BadRequest().body(bad.to_string()),
    };
    let relay = Relay {
        channel: Channel::Cdp,
        path: UpstreamConnector(shared.upstream).cdp_path().await.unwrap(),
        end: shared.end.signal(),
        limits: shared.limits,
        files: Some(Arc::new(OnlyTemporary)),
        observer: None,
        guard: Guard::new(&shared.open),
    };
    let upstream = UpstreamConnector(shared.upstream).dial(Channel::Cdp).await.unwrap();
    relay.open(&handshake, payload, upstream).await.unwrap_or_else(failed)
}

async fn bidi(request: HttpRequest, payload: web::Payload, shared: web::Data<Shared>) -> HttpResponse {
    let relay = BidiRelay {
        webdriver_url: public_url(),
        remote: None,
        end: shared.end.signal(),
        limits: shared.limits,
        files: Some(Arc::new(OnlyTemporary)),
        observer: Some(Box::new(EndObserver(shared.ended.clone()))),
        guard: Guard::new(&shared.open),
    };
    let upstream = UpstreamConnector(shared.upstream).dial(Channel::WebDriver).await.unwrap();
    if shared.has_small_buffer.load(Ordering::SeqCst) {
        let BrowserStream::Sandbox(stream) = &upstream.stream else { panic!("a remote stream") };
        SockRef::from(stream).set_send_buffer_size(4096).unwrap();
    }
    relay.open(&ClientHandshake::read(&request).unwrap(), payload, upstream).await.unwrap_or_else(failed)
}

async fn classic(request: HttpRequest, body: web::Bytes, shared: web::Data<Shared>) -> HttpResponse {
    let tail = request.uri().path().strip_prefix("/wd/").unwrap();
    match ClassicRequest::check(request.method(), tail, body) {
        Ok(command) => {
            let upstream = UpstreamConnector(shared.upstream).dial(Channel::WebDriver).await.unwrap();
            forward(command, upstream, &public_url())
                .await
                .map_or_else(|error| ApiError::from(error).error_response(), |answer| answer.response)
        }
        Err(error) => ApiError::from(error).error_response(),
    }
}

async fn live(
    request: HttpRequest,
    payload: web::Payload,
    access: web::Path<String>,
    shared: web::Data<Shared>,
) -> HttpResponse {
    let view = LiveView {
        connector: Arc::new(UpstreamConnector(shared.upstream)),
        access: if access.as_str() == "drive" { Access::Interact } else { Access::View },
        may_act: Box::new(|| true),
        display: shared.display.lock().clone(),
        dialogs: shared.dialogs.lock().clone(),
        view_url: None,
        ping_interval: shared.limits.ping_interval,
        end: shared.end.signal(),
        observer: None,
        guard: Guard::new(&shared.open),
    };
    view.open(&request, payload).await.unwrap_or_else(failed)
}

/// Sends a client's handshake with `extra` header lines. Returns the connection and the head of the response.
pub(super) async fn connect(address: SocketAddr, path: &str, extra: &str) -> (TcpStream, String) {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.set_nodelay(true).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: casement.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{extra}\r\n"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let head = soon(read_head(&mut client)).await;
    (client, head)
}

/// Accepts the server's handshake. Returns the connection and the head of the handshake.
pub(super) async fn accept(listener: &TcpListener) -> (TcpStream, String) {
    let (mut upstream, _) = soon(listener.accept()).await.unwrap();
    upstream.set_nodelay(true).unwrap();
    let head = soon(read_head(&mut upstream)).await;
    let key = header(&head, "sec-websocket-key").expect("a key");
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    upstream.write_all(answer.as_bytes()).await.unwrap();
    (upstream, head)
}

/// A reproducible random generator.
pub(super) struct TestRandom(u64);

impl TestRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(super) fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}
