//! BiDi over its own socket: messages are read until `session.new` has been bound *and* chromedriver has accepted it;
//! a refused one leaves the connection unbound, so the next must be read as well. After that bytes pass.

use std::{
    any::Any,
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use actix_web::{HttpResponse, web};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use url::Url;

use super::{
    capabilities::{self, Bidi},
    public_url,
};
use crate::relay::{
    ByteCounter, Channel, ClientHandshake, CloseReason, EndSignal, Ending, Limits, RelayBody, RelayError,
    RelayObserver, UnreadBytes, Upstream, WEBDRIVER_HOST, wire, with_upstream,
};

/// The longest message before the session is bound.
const MAX_MESSAGE: u64 = 1024 * 1024;
/// Before a session there is nothing long to say; errors carry a stack trace.
const MAX_ANSWER: u64 = 4 * MAX_MESSAGE;
/// How much is read from a client while a command of its is under way: enough to notice that it has gone.
const AHEAD: usize = 64 * 1024;
/// How long a client may take until its session is bound.
const BINDING_TIMEOUT: Duration = Duration::from_secs(60);

/// A client's BiDi connection without a session yet.
pub struct BidiRelay {
    /// The public `…/webdriver?jwt=…` address, for the answer to `session.new`.
    pub webdriver_url: Url,
    /// Ends the relay with a reason.
    pub end: EndSignal,
    /// What bounds it once it is bound.
    pub limits: Limits,
    /// Is told when the relay opens and ends.
    pub observer: Option<Box<dyn RelayObserver>>,
    /// Dropped when the relay is over, whatever ended it.
    pub guard: Box<dyn Any>,
}

impl BidiRelay {
    /// Makes our handshake with chromedriver on `upstream`, then answers the client's.
    ///
    /// # Errors
    /// [`RelayError`] when chromedriver's handshake fails; the client has no answer yet.
    pub async fn open(
        self,
        client: &ClientHandshake,
        payload: web::Payload,
        upstream: std::net::TcpStream,
    ) -> Result<HttpResponse, RelayError> {
        let mut upstream = Upstream::adopt(upstream)?;
        let from_upstream = with_upstream(&mut upstream, WEBDRIVER_HOST, "/session").await?;
        let binding = Binding {
            payload,
            upstream,
            ending: Ending { told: self.end.boxed(), bare: Channel::WebDriver.bare_end() },
            client_timeout: Box::pin(tokio::time::sleep(BINDING_TIMEOUT)),
            client: Messages::default(),
            chromedriver: Messages { buffer: from_upstream, ..Messages::default() },
            awaited: None,
            outgoing: BytesMut::new(),
            outbox: VecDeque::new(),
            webdriver_url: self.webdriver_url,
            limits: self.limits,
            meter: ByteCounter::open(Channel::WebDriver.label(), client.backlog(), self.observer),
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

/// What the client gets: first whole messages, then the relay's bytes.
fn chunks(phase: Phase) -> impl Stream<Item = io::Result<Bytes>> + Unpin {
    Box::pin(stream::unfold(phase, |mut phase| async move {
        loop {
            phase = match phase {
                Phase::Over => return None,
                Phase::Bound(mut relay) => return relay.next().await.map(|chunk| (chunk, Phase::Bound(relay))),
                Phase::Binding(mut binding) => match binding.step().await {
                    Step::Send(frame) => return Some((Ok(frame), Phase::Binding(binding))),
                    Step::Bound => Phase::Bound(Box::new(binding.bound())),
                    Step::End(reason) => return Some(binding.told(reason)),
                    Step::Orphaned => {
                        let reason = binding.last_word().await;
                        return Some(binding.told(reason));
                    }
                    Step::Gone => Phase::Over,
                },
            };
        }
    }))
}

enum Step {
    Send(Bytes),
    Bound,
    End(CloseReason),
    /// chromedriver's side just ended.
    Orphaned,
    Gone,
}

struct Binding {
    payload: web::Payload,
    upstream: Upstream,
    ending: Ending,
    client_timeout: Pin<Box<tokio::time::Sleep>>,
    client: Messages,
    chromedriver: Messages,
    /// The `id` of the `session.new` under way: while it stands, nothing more of the client's is looked at.
    awaited: Option<Value>,
    /// What chromedriver has not taken yet of a command: while there is any, nothing more of the client's is looked at.
    outgoing: BytesMut,
    outbox: VecDeque<Step>,
    webdriver_url: Url,
    limits: Limits,
    meter: ByteCounter,
    guard: Box<dyn Any>,
}

impl Binding {
    /// Until there is something for the client, or an end.
    async fn step(&mut self) -> Step {
        loop {
            if let Some(step) = self.outbox.pop_front() {
                return step;
            }
            if let Err(step) = self.work().await {
                return step;
            }
        }
    }

    /// Handles what is buffered, then waits for more. An error is the end.
    async fn work(&mut self) -> Result<(), Step> {
        if let Some(message) = self.chromedriver.next(MAX_ANSWER).map_err(Step::End)? {
            self.hear_chromedriver(message);
            return Ok(());
        }
        let free = self.awaited.is_none() && self.outgoing.is_empty();
        if free && let Some(message) = self.client.next(MAX_MESSAGE).map_err(Step::End)? {
            return self.hear_client(message);
        }
        tokio::select! {
            reason = self.ending.told.as_mut() => Err(Step::End(reason)),
            () = self.client_timeout.as_mut() => Err(Step::End(CloseReason::Policy)),
            moved = exchange(&mut self.upstream, &mut self.chromedriver.buffer, &mut self.outgoing) => {
                moved.map_err(|_| Step::Orphaned)
            }
            chunk = self.payload.next(), if free || self.client.buffer.len() < AHEAD => match chunk {
                Some(Ok(chunk)) => {
                    self.meter.count_from_client(chunk.len());
                    self.client.buffer.extend_from_slice(&chunk);
                    Ok(())
                }
                Some(Err(_)) | None => Err(Step::Gone),
            },
        }
    }

    fn hear_client(&mut self, message: Message) -> Result<(), Step> {
        if !message.masked {
            return Err(Step::End(CloseReason::Protocol));
        }
        match message.opcode {
            wire::TEXT => {
                self.meter.count_message();
                match parse(&message.payload) {
                    Ok(command) => self.command(command),
                    Err(refusal) => self.answer(&refusal),
                }
                Ok(())
            }
            wire::PING => {
                self.say(wire::PONG, &message.payload);
                Ok(())
            }
            wire::PONG => Ok(()),
            wire::CLOSE if !may_be_answered(&message.payload) => Err(Step::End(CloseReason::Protocol)),
            wire::CLOSE => {
                self.meter.closed();
                self.say(wire::CLOSE, &message.payload);
                self.outbox.push_back(Step::Gone);
                Ok(())
            }
            _ => Err(Step::End(CloseReason::Protocol)),
        }
    }

    /// Passes a command on. It is written anew from what we parsed, so that chromedriver cannot read it differently.
    fn command(&mut self, mut command: Value) {
        if command.get("method").and_then(Value::as_str) == Some("session.new") {
            match capabilities::bind(&command["params"], Bidi::Forced) {
                Ok(bound) => command["params"] = bound,
                Err(bad) => {
                    return self.answer(&refusal(command.get("id"), "invalid argument", &bad.to_string()));
                }
            }
            self.awaited = Some(command["id"].clone());
        }
        self.outgoing.extend_from_slice(&wire::encode(wire::TEXT, command.to_string().as_bytes(), Some(mask())));
    }

    fn hear_chromedriver(&mut self, message: Message) {
        if message.opcode != wire::TEXT {
            // Its pings and its close frame are for the client as much as for us.
            self.say(message.opcode, &message.payload);
            if message.opcode == wire::CLOSE {
                self.meter.closed();
                self.outbox.push_back(Step::Gone);
            }
            return;
        }
        let mut answer = serde_json::from_slice::<Value>(&message.payload).unwrap_or_default();
        if self.awaited.is_none() || answer.get("id") != self.awaited.as_ref() {
            self.say(wire::TEXT, &message.payload);
            return;
        }
        self.awaited = None;
        let accepted = answer.get("type").and_then(Value::as_str) == Some("success");
        if let Some(result) = answer.get_mut("result") {
            public_url::rewrite(result, &self.webdriver_url);
        }
        self.answer(&answer);
        if accepted {
            self.outbox.push_back(Step::Bound);
        }
    }

    fn answer(&mut self, answer: &Value) {
        self.say(wire::TEXT, answer.to_string().as_bytes());
    }

    fn say(&mut self, opcode: u8, payload: &[u8]) {
        if opcode < wire::CLOSE {
            self.meter.count_message();
        }
        self.outbox.push_back(Step::Send(wire::encode(opcode, payload, None)));
    }

    /// The session's own reason, if it comes soon.
    async fn last_word(&mut self) -> CloseReason {
        let told = tokio::time::timeout(self.limits.crash_grace, self.ending.told.as_mut()).await;
        told.unwrap_or(self.ending.bare)
    }

    fn told(&self, reason: CloseReason) -> (io::Result<Bytes>, Phase) {
        self.meter.ended(reason, true);
        (Ok(reason.frame()), Phase::Over)
    }

    fn bound(self) -> RelayBody {
        let leftovers = UnreadBytes { from_client: self.client.buffer, from_upstream: self.chromedriver.buffer };
        RelayBody::new(self.payload, self.upstream, leftovers, self.ending, self.limits, self.meter, self.guard)
    }
}

/// Whether a close frame says what one may say, and can be answered with the same: nothing, or a code and a reason.
fn may_be_answered(payload: &[u8]) -> bool {
    match payload.split_first_chunk() {
        Some((code, reason)) => wire::may_be_sent(u16::from_be_bytes(*code)) && std::str::from_utf8(reason).is_ok(),
        None => payload.is_empty(),
    }
}

/// Moves bytes in one direction or the other. Stopping it half-way loses none.
async fn exchange(upstream: &mut Upstream, read: &mut BytesMut, outgoing: &mut BytesMut) -> io::Result<()> {
    poll_fn(|cx| {
        let written = if outgoing.is_empty() { Poll::Pending } else { pin!(upstream.write_buf(outgoing)).poll(cx) };
        let moved = if written.is_ready() { written } else { pin!(upstream.read_buf(read)).poll(cx) };
        match moved {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            moved => moved.map_ok(drop),
        }
    })
    .await
}

/// A client's text as a command, or the answer that refuses it.
fn parse(text: &[u8]) -> Result<Value, Value> {
    let command: Value = serde_json::from_slice(text)
        .map_err(|error| refusal(None, "invalid argument", &format!("not a command: {error}")))?;
    let id = command.get("id").filter(|id| id.is_u64());
    if id.is_none() || !command.get("method").is_some_and(Value::is_string) {
        return Err(refusal(id, "invalid argument", "a command has an `id`, a whole number, and a `method`"));
    }
    Ok(command)
}

fn refusal(id: Option<&Value>, error: &str, message: &str) -> Value {
    json!({ "type": "error", "id": id, "error": error, "message": message })
}

/// RFC 6455 wants masks that nobody can foresee; the handshake's key generator is at hand.
fn mask() -> [u8; 4] {
    let random = STANDARD.decode(generate_key()).unwrap_or_default();
    random.first_chunk().copied().unwrap_or_default()
}

/// A whole message, or a control frame.
struct Message {
    opcode: u8,
    masked: bool,
    payload: BytesMut,
}

/// Puts messages together out of one direction's bytes.
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
                (Some(mut begun), wire::CONTINUATION) => {
                    begun.payload.unsplit(payload);
                    begun.masked &= masked;
                    begun
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
