//! The description of the DevTools protocol of this machine's Chromium. It is read from a browser that was never handed out:
//! programs of a caller could answer in the place of theirs.

use std::time::Duration;

use bytes::Bytes;
use casement_agent_protocol::Channel;
use casement_agent_protocol::client::{self, ClientError};
use serde_json::Value;
use tokio::time::timeout;

use crate::engine::Engine;
use crate::running::{DIAL_SOCKET, Running};

/// The timeout of the browser, which has just answered.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of the response in bytes. Chromium's is 1.6 MB.
const MAX_BYTES: usize = 16 << 20;
/// The host, which Chromium checks, and the path.
const DESCRIPTION: (&str, &str) = ("127.0.0.1:9222", "/json/protocol");

/// The description, and the version of the browser that has it.
#[derive(Debug)]
pub(crate) struct Protocol {
    version: String,
    description: Bytes,
}

impl Engine {
    /// Returns the description of the DevTools protocol as JSON; `None` until a browser has started.
    #[must_use]
    pub fn protocol(&self) -> Option<Bytes> {
        self.0.protocol.lock().as_ref().map(|protocol| protocol.description.clone())
    }

    /// Reads the description from a new browser, if none of this version was read. A failure leaves the former one.
    pub(crate) async fn read_protocol(&self, running: &Running, version: &str) {
        if self.0.protocol.lock().as_ref().is_some_and(|protocol| protocol.version == version) {
            return;
        }
        let reading = timeout(TIMEOUT, read(running));
        match reading.await.unwrap_or(Err(ClientError::Timeout(TIMEOUT))) {
            Ok(description) => {
                let protocol = Protocol { version: version.to_owned(), description };
                *self.0.protocol.lock() = Some(protocol);
            }
            Err(error) => tracing::warn!(%error, "cannot read the description of the DevTools protocol"),
        }
    }
}

async fn read(running: &Running) -> Result<Bytes, ClientError> {
    let path = running.sandbox.listener_path(DIAL_SOCKET);
    let description: Value = client::read_json(path, Channel::Cdp, DESCRIPTION, MAX_BYTES).await?;
    if !description["domains"].is_array() {
        return Err(ClientError::Malformed("there are no domains in it".to_owned()));
    }
    Ok(description.to_string().into())
}
