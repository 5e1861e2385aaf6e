//! Connections to browsers for the HTTP crate.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::Channel as AgentChannel;
use casement_chromium::Engine;
use casement_domain::BrowserId;
use casement_domain::browser::EngineError;
use casement_http::SessionConnector;
use casement_http::relay::{
    BrowserConnection, BrowserConnector, Channel, ConnectorError, RemoteEndpoint, RemoteSessionInfo,
};
use casement_webdriver::{Channel as GridChannel, GridError};

use super::BrowserEngines;
use super::grids::RemoteBrowserSession;

impl SessionConnector for BrowserEngines {
    fn connector(&self, browser: BrowserId) -> Arc<dyn BrowserConnector> {
        match self.grids().session(browser) {
            Some(remote) => Arc::new(RemoteDial(remote)),
            None => Arc::new(LocalDial { sandboxes: self.sandboxes().clone(), browser }),
        }
    }

    fn protocol(&self) -> Option<Bytes> {
        self.sandboxes().protocol()
    }
}

/// Connects to a browser in a sandbox of this node.
struct LocalDial {
    sandboxes: Engine,
    browser: BrowserId,
}

#[async_trait]
impl BrowserConnector for LocalDial {
    async fn dial(&self, channel: Channel) -> Result<BrowserConnection, ConnectorError> {
        let channel = match channel {
            Channel::Cdp => AgentChannel::Cdp,
            Channel::WebDriver => AgentChannel::WebDriver,
            // Only remote browsers have it.
            Channel::Bidi => return Err(ConnectorError::Unavailable("a local browser has no BiDi endpoint".into())),
        };
        self.sandboxes.dial(self.browser, channel).await.map(BrowserConnection::local).map_err(local_error)
    }

    async fn cdp_path(&self) -> Result<String, ConnectorError> {
        self.sandboxes.cdp_path(self.browser).await.map_err(local_error)
    }
}

fn local_error(error: EngineError) -> ConnectorError {
    match error {
        EngineError::NotRunning(_) => ConnectorError::Ended,
        other => ConnectorError::Unavailable(Box::new(other)),
    }
}

/// Connects to a browser of a WebDriver server.
struct RemoteDial(RemoteBrowserSession);

#[async_trait]
impl BrowserConnector for RemoteDial {
    async fn dial(&self, channel: Channel) -> Result<BrowserConnection, ConnectorError> {
        let channel = match channel {
            Channel::Cdp => GridChannel::Cdp,
            Channel::Bidi => GridChannel::Bidi,
            Channel::WebDriver => GridChannel::Http,
        };
        let RemoteBrowserSession { engine, session } = &self.0;
        let (stream, endpoint) = engine.connect(session, channel).await.map_err(remote_error)?;
        let endpoint = RemoteEndpoint { host: endpoint.host, path: endpoint.path, headers: endpoint.headers };
        Ok(BrowserConnection::remote(stream, endpoint))
    }

    async fn dial_socket(&self, channel: Channel) -> Result<BrowserConnection, ConnectorError> {
        let RemoteBrowserSession { engine, session } = &self.0;
        if channel == Channel::Cdp
            && let Some(stream) = engine.take_ready_socket(session).await
        {
            return Ok(BrowserConnection::remote_websocket(stream));
        }
        self.dial(channel).await
    }

    async fn cdp_path(&self) -> Result<String, ConnectorError> {
        Err(ConnectorError::Unavailable("the path of a remote browser is in its endpoint".into()))
    }

    fn remote_session(&self) -> Option<Arc<RemoteSessionInfo>> {
        let session = &self.0.session;
        Some(Arc::new(RemoteSessionInfo {
            id: session.id().to_owned(),
            capabilities: session.capabilities().clone(),
            requested: session.requested().clone(),
        }))
    }
}

fn remote_error(error: GridError) -> ConnectorError {
    match error {
        GridError::NoSession { .. } => ConnectorError::Ended,
        other => ConnectorError::Unavailable(Box::new(other)),
    }
}
