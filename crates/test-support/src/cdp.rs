//! A DevTools client over a connection that the test has made.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A connection to a browser. `session` is the id of an attached target; `None` is the browser itself.
#[derive(Debug)]
pub struct Cdp {
    socket: WebSocketStream<TcpStream>,
    last_id: u64,
}

impl Cdp {
    /// Performs the WebSocket handshake on a connection, for a path of the browser.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn handshake(stream: TcpStream, path: &str) -> anyhow::Result<Self> {
        let (socket, _) = tokio_tungstenite::client_async(format!("ws://127.0.0.1:9222{path}"), stream).await?;
        Ok(Self { socket, last_id: 0 })
    }

    /// Sends a command without waiting for its response. Returns its id.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn send(&mut self, session: Option<&str>, method: &str, params: &Value) -> anyhow::Result<u64> {
        self.last_id += 1;
        let message = command(self.last_id, session, method, params);
        self.socket.send(Message::text(message.to_string())).await?;
        Ok(self.last_id)
    }

    /// Sends a command and returns the whole response, which may be an error. Events in between are dropped.
    ///
    /// # Errors
    /// When the connection is closed, or no response arrives within a minute.
    pub async fn response(&mut self, session: Option<&str>, method: &str, params: &Value) -> anyhow::Result<Value> {
        let id = self.send(session, method, params).await?;
        let responded = async {
            while let Some(message) = self.socket.next().await {
                let Message::Text(text) = message? else { continue };
                let response: Value = serde_json::from_str(&text)?;
                if response["id"] == id {
                    return Ok(response);
                }
            }
            bail!("the connection is closed")
        };
        tokio::time::timeout(TEST_TIMEOUT, responded).await.with_context(|| format!("no response to {method}"))?
    }

    /// Sends a command and returns its result.
    ///
    /// # Errors
    /// As [`Self::response`], and when the browser responds with an error.
    pub async fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> anyhow::Result<Value> {
        result(method, self.response(session, method, params).await?)
    }

    /// Returns the ids of the open pages.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn pages(&mut self) -> anyhow::Result<Vec<String>> {
        page_ids(&self.call(None, "Target.getTargets", &json!({})).await?)
    }

    /// Attaches to a target. Returns the id of the session.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn attach(&mut self, target: &str) -> anyhow::Result<String> {
        let params = json!({ "targetId": target, "flatten": true });
        session_id(&self.call(None, "Target.attachToTarget", &params).await?)
    }

    /// Returns the value of an expression on a page. Promises are awaited.
    ///
    /// # Errors
    /// As [`Self::call`], and when the expression throws.
    pub async fn evaluate(&mut self, session: &str, expression: &str) -> anyhow::Result<Value> {
        value(expression, self.call(Some(session), "Runtime.evaluate", &evaluation(expression)).await?)
    }

    /// Waits until an expression has a value. Repeats failed evaluations, because the page may be changing.
    ///
    /// # Errors
    /// When the expression does not have the value within a minute.
    pub async fn until(&mut self, session: &str, expression: &str, expected: &Value) -> anyhow::Result<()> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let found = self.evaluate(session, expression).await;
            if found.as_ref().is_ok_and(|found| found == expected) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{expression} is not {expected}: {found:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns the message of a command.
pub(crate) fn command(id: u64, session: Option<&str>, method: &str, params: &Value) -> Value {
    let mut message = json!({ "id": id, "method": method, "params": params });
    if let Some(session) = session {
        message["sessionId"] = session.into();
    }
    message
}

/// Returns the result of a response to `method`.
pub(crate) fn result(method: &str, mut response: Value) -> anyhow::Result<Value> {
    ensure!(response["error"].is_null(), "{method}: {}", response["error"]);
    Ok(response["result"].take())
}

/// Returns the ids of the pages in a result of `Target.getTargets`.
pub(crate) fn page_ids(targets: &Value) -> anyhow::Result<Vec<String>> {
    let infos = targets["targetInfos"].as_array().with_context(|| format!("no targets: {targets}"))?;
    let pages = infos.iter().filter(|info| info["type"] == "page");
    Ok(pages.filter_map(|info| info["targetId"].as_str().map(str::to_owned)).collect())
}

/// Returns the session in a result of `Target.attachToTarget`.
pub(crate) fn session_id(attached: &Value) -> anyhow::Result<String> {
    Ok(attached["sessionId"].as_str().context("not attached")?.to_owned())
}

/// Returns the parameters of `Runtime.evaluate` for an expression whose promises are awaited.
pub(crate) fn evaluation(expression: &str) -> Value {
    json!({ "expression": expression, "returnByValue": true, "awaitPromise": true })
}

/// Returns the value in a result of `Runtime.evaluate`.
pub(crate) fn value(expression: &str, mut evaluated: Value) -> anyhow::Result<Value> {
    ensure!(evaluated["exceptionDetails"].is_null(), "{expression}: {}", evaluated["exceptionDetails"]);
    Ok(evaluated["result"]["value"].take())
}
