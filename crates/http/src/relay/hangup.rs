//! How we notice that a caller went away before it had its answer.
//!
//! - *While the handler waits*: with `HttpServer::h1_allow_half_closed(false)` actix drops the handler's future as
//!   soon as the client closes or resets the connection (measured: within a millisecond, on fresh and on kept-alive
//!   connections, with and without a request body). So a handler only needs values whose `Drop` gives back what they
//!   hold, and must not detach its work into a task that outlives it.
//! - *When the answer is ready*: the future has ended by then. [`DeliveryReport`] wraps the body and reports whether all of it has arrived at
//!   the client's machine ([`DeliveryReceipt`]). That our own reads find the connection well says nothing: they know what the runtime heard
//!   of it last, and a close that came just before the answer looks like one that came after it. Whether the client's program read
//!   what its machine has, nobody but the client can tell, so a lease still needs its idle timeout.

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

/// How soon it is asked again whether an answer has arrived; each time later. The kernel gives a silent client up in the end.
const SOON: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_millis(100);

/// A body that reports whether it arrived.
pub struct DeliveryReport<F: FnOnce(bool)> {
    body: Option<Bytes>,
    receipt: DeliveryReceipt,
    flushed: bool,
    again: Option<Pin<Box<Sleep>>>,
    pause: Duration,
    report: Option<F>,
}

impl<F: FnOnce(bool)> DeliveryReport<F> {
    /// Sends `body`; `report` runs once, with `true` when all has arrived, with `false` if the connection ended first. It runs on the
    /// server's thread, in the second case maybe in a `drop`, so it must not block: let it send to a channel or spawn. An empty body is
    /// never polled by the server and always counts as undelivered: give such an answer no `DeliveryReport`.
    pub fn new(body: impl Into<Bytes>, receipt: DeliveryReceipt, report: F) -> Self {
        Self { body: Some(body.into()), receipt, flushed: false, again: None, pause: SOON, report: Some(report) }
    }

    /// Whether it arrived. The client waits for nothing meanwhile, it has all bytes that the length promised.
    fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.receipt.arrival() {
                DeliveryState::Arrived => return Poll::Ready(true),
                DeliveryState::Lost => return Poll::Ready(false),
                DeliveryState::Underway => {}
            }
            let pause = self.pause;
            ready!(self.again.get_or_insert_with(|| Box::pin(sleep(pause))).as_mut().poll(cx));
            self.again = None;
            self.pause = (pause * 2).min(LATE);
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
            self.receipt.ask();
            return Poll::Ready(Some(Ok(body)));
        }
        if !self.flushed {
            // One round of the connection's loop, which writes what it has.
            self.flushed = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let arrived = ready!(self.poll_arrival(cx));
        self.receipt.done();
        if let Some(report) = self.report.take() {
            report(arrived);
        }
        Poll::Ready(None)
    }
}

impl<F: FnOnce(bool)> Drop for DeliveryReport<F> {
    fn drop(&mut self) {
        self.receipt.done();
        if let Some(report) = self.report.take() {
            report(false);
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

    /// What is reported of an answer over a connection with whose client `hang_up` does something before it is written, and `read` after.
    fn reported(
        hang_up: impl FnOnce(TcpStream) -> Option<TcpStream>,
        read: impl FnOnce(Option<TcpStream>),
    ) -> Option<bool> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let mut ours = listener.accept().expect("a connection").0;
        let (receipt, report) = (DeliveryReceipt::of_connection(), Rc::new(Cell::new(None)));
        let told = report.clone();
        let mut body =
            Box::pin(DeliveryReport::new("an answer", receipt.clone(), move |arrived| told.set(Some(arrived))));
        let mut cx = Context::from_waker(Waker::noop());
        let client = hang_up(client);
        // As the server does: it takes what there is, asks for more, and only then writes.
        let Poll::Ready(Some(Ok(bytes))) = body.as_mut().poll_next(&mut cx) else { panic!("it has something to say") };
        assert!(body.as_mut().poll_next(&mut cx).is_pending());
        ours.write_all(&bytes).expect("taken by our kernel");
        receipt.flushed(&ours);
        read(client);
        assert!(body.as_mut().poll_next(&mut cx).is_ready());
        report.get()
    }

    #[test]
    fn an_answer_to_a_client_that_had_closed_is_not_delivered_though_it_could_be_written() {
        assert_eq!(reported(|_| None, drop), Some(false));
    }

    #[test]
    fn an_answer_that_was_read_is_delivered_however_its_client_ends() {
        let read = |client: Option<TcpStream>| {
            let mut client = client.expect("a client");
            client.read_exact(&mut [0; 9]).expect("read");
            client
        };
        assert_eq!(reported(Some, |client| drop(read(client))), Some(true));
        let reset = |client| socket2::SockRef::from(&read(client)).set_linger(Some(Duration::ZERO)).expect("set");
        assert_eq!(reported(Some, reset), Some(true), "by a reset");
    }
}
