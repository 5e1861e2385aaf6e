//! How we notice that a caller went away before it had its answer.
//!
//! - *While the handler waits*: with `HttpServer::h1_allow_half_closed(false)` actix drops the handler's future as
//!   soon as the client closes or resets the connection (measured: within a millisecond, on fresh and on kept-alive
//!   connections, with and without a request body). So a handler only needs values whose `Drop` gives back what they
//!   hold, and must not detach its work into a task that outlives it.
//! - *When the answer is ready*: the future has ended by then. [`Delivered`] wraps the body and runs its callback if
//!   the body is dropped before the server took all of it and found the connection well after writing. Nobody
//!   but the client can tell whether the bytes arrived, so a lease still needs its idle timeout.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;

/// A body that reports when it was dropped before it was fully taken.
pub struct Delivered<F: FnOnce()> {
    body: Option<Bytes>,
    flushed: bool,
    on_undelivered: Option<F>,
}

impl<F: FnOnce()> Delivered<F> {
    /// Sends `body`; `on_undelivered` runs, once, if the connection ended first. It runs in a `drop` on the
    /// server's thread, so it must not block: let it send to a channel or spawn. An empty body is never polled by
    /// the server and always counts as undelivered: give such an answer no `Delivered`.
    pub fn new(body: impl Into<Bytes>, on_undelivered: F) -> Self {
        Self { body: Some(body.into()), flushed: false, on_undelivered: Some(on_undelivered) }
    }
}

impl<F: FnOnce() + Unpin> MessageBody for Delivered<F> {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.body.as_ref().map_or(0, |body| body.len() as u64))
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if let Some(body) = self.body.take() {
            return Poll::Ready(Some(Ok(body)));
        }
        if !self.flushed {
            // One round of the connection's loop: it writes what it has, and looks whether the client is still there.
            // The client waits for nothing, it has all bytes that the length promised.
            self.flushed = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.on_undelivered = None;
        Poll::Ready(None)
    }
}

impl<F: FnOnce()> Drop for Delivered<F> {
    fn drop(&mut self) {
        if let Some(report) = self.on_undelivered.take() {
            report();
        }
    }
}
