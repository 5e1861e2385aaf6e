//! What WebDriver does best, over chromedriver in the browser's own sandbox.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use casement_agent::protocol::Channel;
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
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
    /// A WebDriver session attached to the running browser. Closing it leaves the browser as it is.
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

    /// A PNG of the page in front as WebDriver takes it, in device pixels.
    ///
    /// # Errors
    /// Those of [`Engine::webdriver_client`]; [`EngineError::Failed`] if no picture was taken.
    pub async fn page_screenshot(&self, id: BrowserId) -> Result<Vec<u8>, EngineError> {
        let client = self.webdriver_client(id).await?;
        let taken = client.screenshot().await;
        // The picture counts; a session that cannot be closed ends with its browser.
        client.close().await.ok();
        taken.map_err(|error| failed(EngineFault::BrowserHung, format!("no picture of the page: {error}")))
    }
}
