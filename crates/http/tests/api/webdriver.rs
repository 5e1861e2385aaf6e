//! Telemetry reports classic WebDriver sessions as connections.

use std::{
    net::SocketAddr,
    sync::{Arc, mpsc},
    time::Duration,
};

use async_trait::async_trait;
use casement_domain::{
    BrowserId,
    session::SessionEvent,
    store_error::Replaced,
    telemetry::{Category, Event, MockRecorder},
    testing::{session, session_id},
};
use casement_http::{
    Permission, SessionConnector,
    relay::{BrowserConnection, BrowserConnector, Channel, ConnectorError},
};
use casement_test_support::websocket::read_head;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::support::{Ports, TestApi};

/// A chromedriver that creates one session and accepts every command.
#[derive(Clone, Copy)]
pub(super) struct Driver(SocketAddr);

impl Driver {
    pub(super) async fn start() -> Self {
        Self::answering(answer).await
    }

    /// Starts one that refuses every session.
    pub(super) async fn refusing() -> Self {
        Self::answering(refuse).await
    }

    async fn answering<F: Future<Output = ()> + Send + 'static>(answer: fn(TcpStream) -> F) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        Self(address)
    }
}

/// Reads the head of a request.
async fn head(stream: &mut TcpStream) -> Vec<u8> {
    let mut request = Vec::new();
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap() == 0 {
            break;
        }
    }
    request
}

async fn respond(mut stream: TcpStream, status: &str, body: &Value) {
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).await.unwrap();
}

async fn refuse(mut stream: TcpStream) {
    head(&mut stream).await;
    let error = json!({ "value": { "error": "session not created", "message": "no match", "stacktrace": "" } });
    respond(stream, "500 Internal Server Error", &error).await;
}

/// Answers with the status that the path names, and announces no body.
async fn without_body(mut stream: TcpStream) {
    let request = String::from_utf8(head(&mut stream).await).unwrap();
    let is_status = |part: &&str| part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    let status = request.split(['/', ' ']).find(is_status).expect("a status in the path");
    stream.write_all(format!("HTTP/1.1 {status} None\r\n\r\n").as_bytes()).await.unwrap();
}

async fn answer(mut stream: TcpStream) {
    let request = head(&mut stream).await;
    let (status, body) = match &request {
        new if new.starts_with(b"POST /session HTTP") => {
            ("200 OK", json!({ "value": { "sessionId": "abc", "capabilities": {} } }))
        }
        within if String::from_utf8_lossy(within).contains(" /session/abc") => ("200 OK", json!({ "value": null })),
        _ => ("404 Not Found", json!({ "value": { "error": "invalid session id" } })),
    };
    respond(stream, status, &body).await;
}

impl SessionConnector for Driver {
    fn connector(&self, _: BrowserId) -> Arc<dyn BrowserConnector> {
        Arc::new(*self)
    }
}

#[async_trait]
impl BrowserConnector for Driver {
    async fn dial(&self, _: Channel) -> Result<BrowserConnection, ConnectorError> {
        std::net::TcpStream::connect(self.0)
            .map(BrowserConnection::local)
            .map_err(|error| ConnectorError::Unavailable(error.into()))
    }

    async fn cdp_path(&self) -> Result<String, ConnectorError> {
        Err(ConnectorError::Unavailable("there is none".into()))
    }
}

/// A client, and the telemetry events about it.
struct Client {
    api: TestApi,
    token: String,
    events: mpsc::Receiver<Event>,
}

