//! A client of the browser's debugging protocol over one WebSocket.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

pub(crate) use crate::endpoint::Endpoint;
use crate::endpoint::Stream;
use crate::reply::Refusal;
use casement_agent_protocol::{ErrorCode, MAX_IMAGE_BYTES};

/// The maximum number of queued outgoing calls, and of unread notices.
const MAX_QUEUED: usize = 256;

/// The message of Chromium for a session that it does not know, or no more.
const UNKNOWN_SESSION: &str = "Session with given id not found.";

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdpError {
    #[error("the debugging connection could not be opened: {0}")]
    Connect(String),
    /// Nothing listens at the socket of a remote browser: the server is away.
    #[error("nothing listens at the socket of the remote browser")]
    NotServed,
    #[error("the debugging connection is closed")]
    Closed,
    #[error("{method} was not answered within {} ms", .after.as_millis())]
    Timeout { method: &'static str, after: Duration },
    /// The page has an open dialog or has crashed; the text says which.
    #[error("{0}")]
    Blocked(String),
    #[error("{method} was refused: {message}")]
    Refused { method: &'static str, message: String },
}

impl CdpError {
    /// Returns true if the page of the call's session is closed.
    pub(crate) fn is_of_closed_page(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message == UNKNOWN_SESSION)
    }
}

/// A message that the browser sends without a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Notice {
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: Value,
    /// The session of the attached page.
    #[serde(rename = "sessionId")]
    pub(crate) session: Option<String>,
}

#[derive(Deserialize)]
struct Incoming {
    #[serde(rename = "sessionId")]
    session: Option<String>,
    id: Option<u64>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    result: Value,
    error: Option<ErrorReply>,
}

#[derive(Deserialize)]
struct ErrorReply {
    message: String,
}

/// The result of a call, or the browser's error.
type Reply = Result<Value, String>;
/// The callers that wait for a reply, by the number of their call.
type Waiters = Arc<Mutex<HashMap<u64, oneshot::Sender<Reply>>>>;

/// An open debugging connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Cdp {
    outgoing: mpsc::Sender<String>,
    waiters: Waiters,
    next_id: AtomicU64,
}

/// A call whose reply has not arrived. Dropping it discards the reply.
#[derive(Debug)]
pub(crate) struct PendingCall {
    id: u64,
    method: &'static str,
    reply: oneshot::Receiver<Reply>,
    waiters: Waiters,
}

impl PendingCall {
    async fn reply(mut self) -> Result<Value, CdpError> {
        match (&mut self.reply).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(message)) => Err(CdpError::Refused { method: self.method, message }),
            Err(_) => Err(CdpError::Closed),
        }
    }

    /// Waits for the reply.
    pub(crate) async fn within(self, within: Duration) -> Result<Value, CdpError> {
        let method = self.method;
        tokio::time::timeout(within, self.reply()).await.unwrap_or(Err(CdpError::Timeout { method, after: within }))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.waiters.lock().remove(&self.id);
    }
}

