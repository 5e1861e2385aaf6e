//! A fake WebDriver server, as a Selenium Grid, which records what it is asked.

use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::BrowserId;
use casement_http::{
    SessionConnector,
    relay::{BrowserConnection, BrowserConnector, Channel, ConnectorError, RemoteEndpoint, RemoteSessionInfo},
};
use casement_test_support::websocket::{header, read_head};
use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::{
    Message,
    handshake::server::{ErrorResponse, Request, Response},
    protocol::{CloseFrame, frame::coding::CloseCode},
};

/// The session on the Grid.
pub(in crate::api) const GRID_SESSION: &str = "0123abcd-grid";
/// The credentials of the Grid.
pub(in crate::api) const GRID_SECRET: &str = "Basic Z3JpZDpzZWNyZXQ=";
/// A part of the addresses of the Grid.
pub(in crate::api) const GRID_HOST: &str = "grid.internal:4444";

/// A request that the Grid got.
#[derive(Clone, Debug)]
pub(in crate::api) struct Seen {
    pub(in crate::api) head: String,
    pub(in crate::api) body: String,
}

impl Seen {
    pub(in crate::api) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(in crate::api) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// The Grid. Its connections are no sockets, as those with TLS. Clones share it.
#[derive(Clone, Default)]
pub(in crate::api) struct FakeGrid {
    seen: Arc<Mutex<Vec<Seen>>>,
    messages: Arc<Mutex<Vec<Value>>>,
    /// The next answer to a command, as a whole response.
    answer: Arc<Mutex<Option<Vec<u8>>>>,
}

impl FakeGrid {
    /// Returns the requests that the Grid got.
    pub(in crate::api) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Returns the messages that the Grid got over WebSockets.
    pub(in crate::api) fn messages(&self) -> Vec<Value> {
        self.messages.lock().clone()
    }

    /// Sets the answer to the next command: the rest of a status line, further header lines, and the body.
    pub(in crate::api) fn answers(&self, status: &str, lines: &str, body: impl AsRef<[u8]>) {
        let length = body.as_ref().len();
        let head = format!("HTTP/1.1 {status}\r\n{lines}content-length: {length}\r\n\r\n");
        *self.answer.lock() = Some([head.as_bytes(), body.as_ref()].concat());
    }

    /// As [`Self::answers`], with a raw response.
    pub(in crate::api) fn answers_raw(&self, response: impl Into<Vec<u8>>) {
        *self.answer.lock() = Some(response.into());
    }

    async fn command(self, mut stream: DuplexStream) {
        let head = read_head(&mut stream).await;
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        self.seen.lock().push(Seen { head, body: String::from_utf8(body).unwrap() });
        let answer = self.answer.lock().take().unwrap_or_else(|| {
            let body = r#"{"value":"of the grid"}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\n";
            format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
        });
        // The client may refuse the answer before it has read all of it.
        let _ = stream.write_all(&answer).await;
    }

    /// Serves a WebSocket: answers commands for targets, ends on demand, and echoes everything else.
    async fn socket(self, stream: DuplexStream) {
        let seen = self.seen.clone();
        #[expect(clippy::result_large_err, reason = "the signature of the library")]
        let record = move |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            let mut head = format!("GET {} HTTP/1.1\r\n", request.uri());
            for (name, value) in request.headers() {
                head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
            }
            seen.lock().push(Seen { head, body: String::new() });
            Ok(response)
        };
        let mut socket = tokio_tungstenite::accept_hdr_async(stream, record).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            let Message::Text(text) = message else { continue };
            let command: Value = serde_json::from_str(&text).unwrap_or_default();
            self.messages.lock().push(command.clone());
            let reply = match command["method"].as_str() {
                Some("close") => {
                    let frame = CloseFrame { code: CloseCode::Away, reason: "of the grid".into() };
                    socket.close(Some(frame)).await.unwrap();
                    continue;
                }
                Some("drop") => return,
                Some("Target.getTargets") => {
                    let page = json!({ "targetId": "T1", "type": "page", "title": "A", "url": "https://a.test/" });
                    let targets = [page, json!({ "targetId": "T2", "type": "tab", "title": "", "url": "" })];
                    Message::text(json!({ "id": command["id"], "result": { "targetInfos": targets } }).to_string())
                }
                _ => Message::Text(text),
            };
            if socket.send(reply).await.is_err() {
                return;
            }
        }
    }
}

/// The capabilities of the Grid's session, with addresses.
fn grid_capabilities() -> Value {
    json!({
        "browserName": "chrome",
        "browserVersion": "143.0.7499.40",
        "platformName": "linux",
        "pageLoadStrategy": "normal",
        "timeouts": { "implicit": 0, "pageLoad": 300_000, "script": 30_000 },
        "goog:chromeOptions": { "debuggerAddress": "localhost:40001" },
        "webSocketUrl": format!("ws://{GRID_HOST}/session/{GRID_SESSION}/se/bidi"),
        "se:cdp": format!("ws://{GRID_HOST}/session/{GRID_SESSION}/se/cdp"),
        "se:vnc": format!("ws://{GRID_HOST}/session/{GRID_SESSION}/se/vnc"),
        "casement:owner": "mark-of-the-owner",
    })
}

impl SessionConnector for FakeGrid {
    fn connector(&self, _: BrowserId) -> Arc<dyn BrowserConnector> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl BrowserConnector for FakeGrid {
    async fn dial(&self, channel: Channel) -> Result<BrowserConnection, ConnectorError> {
        let (ours, theirs) = duplex(1 << 16);
        let path = match channel {
            Channel::Cdp => format!("/base/session/{GRID_SESSION}/se/cdp"),
            Channel::Bidi => format!("/base/session/{GRID_SESSION}/se/bidi"),
            Channel::WebDriver => "/base/".to_owned(),
        };
        match channel {
            Channel::WebDriver => drop(tokio::spawn(self.clone().command(theirs))),
            Channel::Cdp | Channel::Bidi => drop(tokio::spawn(self.clone().socket(theirs))),
        }
        let mut secret = hyper::header::HeaderValue::from_static(GRID_SECRET);
        secret.set_sensitive(true);
        let mut headers = hyper::HeaderMap::new();
        headers.insert("authorization", secret);
        headers.insert("x-of-the-operator", hyper::header::HeaderValue::from_static("yes"));
        // Headers of the connection have no effect.
        headers.insert("connection", hyper::header::HeaderValue::from_static("keep-alive"));
        headers.insert("host", hyper::header::HeaderValue::from_static("other.test"));
        Ok(BrowserConnection::remote(ours, RemoteEndpoint { host: GRID_HOST.to_owned(), path, headers }))
    }

    async fn cdp_path(&self) -> Result<String, ConnectorError> {
        Err(ConnectorError::Unavailable("a remote browser has none".into()))
    }

    fn remote_session(&self) -> Option<Arc<RemoteSessionInfo>> {
        let Value::Object(capabilities) = grid_capabilities() else { return None };
        Some(Arc::new(RemoteSessionInfo { id: GRID_SESSION.to_owned(), capabilities, requested: Map::new() }))
    }
}
