//! What WebDriver does best, over chromedriver in the browser's own sandbox.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use casement_agent::protocol::Channel;
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use fantoccini::error::CmdError;
use fantoccini::{Client, ClientBuilder};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::engine::Engine;
use crate::fault::failed;

/// chromedriver refuses other names than those of its own host; where it really is, the connector knows.
const CHROMEDRIVER: &str = "http://127.0.0.1:9515/";
/// Where chromedriver finds the browser.
const DEBUGGER: &str = "127.0.0.1:9222";
const TITLE: &str = "Casement";
const PAGE: &str = "data:text/html,<title>Casement</title>";
const WINDOW: (u32, u32) = (800, 600);
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Connects to the chromedriver of one browser, whatever address is asked for.
#[derive(Clone)]
struct Connector {
    engine: Engine,
    id: BrowserId,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { engine, id } = self.clone();
        Box::pin(async move {
            let stream = engine.dial(id, Channel::WebDriver).await.map_err(std::io::Error::other)?;
            TcpStream::from_std(stream).map(TokioIo::new)
        })
    }
}

impl Engine {
    /// A WebDriver session attached to the running browser. Closing it leaves the browser as it is. For browsers that no caller has
    /// had: what a sandbox writes is taken as it comes.
    ///
    /// # Errors
    /// [`EngineError::NotRunning`]; [`EngineError::Failed`] if chromedriver makes no session.
    pub async fn webdriver_client(&self, id: BrowserId) -> Result<Client, EngineError> {
        self.running(id)?;
        let mut capabilities = fantoccini::wd::Capabilities::new();
        capabilities.insert("goog:chromeOptions".to_owned(), serde_json::json!({ "debuggerAddress": DEBUGGER }));
        let connector = Connector { engine: self.clone(), id };
        let client = ClientBuilder::new(connector).capabilities(capabilities).connect(CHROMEDRIVER).await;
        client.map_err(|error| failed(EngineFault::AgentError, format!("no WebDriver session: {error}")))
    }

    /// Drives a running browser as a WebDriver client does: opens a page, sizes its window, takes a picture of the page.
    ///
    /// # Errors
    /// Those of [`Engine::webdriver_client`]; [`EngineError::Failed`] if the browser did not do one of it.
    pub async fn drive(&self, id: BrowserId) -> Result<(), EngineError> {
        let client = self.webdriver_client(id).await?;
        let driven = drive(&client).await;
        // What was done counts; a session that cannot be closed ends with its browser.
        client.close().await.ok();
        driven.map_err(|why| failed(EngineFault::AgentError, why))
    }
}

async fn drive(client: &Client) -> Result<(), String> {
    let did_not = |what: &'static str| move |error: CmdError| format!("WebDriver does not {what}: {error}");
    client.goto(PAGE).await.map_err(did_not("open a page"))?;
    client.set_window_size(WINDOW.0, WINDOW.1).await.map_err(did_not("size a window"))?;
    let size = client.get_window_size().await.map_err(did_not("tell the size of a window"))?;
    if size != (WINDOW.0.into(), WINDOW.1.into()) {
        return Err(format!(
            "WebDriver sized a window to {} x {} instead of {} x {}",
            size.0, size.1, WINDOW.0, WINDOW.1
        ));
    }
    let title = client.title().await.map_err(did_not("read a title"))?;
    let picture = client.screenshot().await.map_err(did_not("take a picture"))?;
    if title != TITLE || !picture.starts_with(PNG) {
        return Err(format!("WebDriver shows {title:?} in {} bytes instead of {TITLE:?} in a PNG", picture.len()));
    }
    Ok(())
}
