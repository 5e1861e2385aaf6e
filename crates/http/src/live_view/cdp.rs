//! A DevTools connection of our own to the session's browser.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{self, Message, protocol::WebSocketConfig},
};

use crate::relay::{BrowserConnector, CDP_HOST, Channel, ConnectorError, Upstream};

/// The longest message from the browser that is taken, in bytes; a frame of the largest size has half of it.
const MAX_MESSAGE: usize = 8 * 1024 * 1024;
/// The most values in one. Each takes many times its text in memory, and a browser that is not itself any more may send what it likes;
/// all that is told of ten thousand tabs has fewer.
const MAX_VALUES: usize = 100_000;
const TIMEOUT: Duration = Duration::from_secs(10);

/// No DevTools connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No connection into the session.
    #[error(transparent)]
    BrowserConnector(#[from] ConnectorError),
    /// The connection broke before it was of use.
    #[error("the browser's connection failed")]
    Io(#[from] std::io::Error),
    /// The browser refused the WebSocket.
    #[error("the browser refused the WebSocket")]
    Handshake(#[source] Box<tungstenite::Error>),
    /// It did not answer.
    #[error("the browser did not answer in time")]
    Timeout,
}

/// Numbers commands and reads what comes back.
pub(super) struct Cdp {
    socket: WebSocketStream<Upstream>,
    last: u64,
}

/// A message of the browser: the answer to a command if it has an `id`, else an event.
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
    pub(super) async fn connect(dial: &dyn BrowserConnector) -> Result<Self, ConnectError> {
        tokio::time::timeout(TIMEOUT, Self::shake(dial)).await.map_err(|_| ConnectError::Timeout)?
    }

    async fn shake(dial: &dyn BrowserConnector) -> Result<Self, ConnectError> {
        let path = dial.cdp_path().await?;
        let stream = Upstream::adopt(dial.dial(Channel::Cdp).await?)?;
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        let (socket, _) = client_async_with_config(format!("ws://{CDP_HOST}{path}"), stream, Some(config))
            .await
            .map_err(|error| ConnectError::Handshake(Box::new(error)))?;
        Ok(Self { socket, last: 0 })
    }

    /// Sends a command, to a tab's session or to the browser, and answers its number. An error is the end of the
    /// connection.
    pub(super) async fn send(&mut self, session: Option<&str>, method: &str, params: Value) -> Result<u64, Lost> {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        self.socket.send(Message::text(command.to_string())).await.map_err(|_| Lost)?;
        Ok(self.last)
    }

    /// The next message; safe to drop while it waits.
    pub(super) async fn next(&mut self) -> Result<Incoming, Lost> {
        loop {
            if let Message::Text(text) = self.socket.next().await.ok_or(Lost)?.map_err(|_| Lost)?
                && is_bounded(&text)
                && let Ok(incoming) = serde_json::from_str(&text)
            {
                return Ok(incoming);
            }
        }
    }
}

/// Whether a text holds few enough values to be read. Those in its strings count too, which only a hostile one notices.
fn is_bounded(text: &str) -> bool {
    text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() <= MAX_VALUES
}

/// The browser's connection ended.
#[derive(Debug)]
pub(super) struct Lost;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_and_a_heap_of_values_is_not() {
        let frame = json!({ "method": "Page.screencastFrame", "params": { "data": "A".repeat(MAX_MESSAGE / 2) } });
        assert!(is_bounded(&frame.to_string()));
        for heap in ["[".repeat(MAX_VALUES + 1), "0,".repeat(MAX_VALUES + 1), "{\"a\":".repeat(MAX_VALUES + 1)] {
            assert!(!is_bounded(&format!("{{\"params\":{heap}")));
        }
    }
}
