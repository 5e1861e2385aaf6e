//! The server's own DevTools connection to the session's browser.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{self, Message, protocol::WebSocketConfig},
};

use crate::relay::{BrowserConnector, CDP_HOST, Channel, ConnectorError, Upstream};

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
pub(super) struct Cdp {
    socket: WebSocketStream<Upstream>,
    last_id: u64,
}

/// A message of the browser: a response to a command if it has an `id`, else an event.
#[derive(Debug, Deserialize)]
pub(super) struct Incoming {
    pub(super) id: Option<u64>,
    #[serde(default)]
    pub(super) method: String,
    #[serde(default)]
    pub(super) params: Value,
    #[serde(default)]
    pub(super) result: Value,
    #[serde(rename = "sessionId")]
    pub(super) session: Option<String>,
}

impl Cdp {
    pub(super) async fn connect(connector: &dyn BrowserConnector) -> Result<Self, ConnectError> {
        tokio::time::timeout(CONNECT_TIMEOUT, Self::handshake(connector)).await.map_err(|_| ConnectError::Timeout)?
    }

    async fn handshake(connector: &dyn BrowserConnector) -> Result<Self, ConnectError> {
        let path = connector.cdp_path().await?;
        let stream = Upstream::adopt(connector.dial(Channel::Cdp).await?)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let (socket, _) = client_async_with_config(format!("ws://{CDP_HOST}{path}"), stream, Some(config))
            .await
            .map_err(|error| ConnectError::Handshake(Box::new(error)))?;
        Ok(Self { socket, last_id: 0 })
    }

    /// Sends a command to a tab's session or to the browser, and returns its id. After an error the connection is
    /// unusable.
    pub(super) async fn send(
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
    pub(super) async fn next(&mut self) -> Result<Incoming, Disconnected> {
        loop {
            if let Message::Text(text) = self.socket.next().await.ok_or(Disconnected)?.map_err(|_| Disconnected)?
                && is_bounded(&text)
                && let Ok(incoming) = serde_json::from_str(&text)
            {
                return Ok(incoming);
            }
        }
    }
}

/// Returns whether a text has few enough values to be parsed. Separators inside strings count too; only hostile
/// messages exceed the limit.
fn is_bounded(text: &str) -> bool {
    text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() <= MAX_VALUES
}

/// The browser's connection ended.
#[derive(Debug)]
pub(super) struct Disconnected;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_parsed_and_a_message_of_too_many_values_is_not() {
        let frame =
            json!({ "method": "Page.screencastFrame", "params": { "data": "A".repeat(MAX_MESSAGE_BYTES / 2) } });
        assert!(is_bounded(&frame.to_string()));
        for values in ["[".repeat(MAX_VALUES + 1), "0,".repeat(MAX_VALUES + 1), "{\"a\":".repeat(MAX_VALUES + 1)] {
            assert!(!is_bounded(&format!("{{\"params\":{values}")));
        }
    }
}