impl Client {
    async fn start() -> Self {
        let (sender, events) = mpsc::channel();
        let mut recorder = MockRecorder::new();
        recorder.expect_captures().returning(|_, category| category == Category::Connection);
        recorder.expect_note().returning(move |_, event| drop(sender.send(event)));
        recorder.expect_ended().returning(|_| ());
        recorder.expect_is_owed().returning(|_| false);
        let mut ports = Ports {
            session_connector: Some(Arc::new(Driver::start().await)),
            recorder: Some(recorder),
            ..Ports::default()
        };
        ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
        ports.sessions.expect_end().returning(|_, _| Ok(Replaced::Yes));
        ports.engine.expect_end().returning(|_| Ok(()));
        ports.browsers.expect_forget().returning(|_| Ok(()));
        let api = TestApi::start(ports);
        let token = api.token(session_id(1), Permission::Drive);
        Self { api, token, events }
    }

    async fn command(&self, method: &str, tail: &str, status: u16) {
        let path = format!("/vm/{}/wd/{tail}?jwt={}", session_id(1), self.token);
        let body = if method == "POST" { r#"{"capabilities":{"alwaysMatch":{}}}"# } else { "" };
        let reply = self.api.request(method, &path, &["Content-Type: application/json"], body).await;
        assert_eq!(reply.status, status, "{method} {tail}: {reply}");
    }

    fn next(&self) -> Value {
        let event = self.events.recv_timeout(Duration::from_secs(60)).expect("an event");
        serde_json::from_str(&event.body).unwrap()
    }

    /// Asserts that a connection is reported.
    fn connects(&self) {
        let event = self.next();
        assert_eq!((&event["type"], &event["category"]), (&json!("cdp_connect"), &json!("connection")));
        assert_eq!(event["source"]["event"], "webdriver");
        assert!(event["data"]["connection_id"].is_string(), "{event}");
    }

    /// Asserts that a disconnect is reported with this reason and this number of messages.
    fn disconnects(&self, reason: &str, messages: u64) {
        let event = self.next();
        assert_eq!(
            (&event["type"], &event["source"]["event"]),
            (&json!("cdp_disconnect"), &json!("webdriver")),
            "{event}"
        );
        assert_eq!((&event["data"]["reason"], &event["data"]["message_count"]), (&json!(reason), &json!(messages)));
        assert!(event["data"]["duration_ms"].is_u64(), "{event}");
    }

    fn nothing(&self) {
        assert!(self.events.try_recv().is_err(), "an event was recorded");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_session_is_reported_as_connected_until_its_client_ends_it() {
    let client = Client::start().await;
    client.command("GET", "status", 404).await;
    client.command("DELETE", "session/other", 404).await;
    client.nothing();
    client.command("POST", "session", 200).await;
    client.connects();
    client.command("GET", "session/abc/url", 200).await;
    client.command("DELETE", "session/abc/cookie", 200).await;
    client.nothing();
    client.command("DELETE", "session/abc", 200).await;
    client.disconnects("client_close", 8);
    client.command("DELETE", "session/abc", 200).await;
    client.nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_session_ends_with_its_browser_at_the_latest() {
    for (event, reason) in [(SessionEvent::Delete, "context_cancelled"), (SessionEvent::Crash, "upstream_error")] {
        let client = Client::start().await;
        client.api.sessions.activity().watch(&session(1));
        client.command("POST", "session", 200).await;
        client.connects();
        client.api.sessions.end(session_id(1), event).await.unwrap();
        client.disconnects(reason, 2);
    }
}

/// A client reads the end of a body that may not be there as the beginning of the next response.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_without_a_body_leaves_nothing_before_the_next_response() {
    let driver = Driver::answering(without_body).await;
    let mut ports = Ports { session_connector: Some(Arc::new(driver)), ..Ports::default() };
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let api = TestApi::start(ports);
    api.sessions.activity().watch(&session(1));
    let token = api.token(session_id(1), Permission::Drive);
    for status in [204, 304] {
        let mut client = api.connect().await;
        let command = format!("/vm/{}/wd/session/abc/{status}?jwt={token}", session_id(1));
        for (path, expected) in [(command.as_str(), status), ("/healthz", 200)] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: casement.test\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let head = tokio::time::timeout(Duration::from_secs(60), read_head(&mut client)).await.expect("a response");
            assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{head}");
        }
    }
}
