//! BiDi connections without a classic session. Messages are parsed until a `session.new` was bound *and* chromedriver
//! accepted it; after a refused one the connection is still unbound, so further messages are parsed. After that, bytes
//! are forwarded unparsed, except the commands that name files.
//!
//! The session of a remote browser runs already: the messages before `session.new` are answered here.

use std::{
    any::Any,
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use actix_web::{HttpResponse, web};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use casement_domain::untrusted_json;
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use url::Url;

use super::{
    capabilities::{self, Bidi},
    public_url,
    remote_bidi::RemoteBidi,
};
use crate::relay::{
    BrowserConnection, ByteCounter, Channel, ClientHandshake, CloseReason, EndSignal, Ending, FileCommands, Limits,
    RelayBody, RelayError, RelayObserver, SessionFiles, Target, UnreadBytes, Upstream, upgrade_upstream, wire,
};

/// The maximum size of a message before the session is bound, in bytes.
const MAX_MESSAGE_BYTES: u64 = 1024 * 1024;
/// The maximum size of a response before the session is bound, in bytes; errors contain a stack trace.
const MAX_RESPONSE_BYTES: u64 = 4 * MAX_MESSAGE_BYTES;
/// The maximum number of bytes that are read from a client while one of its commands runs. Reading detects a
/// disconnect.
const MAX_READ_AHEAD_BYTES: usize = 64 * 1024;
/// The maximum time until the session of a client is bound.
const BINDING_TIMEOUT: Duration = Duration::from_secs(60);

/// A client's BiDi connection that has no session yet.
pub struct BidiRelay {
    /// The public `…/webdriver?jwt=…` URL, for the response to `session.new`.
    pub webdriver_url: Url,
    /// Ends the relay with a reason.
    pub end: EndSignal,
    /// The session of a remote browser; `None`: the browser is one of this program.
    pub remote: Option<RemoteBidi>,
    /// The bounds of the relay once it is bound.
    pub limits: Limits,
    /// The files of the session, for the commands that name some. Default: commands are not looked at.
    pub files: Option<Arc<dyn SessionFiles>>,
    /// Observes the opening and the end of the relay.
    pub observer: Option<Box<dyn RelayObserver>>,
    /// Dropped when the relay ends.
    pub guard: Box<dyn Any>,
}

impl BidiRelay {
    /// Performs the handshake with chromedriver or the server of a remote browser, then accepts the client's.
    ///
    /// # Errors
    /// [`RelayError`] if that handshake fails; no response was sent to the client yet.
    pub async fn open(
        self,
        client: &ClientHandshake,
        payload: web::Payload,
        connection: BrowserConnection,
    ) -> Result<HttpResponse, RelayError> {
        let BrowserConnection { stream, endpoint, .. } = connection;
        let channel = if self.remote.is_some() { Channel::Bidi } else { Channel::WebDriver };
        let mut upstream = Upstream::adopt(stream)?;
        let target = Target::of(endpoint.as_ref(), channel, "/session");
        let from_upstream = upgrade_upstream(&mut upstream, &target).await?;
        let default_reason = channel.default_close_reason(self.remote.is_some());
        let binding = Binding {
            payload,
            upstream,
            ending: Ending { session_end: self.end.boxed(), default_reason },
            client_timeout: Box::pin(tokio::time::sleep(BINDING_TIMEOUT)),
            client: Messages::default(),
            chromedriver: Messages { buffer: from_upstream, ..Messages::default() },
            pending_session: None,
            outgoing: BytesMut::new(),
            steps: VecDeque::new(),
            webdriver_url: self.webdriver_url,
            remote: self.remote,
            limits: self.limits,
            files: self.files.map(|files| FileCommands::new(channel, files)),
            counter: ByteCounter::open(channel.label(), client.backlog(), self.observer),
            guard: self.guard,
        };
        Ok(client.accept().streaming(chunks(Phase::Binding(Box::new(binding)))))
    }
}

enum Phase {
    Binding(Box<Binding>),
    Bound(Box<RelayBody>),
    Over,
}

/// Streams the bytes for the client: first whole messages, then the bytes of the relay.
fn chunks(phase: Phase) -> impl Stream<Item = io::Result<Bytes>> + Unpin {
    Box::pin(stream::unfold(phase, |mut phase| async move {
        loop {
            phase = match phase {
                Phase::Over => return None,
                Phase::Bound(mut relay) => return relay.next().await.map(|chunk| (chunk, Phase::Bound(relay))),
                Phase::Binding(mut binding) => match binding.step().await {
                    Step::Send(frame) => return Some((Ok(frame), Phase::Binding(binding))),
                    Step::Bound => Phase::Bound(Box::new(binding.bound())),
                    Step::End(reason) => return Some(binding.close(reason)),
                    Step::UpstreamEnded => {
                        let reason = binding.end_reason().await;
                        return Some(binding.close(reason));
                    }
                    Step::ClientEnded => Phase::Over,
                },
            };
        }
    }))
}

enum Step {
    Send(Bytes),
    Bound,
    End(CloseReason),
    /// chromedriver closed its side without a close frame.
    UpstreamEnded,
    ClientEnded,
}

struct Binding {
    payload: web::Payload,
    upstream: Upstream,
    ending: Ending,
    client_timeout: Pin<Box<tokio::time::Sleep>>,
    client: Messages,
    chromedriver: Messages,
    /// The `id` of a pending `session.new`. While it is set, no further message of the client is handled.
    pending_session: Option<Value>,
    /// The bytes of commands that chromedriver has not accepted yet. Unless empty, no further message of the client is
    /// handled.
    outgoing: BytesMut,
    steps: VecDeque<Step>,
    webdriver_url: Url,
    remote: Option<RemoteBidi>,
    limits: Limits,
    files: Option<FileCommands>,
    counter: ByteCounter,
    guard: Box<dyn Any>,
}

impl Binding {
    /// Runs until there is a message for the client, or an end.
    async fn step(&mut self) -> Step {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            if let Err(step) = self.advance().await {
                return step;
            }
        }
    }

    /// Handles a buffered message, or waits for more bytes. An error ends the connection.
    async fn advance(&mut self) -> Result<(), Step> {
        // What a remote browser's server sends belongs to its session, which the client does not have yet.
        if self.remote.is_none()
            && let Some(message) = self.chromedriver.next(MAX_RESPONSE_BYTES).map_err(Step::End)?
        {
            self.handle_upstream(message);
            return Ok(());
        }
        let is_idle = self.pending_session.is_none() && self.outgoing.is_empty();
        if is_idle && let Some(message) = self.client.next(MAX_MESSAGE_BYTES).map_err(Step::End)? {
            return self.handle_client(message);
        }
        let reads_upstream = self.remote.is_none() || self.chromedriver.buffer.len() < MAX_READ_AHEAD_BYTES;
        tokio::select! {
            reason = self.ending.session_end.as_mut() => Err(Step::End(reason)),
            () = self.client_timeout.as_mut() => Err(Step::End(CloseReason::Policy)),
            result = exchange(&mut self.upstream, &mut self.chromedriver.buffer, &mut self.outgoing), if reads_upstream => {
                result.map_err(|_| Step::UpstreamEnded)
            }
            chunk = self.payload.next(), if is_idle || self.client.buffer.len() < MAX_READ_AHEAD_BYTES => match chunk {
                Some(Ok(chunk)) => {
                    self.counter.count_from_client(chunk.len());
                    self.client.buffer.extend_from_slice(&chunk);
                    Ok(())
                }
                Some(Err(_)) | None => Err(Step::ClientEnded),
            },
        }
    }

    fn handle_client(&mut self, message: Message) -> Result<(), Step> {
        if !message.masked {
            return Err(Step::End(CloseReason::Protocol));
        }
        match message.opcode {
            wire::TEXT => {
                self.counter.count_message();
                match parse(&message.payload) {
                    Ok(command) => self.command(command),
                    Err(response) => self.send_json(&response),
                }
                Ok(())
            }
            wire::PING => {
                self.send(wire::PONG, &message.payload);
                Ok(())
            }
            wire::PONG => Ok(()),
            wire::CLOSE if !is_valid_close(&message.payload) => Err(Step::End(CloseReason::Protocol)),
            wire::CLOSE => {
                self.counter.closed();
                self.send(wire::CLOSE, &message.payload);
                self.steps.push_back(Step::ClientEnded);
                Ok(())
            }
            wire::BINARY => Err(Step::End(CloseReason::UnsupportedData)),
            _ => Err(Step::End(CloseReason::Protocol)),
        }
    }

    /// Answers a command for a remote browser, or forwards it, serialized from the parsed value, so that chromedriver cannot interpret it differently.
    fn command(&mut self, mut command: Value) {
        if let Some(remote) = &self.remote {
            let (answer, is_bound) = remote.answer(&command, &self.webdriver_url);
            self.send_json(&answer);
            self.steps.extend(is_bound.then_some(Step::Bound));
            return;
        }
        if command.get("method").and_then(Value::as_str) == Some("session.new") {
            match capabilities::bind(&command["params"], Bidi::Forced) {
                Ok(bound) => command["params"] = bound,
                Err(bad) => {
                    return self.send_json(&error_response(command.get("id"), "invalid argument", &bad.to_string()));
                }
            }
            self.pending_session = Some(command["id"].clone());
        }
        self.outgoing.extend_from_slice(&wire::encode(wire::TEXT, command.to_string().as_bytes(), Some(mask())));
    }

    fn handle_upstream(&mut self, message: Message) {
        if message.opcode != wire::TEXT {
            // chromedriver's pings and its close frame are forwarded to the client.
            self.send(message.opcode, &message.payload);
            if message.opcode == wire::CLOSE {
                self.counter.closed();
                self.steps.push_back(Step::ClientEnded);
            }
            return;
        }
        let mut response: Value = untrusted_json::parse(&message.payload).unwrap_or_default();
        if self.pending_session.is_none() || response.get("id") != self.pending_session.as_ref() {
            self.send(wire::TEXT, &message.payload);
            return;
        }
        self.pending_session = None;
        let is_success = response.get("type").and_then(Value::as_str) == Some("success");
        if let Some(result) = response.get_mut("result") {
            public_url::rewrite(result, &self.webdriver_url);
        }
        self.send_json(&response);
        if is_success {
            self.steps.push_back(Step::Bound);
        }
    }

    fn send_json(&mut self, value: &Value) {
        self.send(wire::TEXT, value.to_string().as_bytes());
    }

    fn send(&mut self, opcode: u8, payload: &[u8]) {
        if opcode < wire::CLOSE {
            self.counter.count_message();
        }
        self.steps.push_back(Step::Send(wire::encode(opcode, payload, None)));
    }

    /// Returns the end reason of the session; the default reason if the session reports none within the crash grace.
    async fn end_reason(&mut self) -> CloseReason {
        let reason = tokio::time::timeout(self.limits.crash_grace, self.ending.session_end.as_mut()).await;
        reason.unwrap_or(self.ending.default_reason)
    }

    fn close(&self, reason: CloseReason) -> (io::Result<Bytes>, Phase) {
        self.counter.ended(reason, true);
        (Ok(reason.frame()), Phase::Over)
    }

    fn bound(self) -> RelayBody {
        let unread = UnreadBytes { from_client: self.client.buffer, from_upstream: self.chromedriver.buffer };
        RelayBody::new(self.payload, self.upstream, unread, self.ending, self.limits, self.counter, self.guard)
            .with(self.files)
            .of_remote(self.remote.is_some())
    }
}

