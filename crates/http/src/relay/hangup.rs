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

/// A body that reports whether it was fully taken, or dropped before.
pub struct Delivered<F: FnOnce(bool)> {
    body: Option<Bytes>,
    flushed: bool,
    report: Option<F>,
}

impl<F: FnOnce(bool)> Delivered<F> {
    /// Sends `body`; `report` runs once, with `true` when all is written, with `false` if the connection ended first. It runs on the
    /// server's thread, in the second case in a `drop`, so it must not block: let it send to a channel or spawn. An empty body is never
    /// polled by the server and always counts as undelivered: give such an answer no `Delivered`.
    pub fn new(body: impl Into<Bytes>, report: F) -> Self {
        Self { body: Some(body.into()), flushed: false, report: Some(report) }
    }
}

impl<F: FnOnce(bool) + Unpin> MessageBody for Delivered<F> {
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
        if let Some(report) = self.report.take() {
            report(true);
        }
        Poll::Ready(None)
    }
}

impl<F: FnOnce(bool)> Drop for Delivered<F> {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            report(false);
        }
    }
}
