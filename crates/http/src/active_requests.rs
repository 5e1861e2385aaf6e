//! The requests of one connection: whether a handler works on one, and the response that is being sent.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    dev::ServiceResponse,
};
use bytes::Bytes;

/// The maximum size of a part of a body that is copied for the socket at a time. The HTTP layer copies a whole part, whatever
/// the client has read.
const PART_BYTES: usize = 32 << 10;

/// Marks a response whose body is shared by all responses like it, so that it occupies no memory of its own.
pub(crate) struct SharedBytes;

/// Whether a handler works on a request of the connection, the number of requests, and what of a response is not sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveRequests(Rc<State>);

#[derive(Debug, Default)]
struct State {
    is_active: Cell<bool>,
    count: Cell<u64>,
    /// The number of bodies that are being sent.
    bodies: Cell<u32>,
    body_bytes: Cell<usize>,
}

impl ActiveRequests {
    pub(crate) fn set(&self, is_active: bool) {
        self.0.is_active.set(is_active);
        if is_active {
            self.0.count.set(self.count() + 1);
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
