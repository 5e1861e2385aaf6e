//! The requests of one connection: whether a handler works on one, what is left of its body, and the response that is being
//! sent.

use std::{
    cell::{Cell, RefCell},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::header,
};
use bytes::Bytes;

/// The maximum size of a part of a body that is copied for the socket at a time. The HTTP layer copies a whole part, whatever
/// the client has read.
const PART_BYTES: usize = 32 << 10;

/// Marks a response whose body is shared by all responses like it, so that it occupies no memory of its own.
pub(crate) struct SharedBytes;

/// The body that the head of a request announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestBody {
    Bytes(u64),
    /// Parts, the last of which is marked.
    Chunks,
    /// Whatever follows.
    Stream,
}

impl RequestBody {
    /// Reads the headers as the parser does.
    fn of(request: &ServiceRequest) -> Self {
        let value = |name| request.headers().get(name)?.to_str().ok().map(str::trim);
        if value(header::TRANSFER_ENCODING).is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return Self::Chunks;
        }
        if request.method() == actix_web::http::Method::CONNECT
            || value(header::UPGRADE).is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
        {
            return Self::Stream;
        }
        Self::Bytes(value(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()).unwrap_or_default())
    }
}

/// Whether a handler works on a request of the connection, the number of requests, and what of a response is not sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveRequests(Rc<State>);

#[derive(Debug, Default)]
struct State {
    is_active: Cell<bool>,
    /// The body of the newest request; `None` before the first one.
    body: Cell<Option<RequestBody>>,
    /// Who waits until nothing is worked on and nothing is sent.
    waiting: RefCell<Option<Waker>>,
    count: Cell<u64>,
    /// The number of bodies that are being sent.
    bodies: Cell<u32>,
    body_bytes: Cell<usize>,
}

impl ActiveRequests {
    /// Notes that a handler begins to work on a request.
    pub(crate) fn begin(&self, request: &ServiceRequest) {
        self.0.is_active.set(true);
        self.0.body.set(Some(RequestBody::of(request)));
        self.0.count.set(self.count() + 1);
    }

    /// Notes that the handler has responded.
    pub(crate) fn end(&self) {
        self.0.is_active.set(false);
        self.wake_waiting();
    }

    /// Returns what the newest request announced.
    pub(crate) fn body(&self) -> RequestBody {
        self.0.body.get().unwrap_or(RequestBody::Bytes(0))
    }

    /// Wakes `waker` once nothing is worked on and nothing is sent.
    pub(crate) fn wake_when_idle(&self, waker: &Waker) {
        self.0.waiting.replace(Some(waker.clone()));
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        if !self.is_busy()
            && let Some(waker) = self.0.waiting.take()
        {
            waker.wake();
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.0.is_active.get()
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.count.get()
    }

    /// Returns whether a handler works or a response is being sent.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_active() || self.0.bodies.get() > 0
    }

    /// Returns the size of what is in memory of bodies that are being sent, in bytes.
    pub(crate) fn body_bytes(&self) -> usize {
        self.0.body_bytes.get()
    }

    /// Divides a long body into parts, so that no more is copied than the client reads, and notes until when a body is sent.
    pub(crate) fn paced(&self, response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
        let is_shared = response.response().extensions().contains::<SharedBytes>();
        response.map_body(|_, body| match body.size() {
            BodySize::None => body,
            BodySize::Sized(size) if size <= PART_BYTES as u64 => body,
            BodySize::Sized(_) => match body.try_into_bytes() {
                Ok(rest) => {
                    let sending = self.sending(if is_shared { 0 } else { rest.len() });
                    BoxBody::new(Parts { rest, _sending: sending })
                }
                Err(body) => BoxBody::new(Streamed { body, _sending: self.sending(0) }),
            },
            BodySize::Stream => BoxBody::new(Streamed { body, _sending: self.sending(0) }),
        })
    }

    fn sending(&self, bytes: usize) -> Sending {
        self.0.bodies.set(self.0.bodies.get() + 1);
        self.0.body_bytes.set(self.body_bytes() + bytes);
        Sending { requests: self.clone(), bytes }
    }
}

/// A body that is being sent, until it is dropped.
struct Sending {
    requests: ActiveRequests,
    bytes: usize,
}

impl Drop for Sending {
    fn drop(&mut self) {
        let state = &self.requests.0;
        state.bodies.set(state.bodies.get().saturating_sub(1));
        state.body_bytes.set(state.body_bytes.get().saturating_sub(self.bytes));
        self.requests.wake_waiting();
    }
}

/// A body in memory, part by part.
struct Parts {
    rest: Bytes,
    _sending: Sending,
}

impl MessageBody for Parts {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let rest = &mut self.get_mut().rest;
        let part = rest.split_to(rest.len().min(PART_BYTES));
        Poll::Ready((!part.is_empty()).then_some(Ok(part)))
    }
}

/// A body that comes from elsewhere.
struct Streamed {
    body: BoxBody,
    _sending: Sending,
}

impl MessageBody for Streamed {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_next(cx)
    }
}