impl Cdp {
    /// Connects to the browser.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<(Self, mpsc::Receiver<Notice>), CdpError> {
        let stream = endpoint.open().await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused if endpoint.is_remote() => CdpError::NotServed,
            _ => CdpError::Connect(error.to_string()),
        })?;
        // Small buffers, because one such connection stays open per session. A screenshot is one large message.
        let config = WebSocketConfig::default()
            .read_buffer_size(16 << 10)
            .write_buffer_size(0)
            .max_message_size(Some(MAX_IMAGE_BYTES * 3 / 2))
            .max_frame_size(Some(MAX_IMAGE_BYTES * 3 / 2));
        let url = format!("ws://{}{}", endpoint.host(), endpoint.path());
        let (socket, _) = tokio_tungstenite::client_async_with_config(url, stream, Some(config))
            .await
            .map_err(|e| CdpError::Connect(e.to_string()))?;
        let (outgoing, to_send) = mpsc::channel(MAX_QUEUED);
        let (notices, events) = mpsc::channel(MAX_QUEUED);
        let waiters = Waiters::default();
        tokio::spawn(pump(socket, to_send, Arc::clone(&waiters), notices));
        Ok((Self { outgoing, waiters, next_id: AtomicU64::new(1) }, events))
    }

    /// Like [`connect`](Self::connect), with a timeout.
    pub(crate) async fn connect_within(
        endpoint: &Endpoint,
        within: Duration,
    ) -> Result<(Self, mpsc::Receiver<Notice>), CdpError> {
        let late = Err(CdpError::Timeout { method: "connect", after: within });
        tokio::time::timeout(within, Self::connect(endpoint)).await.unwrap_or(late)
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&self) {
        self.outgoing.closed().await;
    }

    /// Attaches to a target and returns the id of the session.
    pub(crate) async fn attach(&self, target: &str, within: Duration) -> Result<String, CdpError> {
        let params = json!({ "targetId": target, "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", params, within).await?;
        Ok(text(&attached["sessionId"]).to_owned())
    }

    /// Calls `method`, in `session` if one is given, and waits for the reply.
    pub(crate) async fn call(
        &self,
        session: Option<&str>,
        method: &'static str,
        params: Value,
        within: Duration,
    ) -> Result<Value, CdpError> {
        let call = async { self.begin(session, method, &params).await?.reply().await };
        tokio::time::timeout(within, call).await.unwrap_or(Err(CdpError::Timeout { method, after: within }))
    }

    /// Calls `method` without waiting for the reply.
    pub(crate) async fn begin(
        &self,
        session: Option<&str>,
        method: &'static str,
        params: &Value,
    ) -> Result<PendingCall, CdpError> {
        let (sender, reply) = oneshot::channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.waiters.lock().insert(id, sender);
        let pending = PendingCall { id, method, reply, waiters: Arc::clone(&self.waiters) };
        self.post(id, session, method, params).await?;
        Ok(pending)
    }

    /// Calls `method` and discards the reply.
    pub(crate) async fn send(&self, session: Option<&str>, method: &str, params: Value) -> Result<(), CdpError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.post(id, session, method, &params).await
    }

    async fn post(&self, id: u64, session: Option<&str>, method: &str, params: &Value) -> Result<(), CdpError> {
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = Value::from(session);
        }
        self.outgoing.send(message.to_string()).await.map_err(|_| CdpError::Closed)
    }
}

/// Returns a JSON string, or an empty one for any other value.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn pump(
    socket: WebSocketStream<Stream>,
    mut to_send: mpsc::Receiver<String>,
    waiters: Waiters,
    notices: mpsc::Sender<Notice>,
) {
    let (mut sink, mut stream) = socket.split();
    loop {
        tokio::select! {
            text = to_send.recv() => match text {
                Some(text) => if sink.send(Message::text(text)).await.is_err() { break },
                None => break,
            },
            message = stream.next() => match message {
                Some(Ok(Message::Text(text))) => dispatch(text.as_str(), &waiters, &notices),
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
    // The remaining callers receive an error.
    waiters.lock().clear();
}

fn dispatch(text: &str, waiters: &Waiters, notices: &mpsc::Sender<Notice>) {
    let Ok(incoming) = serde_json::from_str::<Incoming>(text) else { return };
    if let Some(id) = incoming.id {
        if let Some(waiter) = waiters.lock().remove(&id) {
            let reply = incoming.error.map_or(Ok(incoming.result), |error| Err(error.message));
            // The caller may have stopped waiting.
            drop(waiter.send(reply));
        }
    } else if let Some(method) = incoming.method {
        // A notice is discarded if the queue is full. Notices are hints, so that a lost one costs a repeated call.
        drop(notices.try_send(Notice { method, params: incoming.params, session: incoming.session }));
    }
}

impl From<CdpError> for io::Error {
    fn from(error: CdpError) -> Self {
        Self::other(error)
    }
}

impl From<CdpError> for Refusal {
    fn from(error: CdpError) -> Self {
        let code = match error {
            CdpError::Timeout { .. } | CdpError::Closed | CdpError::Connect(_) | CdpError::NotServed => {
                ErrorCode::BrowserHung
            }
            CdpError::Blocked(_) => ErrorCode::InvalidState,
            CdpError::Refused { .. } => ErrorCode::Internal,
        };
        Self::new(code, error)
    }
}
