//! The log lines of requests, and the secrets that they must not contain.

use std::{
    io,
    sync::OnceLock,
    time::{Duration, Instant},
};

use casement_domain::{
    StoreError,
    session::SessionEvent,
    testing::{session, session_id},
};
use casement_http::Permission;
use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest as _},
};
use tracing_subscriber::fmt::MakeWriter;

use super::{
    sockets,
    support::{Key, Ports, TestApi},
};

/// The log of all tests of this process.
#[derive(Default)]
struct Log(Mutex<Vec<u8>>);

impl Log {
    /// Returns the log so far. The first call starts the collection.
    fn text() -> String {
        static LOG: OnceLock<&'static Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log: &'static Log = Box::leak(Box::default());
            let subscriber = tracing_subscriber::fmt()
                .with_ansi(false)
                .with_max_level(tracing::Level::TRACE)
                .with_writer(log)
                .finish();
            tracing::subscriber::set_global_default(subscriber).unwrap();
            log
        });
        String::from_utf8_lossy(&log.0.lock()).into_owned()
    }
}

/// Waits for the first line that contains all of `facts`.
async fn line(facts: &[&str]) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let log = Log::text();
        if let Some(line) = log.lines().find(|line| facts.iter().all(|fact| line.contains(fact))) {
            return line.to_owned();
        }
        assert!(Instant::now() < deadline, "no line with {facts:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl<'a> MakeWriter<'a> for &'static Log {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self)
    }
}

struct Line(&'static Log);

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_one_line_per_request_with_its_id_and_no_secret() {
    Log::text();
    let mut ports = Ports::default();
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    ports.sessions.expect_list().returning(|_, _, _| {
        Err(StoreError::Broken { operation: "session.list", source: "the row has no state".into() })
    });
    let api = TestApi::start(ports);
    let token = api.token(session_id(1), Permission::Drive);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let basic = format!("Authorization: Basic {token}");
    let vm = format!("/vm/{}", session_id(1));
    for (method, path, header) in [
        ("GET", format!("{vm}/cdp?jwt={token}"), "X-Request-Id: log-1"),
        ("GET", format!("{vm}/wd/status"), basic.as_str()),
        ("GET", format!("/live/{}?jwt={token}", session_id(1)), "X-Request-Id: log-2"),
        ("POST", format!("/nowhere?jwt={token}"), "X-Request-Id: log-3"),
        ("GET", "/browsers?query=private".to_owned(), key.as_str()),
    ] {
        api.request(method, &path, &["X-Request-Id: log-4", header], "{\"secret\": \"private\"}").await;
    }
    let failed = line(&["request_id=log-4", "request failed"]).await;
    assert!(failed.contains("the row has no state"), "{failed}");
    // Waits for the line of the last request.
    let answered = line(&["request_id=log-4", "request completed", "path=/browsers"]).await;
    for fact in ["method=GET", "status=", "elapsed_ms=", "route="] {
        assert!(answered.contains(fact), "{answered}");
    }
    let log = Log::text();
    for secret in [&*token, &*Key::Organization.text(), "jwt=", "csk_", "private"] {
        let leaks = log.lines().filter(|line| line.contains("casement") && line.contains(secret)).collect::<Vec<_>>();
        assert!(leaks.is_empty(), "{secret} in {leaks:?}");
    }
}

/// Opens a socket of the live view or of DevTools with this request id.
async fn socket(api: &TestApi, path: &str, id: &str) -> WebSocketStream<TcpStream> {
    let token = api.token(session_id(1), Permission::Drive);
    let mut request = format!("ws://casement.test/{path}?jwt={token}")
        .replace("ID", &session_id(1).to_string())
        .into_client_request()
        .unwrap();
    request.headers_mut().insert("x-request-id", id.parse().unwrap());
    tokio_tungstenite::client_async(request, api.connect().await).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_relays_end_names_request_session_and_reason() {
    Log::text();
    let api = sockets::api().await;
    let session = format!("session={}", session_id(1));
    let (reset, closed) = (socket(&api, "vm/ID/cdp", "relay-1").await, socket(&api, "vm/ID/cdp", "relay-2").await);
    drop(reset);
    line(&["relay ended", "request_id=relay-1", &session, "reason=\"client_gone\""]).await;
    api.sessions.end(session_id(1), SessionEvent::IdleTimeout).await.unwrap();
    line(&["relay ended", "request_id=relay-2", &session, "reason=\"idle_timeout\""]).await;
    drop(closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_that_disconnects_is_no_protocol_violation() {
    Log::text();
    let api = sockets::api().await;
    for (id, reset) in [("view-1", false), ("view-2", true)] {
        let socket = socket(&api, "live/ID/socket", id).await;
        if reset {
            socket.get_ref().set_zero_linger().unwrap();
        }
        drop(socket);
        let line = line(&["relay ended", &format!("request_id={id}")]).await;
        assert!(line.contains("reason=\"client_gone\""), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_disconnected_as_a_slow_reader() {
    Log::text();
    let api = sockets::api().await;
    let mut socket = socket(&api, "vm/ID/cdp", "slow-1").await;
    // The browser echoes, and the client does not read.
    let sending = tokio::spawn(async move { while socket.send(Message::text("x".repeat(60_000))).await.is_ok() {} });
    let line = line(&["relay ended", "request_id=slow-1"]).await;
    assert!(line.contains("reason=\"slow_reader\""), "{line}");
    sending.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_steadily_but_slowly_is_no_slow_reader() {
    Log::text();
    let api = sockets::api().await;
    let mut socket = socket(&api, "vm/ID/cdp", "steady-1").await;
    let started = Instant::now();
    let (mut sink, mut stream) = futures_util::StreamExt::split(&mut socket);
    let sending = async { while sink.send(Message::text("x".repeat(60_000))).await.is_ok() {} };
    // The client reads a megabyte per second, for longer than the stall timeout.
    let reading = async {
        while started.elapsed() < Duration::from_secs(12) {
            stream.next().await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    };
    tokio::select! {
        () = sending => panic!("cut after {:?}", started.elapsed()),
        () = reading => {}
    }
}
