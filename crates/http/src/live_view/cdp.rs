//! The server's own DevTools connection to the session's browser.

use std::time::Duration;

use casement_domain::untrusted_json;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        self, Message, client::IntoClientRequest as _, handshake::client::Request, protocol::WebSocketConfig,
    },
};

use crate::relay::{BrowserConnection, BrowserConnector, CDP_HOST, Channel, ConnectorError, RemoteEndpoint, Upstream};

/// The maximum size of a message from the browser, in bytes; the largest possible frame has half of it.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// The maximum number of values in one message. Each takes many times the memory of its text, and a compromised browser
/// may send anything; the targets of ten thousand tabs have fewer values.
const MAX_VALUES: usize = 100_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The DevTools connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The session's browser cannot be reached.
    #[error(transparent)]
    BrowserConnector(#[from] ConnectorError),
    /// The connection failed before the handshake was complete.
    #[error("the browser's connection failed")]
    Io(#[from] std::io::Error),
    /// The browser refused the WebSocket.
    #[error("the browser refused the WebSocket")]
    Handshake(#[source] Box<tungstenite::Error>),
    /// The browser did not respond in time.
    #[error("the browser did not answer in time")]
    Timeout,
}

/// A connection that numbers commands and reads messages.
pub(crate) struct Cdp {
    socket: WebSocketStream<Upstream>,
    last_id: u64,
}

/// A message of the browser: a response to a command if it has an `id`, else an event.
#[derive(Debug, Deserialize)]
pub(crate) struct Incoming {
    pub(crate) id: Option<u64>,
    #[serde(default)]
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: Value,
    #[serde(default)]
    pub(crate) result: Value,
    #[serde(rename = "sessionId")]
    pub(crate) session: Option<String>,
}

impl Cdp {
    pub(crate) async fn connect(connector: &dyn BrowserConnector) -> Result<Self, ConnectError> {
        tokio::time::timeout(CONNECT_TIMEOUT, Self::handshake(connector)).await.map_err(|_| ConnectError::Timeout)?
    }

    async fn handshake(connector: &dyn BrowserConnector) -> Result<Self, ConnectError> {
        let BrowserConnection { stream, endpoint, .. } = connector.dial(Channel::Cdp).await?;
        let request = match endpoint {
            Some(endpoint) => request_to(&endpoint)?,
            None => format!("ws://{CDP_HOST}{}", connector.cdp_path().await?).into_client_request().map_err(refused)?,
        };
        let stream = Upstream::adopt(stream)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let (socket, _) = client_async_with_config(request, stream, Some(config)).await.map_err(refused)?;
        Ok(Self { socket, last_id: 0 })
    }

    /// Sends a command to a tab's session or to the browser, and returns its id. After an error the connection is
    /// unusable.
    pub(crate) async fn send(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<u64, Disconnected> {
        self.last_id += 1;
        let mut command = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        self.socket.send(Message::text(command.to_string())).await.map_err(|_| Disconnected)?;
        Ok(self.last_id)
    }

    /// Waits for the next message. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Incoming, Disconnected> {
        loop {
            if let Message::Text(text) = self.socket.next().await.ok_or(Disconnected)?.map_err(|_| Disconnected)?
                && untrusted_json::has_at_most(MAX_VALUES, text.as_bytes())
                && let Ok(incoming) = serde_json::from_str(&text)
            {
                return Ok(incoming);
            }
        }
    }
}

/// Returns the handshake with a remote browser.
fn request_to(endpoint: &RemoteEndpoint) -> Result<Request, ConnectError> {
    let mut request = format!("ws://{}{}", endpoint.host, endpoint.path).into_client_request().map_err(refused)?;
    for (name, value) in endpoint.further_headers() {
        request.headers_mut().append(name, value.clone());
    }
    Ok(request)
}

fn refused(error: tungstenite::Error) -> ConnectError {
    ConnectError::Handshake(Box::new(error))
}

/// The browser's connection ended.
#[derive(Debug)]
pub(crate) struct Disconnected;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_parsed_and_a_message_of_too_many_values_is_not() {
        let frame =
            json!({ "method": "Page.screencastFrame", "params": { "data": "A".repeat(MAX_MESSAGE_BYTES / 2) } });
        let is_bounded = |text: &str| untrusted_json::has_at_most(MAX_VALUES, text.as_bytes());
        assert!(is_bounded(&frame.to_string()));
        for values in ["[".repeat(MAX_VALUES + 1), "0,".repeat(MAX_VALUES + 1), "{\"a\":".repeat(MAX_VALUES + 1)] {
            assert!(!is_bounded(&format!("{{\"params\":{values}")));
        }
    }
}
