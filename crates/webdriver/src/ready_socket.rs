//! The CDP WebSocket of a session that is opened before a client needs it. A Grid opens it in tens of milliseconds, over
//! its hub and its node.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use http::HeaderValue;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};

use crate::cdp::{Head, Refusal};
use crate::dial::{CONNECT_TIMEOUT, GridStream};
use crate::engine::WebDriverEngine;
use crate::record::RemoteSession;

impl WebDriverEngine {
    /// Opens the CDP WebSocket of a tracked session for [`Self::take_ready_socket`]. A failure has no effect: the client
    /// then opens its own.
    pub async fn prepare_socket(&self, session: &RemoteSession) {
        let opening = timeout(self.client.command_timeout() + CONNECT_TIMEOUT, self.open_socket(session));
        let Ok(Ok(socket)) = opening.await else {
            tracing::debug!(engine = %self.name(), browser = %session.browser, "no CDP connection in advance");
            return;
        };
        if let Some(live) = self.state.lock().live.get_mut(&session.browser)
            && live.session.id == session.id
        {
            live.ready_socket = Some(socket);
        }
    }

    /// Returns the WebSocket that [`Self::prepare_socket`] opened, once: the handshake is done, and nothing was sent since.
    /// `None` if there is none that the server still holds open.
    pub async fn take_ready_socket(&self, session: &RemoteSession) -> Option<GridStream> {
        let mut socket = {
            let mut state = self.state.lock();
            let live = state.live.get_mut(&session.browser).filter(|live| live.session.id == session.id)?;
            live.ready_socket.take()?
        };
        is_silent(&mut socket).await.then_some(socket)
    }

    async fn open_socket(&self, session: &RemoteSession) -> Result<GridStream, Refusal> {
        let key = generate_key();
        let value = HeaderValue::from_str(&key).map_err(|_| Refusal::Bad)?;
        let version = HeaderValue::from_static("13");
        let request = Head::websocket(vec![("sec-websocket-key", value), ("sec-websocket-version", version)]);
        let (grid, response) = self.open_at_server(&request, session).await?;
        let accept = derive_accept_key(key.as_bytes());
        let is_accepted = response.handshake().any(|(name, value)| name == "sec-websocket-accept" && *value == accept);
        let has_extensions = response.handshake().any(|(name, _)| name == "sec-websocket-extensions");
        if is_accepted && !has_extensions && response.rest.is_empty() { Ok(grid) } else { Err(Refusal::Server) }
    }
}

/// Returns whether the server has neither sent nor closed anything.
async fn is_silent(socket: &mut GridStream) -> bool {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    poll_fn(|context| Poll::Ready(Pin::new(&mut *socket).poll_read(context, &mut buffer).is_pending())).await
}
