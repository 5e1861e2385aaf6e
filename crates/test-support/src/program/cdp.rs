//! A blocking DevTools client: one connection to one browser.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket, protocol::CloseFrame};
use url::Url;

use super::Server;
use crate::cdp::{command, evaluation, page_ids, result, session_id, value};

const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// A connection to `cdp_ws_url`.
pub struct Cdp {
    socket: WebSocket<TcpStream>,
    last_id: u64,
}

impl Cdp {
    /// Connects. A refusal is an error with the status and the body.
    pub fn connect(url: &str) -> anyhow::Result<Self> {
        Self::open_with(url, url.into_client_request()?)
    }

    /// Connects with the server's key, which also allows the browser of a login.
    pub fn connect_with_key(server: &Server, session: &str) -> anyhow::Result<Self> {
        let url = format!("{}/vm/{session}/cdp", server.url().replacen("http", "ws", 1));
        let mut request = url.as_str().into_client_request()?;
        request.headers_mut().insert("Authorization", format!("Bearer {}", server.key()).parse()?);
        Self::open_with(&url, request)
    }

    /// Connects with a further header.
    pub fn connect_with_header(url: &str, name: &'static str, value: &str) -> anyhow::Result<Self> {
        let mut request = url.into_client_request()?;
        request.headers_mut().insert(name, value.parse()?);
        Self::open_with(url, request)
    }

    fn open_with(url: &str, request: Request) -> anyhow::Result<Self> {
        let parsed = Url::parse(url)?;
        let host = parsed.host_str().context("no host")?;
        let stream = TcpStream::connect((host, parsed.port_or_known_default().context("no port")?))?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket, last_id: 0 }),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                let body = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                bail!("refused: {} {body}", answer.status())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a command to the browser itself and returns its result.
    pub fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.call_in(None, method, params)
    }

    /// Sends a command to the target that is attached as `session` and returns its result. Events in between are
    /// dropped.
    pub fn call_in(&mut self, session: Option<&str>, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.last_id += 1;
        let message = command(self.last_id, session, method, params);
        self.socket.send(Message::text(message.to_string()))?;
        loop {
            let message = self.socket.read().with_context(|| format!("no response to {method}"))?;
            let Message::Text(text) = message else { continue };
            let response: Value = serde_json::from_str(&text)?;
            if response["id"] == self.last_id {
                return result(method, response);
            }
        }
    }

    /// Attaches to the first open page of the browser. Returns the id of the session.
    pub fn page(&mut self) -> anyhow::Result<String> {
        let targets = self.call("Target.getTargets", &json!({}))?;
        let target = page_ids(&targets)?.into_iter().next().with_context(|| format!("no page: {targets}"))?;
        self.attach(&target)
    }

    /// Attaches to a target. Returns the id of the session.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn attach(&mut self, target: &str) -> anyhow::Result<String> {
        session_id(&self.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }))?)
    }

    /// Returns the value of an expression on a page. Promises are awaited.
    pub fn evaluate(&mut self, page: &str, expression: &str) -> anyhow::Result<Value> {
        value(expression, self.call_in(Some(page), "Runtime.evaluate", &evaluation(expression))?)
    }

    /// Opens an address and waits until its document is complete.
    pub fn open(&mut self, page: &str, url: &str) -> anyhow::Result<()> {
        let answer = self.call_in(Some(page), "Page.navigate", &json!({ "url": url }))?;
        ensure!(answer["errorText"].is_null(), "{url}: {}", answer["errorText"]);
        let whole = "new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))";
        self.evaluate(page, whole).map(drop)
    }

    /// Waits until the page is drawn, because Chromium drops keys and clicks before that.
    pub fn until_drawn(&mut self, page: &str) -> anyhow::Result<()> {
        let drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.evaluate(page, drawn).map(drop)
    }

    /// Returns the command line that the browser reports.
    pub fn command_line(&mut self) -> anyhow::Result<String> {
        let info = self.call("SystemInfo.getInfo", &json!({}))?;
        Ok(info["commandLine"].as_str().context("no command line")?.to_owned())
    }

    /// Reads until the server closes the connection. Returns the code and reason, or `None` without a close frame.
    pub fn until_closed(&mut self) -> anyhow::Result<Option<(u16, String)>> {
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