/// Returns whether a close frame is valid and can be answered with the same payload: empty, or a code and a reason.
fn is_valid_close(payload: &[u8]) -> bool {
    match payload.split_first_chunk() {
        Some((code, reason)) => wire::may_be_sent(u16::from_be_bytes(*code)) && std::str::from_utf8(reason).is_ok(),
        None => payload.is_empty(),
    }
}

/// Writes outgoing bytes or reads incoming ones, whichever is possible first. Cancel-safe.
async fn exchange(upstream: &mut Upstream, read: &mut BytesMut, outgoing: &mut BytesMut) -> io::Result<()> {
    poll_fn(|cx| {
        let written = if outgoing.is_empty() { Poll::Pending } else { pin!(upstream.write_buf(outgoing)).poll(cx) };
        let result = if written.is_ready() { written } else { pin!(upstream.read_buf(read)).poll(cx) };
        match result {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            result => result.map_ok(drop),
        }
    })
    .await
}

/// Parses a client's text as a command, or returns the error response.
fn parse(text: &[u8]) -> Result<Value, Value> {
    let command: Value = untrusted_json::parse(text)
        .map_err(|error| error_response(None, "invalid argument", &format!("not a command: {error}")))?;
    let id = command.get("id").filter(|id| id.is_u64());
    if id.is_none() || !command.get("method").is_some_and(Value::is_string) {
        return Err(error_response(id, "invalid argument", "a command has an `id`, a whole number, and a `method`"));
    }
    Ok(command)
}

