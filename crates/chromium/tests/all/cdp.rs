//! A small CDP client over a dialled connection.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use casement_chromium::{Channel, Engine};
use casement_domain::ids::BrowserId;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that is attached to the browser's first page.
pub(crate) struct Cdp {
    socket: WebSocketStream<TcpStream>,
    session: String,
    last: u64,
}

impl Cdp {
    pub(crate) async fn attach(engine: &Engine, id: BrowserId) -> anyhow::Result<Self> {
        let stream = TcpStream::from_std(engine.dial(id, Channel::Cdp).await?)?;
        let address = format!("ws://127.0.0.1:9222{}", engine.cdp_path(id).await?);
        let (socket, _) = tokio_tungstenite::client_async(address, stream).await?;
        let mut cdp = Self { socket, session: String::new(), last: 0 };
        let targets = cdp.call("Target.getTargets", json!({})).await?;
        let page = targets["targetInfos"].as_array().and_then(|all| all.iter().find(|info| info["type"] == "page"));
        let target = page.context("a page is open")?["targetId"].clone();
        let attached = cdp.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true })).await?;
        cdp.session = attached["sessionId"].as_str().context("attached")?.to_owned();
        Ok(cdp)
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.tell(method, params).await?;
        let answered = async {
            while let Some(message) = self.socket.next().await {
                let Message::Text(text) = message? else { continue };
                let answer: Value = serde_json::from_str(&text)?;
                if answer["id"] == self.last {
                    anyhow::ensure!(answer.get("error").is_none(), "{}", answer["error"]);
                    return Ok(answer["result"].clone());
                }
            }
            bail!("the connection is closed")
        };
        tokio::time::timeout(PATIENCE, answered).await.with_context(|| format!("no answer to {method}"))?
    }

    /// Sends a call without waiting for its response.
    pub(crate) async fn tell(&mut self, method: &str, params: Value) -> anyhow::Result<()> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        Ok(self.socket.send(Message::text(message.to_string())).await?)
    }

    /// Evaluates an expression on the page and awaits promises.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params).await?;
        anyhow::ensure!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        Ok(answer["result"]["value"].clone())
    }

    /// Opens a URL and waits until it is loaded. Returns the network error, if there is one.
    pub(crate) async fn open(&mut self, url: &str) -> anyhow::Result<Option<String>> {
        // The response comes before the page has changed: until then the previous page answers.
        self.until("globalThis.isBefore = true").await?;
        let answer = self.call("Page.navigate", json!({ "url": url })).await?;
        let there = "!globalThis.isBefore && location.href !== 'about:blank' && document.readyState === 'complete'";
        self.until(there).await?;
        Ok(answer["errorText"].as_str().map(str::to_owned))
    }

    /// Waits until an expression has this value.
    pub(crate) async fn until_is(&mut self, expression: &str, wanted: &Value) -> anyhow::Result<()> {
        self.until(&format!("JSON.stringify({expression}) === {}", Value::from(wanted.to_string()))).await
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&mut self, expression: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        // Expressions may fail while a page changes.
        while !matches!(self.evaluate(expression).await, Ok(Value::Bool(true))) {
            anyhow::ensure!(Instant::now() < deadline, "never true: {expression}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}
