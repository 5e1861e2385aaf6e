//! A small client of the browser's debugging protocol: one WebSocket, calls answered by number, the few events we need.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use casement_agent_protocol::MAX_IMAGE_BYTES;

/// Calls that may wait to be sent, and events that may wait to be read.
const QUEUE: usize = 256;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CdpError {
    #[error("the debugging connection could not be opened: {0}")]
    Connect(String),
    #[error("the debugging connection is closed")]
    Closed,
    #[error("{method} was not answered within {} ms", .after.as_millis())]
    Timeout { method: &'static str, after: Duration },
    #[error("{0}")]
    Dialog(String),
    #[error("{method} was refused: {message}")]
    Refused { method: &'static str, message: String },
}

/// Something the browser says unasked.
#[derive(Debug, Deserialize)]
pub(crate) struct Notice {
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: Value,
    /// Of which attached page.
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
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

type Answer = Result<Value, String>;
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>;

/// An open debugging connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Cdp {
    outgoing: mpsc::Sender<String>,
    waiting: Waiting,
    next: AtomicU64,
}

/// A call whose answer is still to come. Dropping it lets the answer go.
#[derive(Debug)]
pub(crate) struct Pending {
    id: u64,
    method: &'static str,
    answered: oneshot::Receiver<Answer>,
    waiting: Waiting,
}

impl Pending {
    async fn answer(mut self) -> Result<Value, CdpError> {
        match (&mut self.answered).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(message)) => Err(CdpError::Refused { method: self.method, message }),
            Err(_) => Err(CdpError::Closed),
        }
    }

    /// Waits for the answer.
    pub(crate) async fn within(self, within: Duration) -> Result<Value, CdpError> {
        let method = self.method;
        tokio::time::timeout(within, self.answer()).await.unwrap_or(Err(CdpError::Timeout { method, after: within }))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        lock(&self.waiting).remove(&self.id);
    }
}

impl Cdp {
    /// Opens the WebSocket at `path` on the sandbox's loopback.
    pub(crate) async fn connect(port: u16, path: &str) -> Result<(Self, mpsc::Receiver<Notice>), CdpError> {
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.map_err(|e| CdpError::Connect(e.to_string()))?;
        tcp.set_nodelay(true).map_err(|e| CdpError::Connect(e.to_string()))?;
        // Idle memory counts, one such connection stays open per session: small buffers. A picture is one large message.
        let config = WebSocketConfig::default()
            .read_buffer_size(16 << 10)
            .write_buffer_size(0)
            .max_message_size(Some(MAX_IMAGE_BYTES * 3 / 2))
            .max_frame_size(Some(MAX_IMAGE_BYTES * 3 / 2));
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tokio_tungstenite::client_async_with_config(url, tcp, Some(config))
            .await
            .map_err(|e| CdpError::Connect(e.to_string()))?;
        let (outgoing, to_send) = mpsc::channel(QUEUE);
        let (notices, events) = mpsc::channel(QUEUE);
        let waiting = Waiting::default();
        tokio::spawn(pump(socket, to_send, Arc::clone(&waiting), notices));
        Ok((Self { outgoing, waiting, next: AtomicU64::new(1) }, events))
    }

    /// Calls `method`, in `session` where one is given, and waits for the answer.
    pub(crate) async fn call(
        &self,
        session: Option<&str>,
        method: &'static str,
        params: Value,
        within: Duration,
    ) -> Result<Value, CdpError> {
        let called = async { self.begin(session, method, &params).await?.answer().await };
        tokio::time::timeout(within, called).await.unwrap_or(Err(CdpError::Timeout { method, after: within }))
    }

    /// Calls `method`, and leaves it to the caller when to wait for the answer.
    pub(crate) async fn begin(
        &self,
        session: Option<&str>,
        method: &'static str,
        params: &Value,
    ) -> Result<Pending, CdpError> {
        let (answer, answered) = oneshot::channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.waiting).insert(id, answer);
        let pending = Pending { id, method, answered, waiting: Arc::clone(&self.waiting) };
        self.post(id, session, method, params).await?;
        Ok(pending)
    }

    /// Calls `method` and lets the answer go.
    pub(crate) async fn report(&self, session: Option<&str>, method: &str, params: Value) -> Result<(), CdpError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
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

fn lock(waiting: &Waiting) -> parking_lot::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
    waiting.lock()
}

async fn pump(
    socket: WebSocketStream<TcpStream>,
    mut to_send: mpsc::Receiver<String>,
    waiting: Waiting,
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
                Some(Ok(Message::Text(text))) => dispatch(text.as_str(), &waiting, &notices),
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
    // Whoever still waits learns that no answer will come.
    lock(&waiting).clear();
}

fn dispatch(text: &str, waiting: &Waiting, notices: &mpsc::Sender<Notice>) {
    let Ok(incoming) = serde_json::from_str::<Incoming>(text) else { return };
    if let Some(id) = incoming.id {
        if let Some(answer) = lock(waiting).remove(&id) {
            let result = incoming.error.map_or(Ok(incoming.result), |refusal| Err(refusal.message));
            // The caller may have given up: nobody to tell.
            drop(answer.send(result));
        }
    } else if let Some(method) = incoming.method {
        // Full means that nobody reads: the events we use are hints, losing one costs a repeated call.
        drop(notices.try_send(Notice { method, params: incoming.params, session: incoming.session }));
    }
}

impl From<CdpError> for io::Error {
    fn from(error: CdpError) -> Self {
        Self::other(error)
    }
}