pub(super) fn error_response(id: Option<&Value>, error: &str, message: &str) -> Value {
    json!({ "type": "error", "id": id, "error": error, "message": message })
}

/// Returns an unpredictable mask, which RFC 6455 requires, from the handshake's key generator.
fn mask() -> [u8; 4] {
    let random = STANDARD.decode(generate_key()).unwrap_or_default();
    random.first_chunk().copied().unwrap_or_default()
}

/// A whole message or a control frame.
struct Message {
    opcode: u8,
    masked: bool,
    payload: BytesMut,
}

/// Assembles messages from the bytes of one direction.
#[derive(Default)]
struct Messages {
    buffer: BytesMut,
    partial: Option<Message>,
}

impl Messages {
    fn next(&mut self, limit: u64) -> Result<Option<Message>, CloseReason> {
        while let Some(frame) = wire::decode(&mut self.buffer, limit)? {
            let (opcode, masked, payload) = (frame.opcode, frame.masked, frame.payload);
            if opcode >= wire::CLOSE {
                return Ok(Some(Message { opcode, masked, payload }));
            }
            let message = match (self.partial.take(), opcode) {
                (None, wire::TEXT | wire::BINARY) => Message { opcode, masked, payload },
                (Some(mut partial), wire::CONTINUATION) => {
                    partial.payload.unsplit(payload);
                    partial.masked &= masked;
                    partial
                }
                _ => return Err(CloseReason::Protocol),
            };
            if message.payload.len() as u64 > limit {
                return Err(CloseReason::MessageTooBig);
            }
            if frame.fin {
                return Ok(Some(message));
            }
            self.partial = Some(message);
        }
        Ok(None)
    }
}
