//! Detects callers that disconnect before they have their response.
//!
//! - *While the handler waits*: with `HttpServer::h1_allow_half_closed(false)` actix drops the handler's future as
//!   soon as the client closes or resets the connection (measured: within a millisecond, on new and on kept-alive
//!   connections, with and without a request body). So a handler only needs values whose `Drop` releases their
//!   resources, and must not move its work into a task that outlives the future.
//! - *When the response is ready*, the future has ended. [`DeliveryReport`] wraps the body and reports whether all of
//!   it has arrived at the client's machine ([`DeliveryReceipt`]). A successful read on the connection proves nothing:
//!   a close just before the response looks like one after it. Whether the client's program has read what its machine
//!   received is unknown to the server, so a lease still needs its idle timeout.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;
use tokio::time::{Sleep, sleep};

use super::delivery_receipt::{DeliveryReceipt, DeliveryState};

/// The minimum and maximum interval between two queries of the delivery state. The kernel eventually closes the
/// connection of a client that does not respond.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A response body that reports whether it was delivered.
pub struct DeliveryReport<F: FnOnce(bool)> {
    body: Option<Bytes>,
    receipt: DeliveryReceipt,
    has_yielded: bool,
    poll_timer: Option<Pin<Box<Sleep>>>,
    poll_interval: Duration,
    after_write: Option<Box<dyn FnOnce()>>,
    report: Option<F>,
}

impl<F: FnOnce(bool)> DeliveryReport<F> {
    /// Sends `body` and calls `report` once: with `true` when the whole body has arrived, with `false` if the
    /// connection ended before. `report` runs on the server's thread, possibly in a `drop`, so it must not block. The
    /// server never polls an empty body, which therefore always counts as undelivered; do not use this type for empty
    /// bodies.
    pub fn new(body: impl Into<Bytes>, receipt: DeliveryReceipt, report: F) -> Self {
        Self {
            body: Some(body.into()),
            receipt,
            has_yielded: false,
            poll_timer: None,
            poll_interval: MIN_POLL_INTERVAL,
            after_write: None,
            report: Some(report),
        }
    }

    /// Calls `work` when the body was written, on the server's thread, so it must not block. Whether the body has arrived
    /// is known later: the machine of a client that sends nothing acknowledges it up to 40 ms after it has read it.
    #[must_use]
    pub fn after_write(mut self, work: impl FnOnce() + 'static) -> Self {
        self.after_write = Some(Box::new(work));
        self
    }

    /// Polls whether the response has arrived. The client does not wait for this, because it has all announced bytes.
    fn poll_delivery(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.receipt.state() {
                DeliveryState::Arrived => return Poll::Ready(true),
                DeliveryState::Lost => return Poll::Ready(false),
                DeliveryState::InFlight => {}
            }
            let interval = self.poll_interval;
            ready!(self.poll_timer.get_or_insert_with(|| Box::pin(sleep(interval))).as_mut().poll(cx));
            self.poll_timer = None;
            self.poll_interval = (interval * 2).min(MAX_POLL_INTERVAL);
        }
    }
}

impl<F: FnOnce(bool) + Unpin> MessageBody for DeliveryReport<F> {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.body.as_ref().map_or(0, |body| body.len() as u64))
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if let Some(body) = self.body.take() {
            self.receipt.track();
            return Poll::Ready(Some(Ok(body)));
        }
        if !self.has_yielded {
            // Lets the task of the connection write the body first.
            self.has_yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(work) = self.after_write.take() {
            work();
        }
        let is_delivered = ready!(self.poll_delivery(cx));
        self.receipt.done();
        if let Some(report) = self.report.take() {
            report(is_delivered);
        }
        Poll::Ready(None)
    }
}

impl<F: FnOnce(bool)> Drop for DeliveryReport<F> {
    fn drop(&mut self) {
        // A client may close its connection as soon as it has the response.
        let is_delivered = self.body.is_none() && self.receipt.has_arrived();
        self.receipt.done();
        if let Some(report) = self.report.take() {
            report(is_delivered);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        rc::Rc,
        task::Waker,
    };

    use super::*;

    /// Returns the report for a response. `before` is called with the client before the response is written, `after`
    /// afterwards.
    fn delivery_report(
        before: impl FnOnce(TcpStream) -> Option<TcpStream>,
        after: impl FnOnce(Option<TcpStream>),
    ) -> Option<bool> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let mut ours = listener.accept().expect("a connection").0;
        let (receipt, report) = (DeliveryReceipt::of_connection(), Rc::new(Cell::new(None)));
        let result = report.clone();
        let mut body = Box::pin(DeliveryReport::new("a message", receipt.clone(), move |is_delivered| {
            result.set(Some(is_delivered))
        }));
        let mut cx = Context::from_waker(Waker::noop());
        let client = before(client);
        // As the server does, polls the body until it is pending, and then writes.
        let Poll::Ready(Some(Ok(bytes))) = body.as_mut().poll_next(&mut cx) else { panic!("a chunk is ready") };
        assert!(body.as_mut().poll_next(&mut cx).is_pending());
        ours.write_all(&bytes).expect("accepted by the local kernel");
        receipt.flushed(&ours);
        after(client);
        assert!(body.as_mut().poll_next(&mut cx).is_ready());
        report.get()
    }

    #[test]
    fn a_response_to_a_closed_client_is_undelivered_although_it_was_written() {
        assert_eq!(delivery_report(|_| None, drop), Some(false));
    }

    #[tokio::test]
    async fn what_follows_the_write_does_not_wait_for_the_acknowledgement() {
        let followed = Rc::new(Cell::new(false));
        let (mark, receipt) = (followed.clone(), DeliveryReceipt::of_connection());
        let report = DeliveryReport::new("a message", receipt, |_| {}).after_write(move || mark.set(true));
        let mut body = Box::pin(report);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(body.as_mut().poll_next(&mut cx).is_ready());
        assert!(body.as_mut().poll_next(&mut cx).is_pending());
        assert!(!followed.get(), "the connection writes the body now");
        assert!(body.as_mut().poll_next(&mut cx).is_pending(), "nothing is acknowledged");
        assert!(followed.get());
    }

    #[test]
    fn a_response_that_was_read_is_delivered_however_its_client_closes() {
        let read = |client: Option<TcpStream>| {
            let mut client = client.expect("a client");
            client.read_exact(&mut [0; 9]).expect("read");
            client
        };
        assert_eq!(delivery_report(Some, |client| drop(read(client))), Some(true));
        let reset = |client| socket2::SockRef::from(&read(client)).set_linger(Some(Duration::ZERO)).expect("set");
        assert_eq!(delivery_report(Some, reset), Some(true), "by a reset");
    }
}
