//! A DevTools client that blocks: one connection to one browser, for tests that look at it from Rust.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket, protocol::CloseFrame};
use url::Url;

use super::Server;

const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// A connection to `cdp_ws_url`.
pub(crate) struct Cdp {
    socket: WebSocket<TcpStream>,
    last: u64,
}

impl Cdp {
    /// Connects. A refusal is an error that shows the status and the body.
    pub(crate) fn connect(url: &str) -> anyhow::Result<Self> {
        Self::open_with(url, url.into_client_request()?)
    }

    /// Connects with the organization's own key, which gets into the browser of a login, too.
    pub(crate) fn connect_with_key(server: &Server, session: &str) -> anyhow::Result<Self> {
        let url = format!("{}/vm/{session}/cdp", server.url().replacen("http", "ws", 1));
        let mut request = url.as_str().into_client_request()?;
        request.headers_mut().insert("Authorization", format!("Bearer {}", server.key()).parse()?);
        Self::open_with(&url, request)
    }

    fn open_with(url: &str, request: Request) -> anyhow::Result<Self> {
        let parsed = Url::parse(url)?;
        let host = parsed.host_str().context("no host")?;
        let stream = TcpStream::connect((host, parsed.port_or_known_default().context("no port")?))?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket, last: 0 }),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                let body = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                bail!("refused: {} {body}", answer.status())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A command to the browser itself.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.call_in(None, method, params)
    }

    /// A command to the target that is attached as `session`. Events in between are dropped.
    pub(crate) fn call_in(&mut self, session: Option<&str>, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.socket.send(Message::text(message.to_string()))?;
        loop {
            let message = self.socket.read().with_context(|| format!("no answer to {method}"))?;
            let Message::Text(text) = message else { continue };
            let answer: Value = serde_json::from_str(&text)?;
            if answer["id"] == id {
                ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return Ok(answer["result"].clone());
            }
        }
    }

    /// Attaches to the first page of the browser: the one that is open already.
    pub(crate) fn page(&mut self) -> anyhow::Result<String> {
        let targets = self.call("Target.getTargets", &json!({}))?;
        let page = targets["targetInfos"].as_array().and_then(|all| all.iter().find(|one| one["type"] == "page"));
        let target = page.with_context(|| format!("no page: {targets}"))?["targetId"].clone();
        let attached = self.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }))?;
        Ok(attached["sessionId"].as_str().context("no session")?.to_owned())
    }

    /// The value of an expression on that page; promises are awaited.
    pub(crate) fn evaluate(&mut self, page: &str, expression: &str) -> anyhow::Result<Value> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call_in(Some(page), "Runtime.evaluate", &params)?;
        ensure!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Opens an address and waits until its document is whole.
    pub(crate) fn open(&mut self, page: &str, url: &str) -> anyhow::Result<()> {
        let answer = self.call_in(Some(page), "Page.navigate", &json!({ "url": url }))?;
        ensure!(answer["errorText"].is_null(), "{url}: {}", answer["errorText"]);
        let whole = "new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))";
        self.evaluate(page, whole).map(drop)
    }

    /// Waits until the page was drawn: before that, Chromium drops keys and clicks.
    pub(crate) fn until_drawn(&mut self, page: &str) -> anyhow::Result<()> {
        let drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.evaluate(page, drawn).map(drop)
    }

    /// The command line of the running browser, as it tells it itself.
    pub(crate) fn command_line(&mut self) -> anyhow::Result<String> {
        let info = self.call("SystemInfo.getInfo", &json!({}))?;
        Ok(info["commandLine"].as_str().context("no command line")?.to_owned())
    }

    /// Reads on until the server closes: its code and reason, or `None` if the connection broke without a close frame.
    pub(crate) fn until_closed(&mut self) -> anyhow::Result<Option<(u16, String)>> {
        loop {
            match self.socket.read() {
                Ok(Message::Close(frame)) => {
                    return Ok(frame.map(|CloseFrame { code, reason }| (code.into(), reason.to_string())));
                }
                Ok(_) => {}
                Err(tungstenite::Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    bail!("still open after {TEST_TIMEOUT:?}")
                }
                Err(_) => return Ok(None),
            }
        }
    }
}
