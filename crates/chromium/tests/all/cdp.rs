//! A small CDP client over a dialled connection.

use anyhow::Context;
use casement_chromium::{Channel, Engine};
use casement_domain::ids::BrowserId;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// A connection attached to the browser's first page.
pub(crate) struct Cdp {
    connection: casement_test_support::cdp::Cdp,
    session: String,
}

impl Cdp {
    pub(crate) async fn attach(engine: &Engine, id: BrowserId) -> anyhow::Result<Self> {
        let stream = TcpStream::from_std(engine.dial(id, Channel::Cdp).await?)?;
        let path = engine.cdp_path(id).await?;
        let mut connection = casement_test_support::cdp::Cdp::handshake(stream, &path).await?;
        let page = connection.pages().await?.into_iter().next().context("a page is open")?;
        let session = connection.attach(&page).await?;
        Ok(Self { connection, session })
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.connection.call(Some(&self.session), method, &params).await
    }

    /// Sends a call without waiting for its response.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> anyhow::Result<()> {
        self.connection.send(Some(&self.session), method, &params).await.map(drop)
    }

    /// Evaluates an expression on the page and awaits promises.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        self.connection.evaluate(&self.session, expression).await
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
        self.connection.until(&self.session, expression, &json!(true)).await
    }
}
