//! A connection whose socket is driven by its current user. A task for the socket would be woken twice per statement,
//! to send it and to receive the result, and on another thread that costs more than a short statement.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use diesel::ConnectionError;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::PoolableConnection as _;
use tracing::Span;

use crate::connect::{Address, Opened, Wire, bad_connection, describe};
use crate::refusals::Refusals;

/// A connection whose socket is read and written only during [`run`](Self::run).
pub(crate) struct IdleConnection {
    connection: AsyncPgConnection,
    wire: Wire,
    refusals: Refusals,
    generation: u64,
}

/// The connection was closed before the work on it ended.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost: {0}")]
pub(crate) struct Lost(String);

impl IdleConnection {
    /// Opens a connection of this generation. Its socket belongs to the current runtime.
    pub(crate) async fn open(address: &Address, generation: u64) -> Result<Self, ConnectionError> {
        let Opened { client, mut wire, refusals } = address.connect().await.map_err(|error| bad_connection(&error))?;
        let greeting = Box::pin(AsyncPgConnection::try_from(client));
        let greeted = Driven { wire: &mut wire, span: Span::none(), work: greeting }.await;
        let connection = greeted.map_err(|lost| ConnectionError::BadConnection(lost.to_string()))??;
        Ok(Self { connection, wire, refusals, generation })
    }

    /// Runs `work` to its end, in the span. If the future is dropped early, the connection may still be busy with the work.
    ///
    /// # Errors
    /// [`Lost`] if the connection was closed before `work` ended.
    pub(crate) fn run<T>(
        &mut self,
        span: &Span,
        work: impl AsyncFnOnce(&mut AsyncPgConnection) -> T,
    ) -> impl Future<Output = Result<T, Lost>> {
        // Boxed to make this future small, since there may be thousands at a time.
        Driven { wire: &mut self.wire, span: span.clone(), work: Box::pin(work(&mut self.connection)) }
    }

    /// What the server refuses on this connection.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the connection is known to be unusable.
    pub(crate) fn is_lost(&mut self) -> bool {
        let ended = Pin::new(&mut self.wire).poll(&mut Context::from_waker(Waker::noop()));
        ended.is_ready() || self.connection.is_broken()
    }
}

/// Drives the socket of `wire` until `work` is done.
struct Driven<'a, F> {
    wire: &'a mut Wire,
    span: Span,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Driven<'_, F> {
    type Output = Result<F::Output, Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { wire, span, work } = &mut *self;
        let mut done = None;
        let mut advance = |cx: &mut Context<'_>| {
            let Poll::Ready(value) = work.as_mut().poll(cx) else { return false };
            done = Some(value);
            true
        };
        let outcome = span.in_scope(|| drive(wire, &mut advance, cx));
        match done {
            Some(value) => Poll::Ready(Ok(value)),
            None => outcome.map(Err),
        }
    }
}

/// Polls the work by `advance`, which returns true once it is done, then the socket. Returns why the connection was lost
/// before the work was done.
fn drive(wire: &mut Wire, advance: &mut dyn FnMut(&mut Context<'_>) -> bool, cx: &mut Context<'_>) -> Poll<Lost> {
    if advance(cx) {
        return Poll::Pending;
    }
    let Poll::Ready(ended) = Pin::new(wire).poll(cx) else { return Poll::Pending };
    // The last message before the end may complete the work.
    if advance(cx) {
        return Poll::Pending;
    }
    let why = ended.err().map_or_else(|| "it was closed".to_owned(), |error| describe(&error));
    Poll::Ready(Lost(why))
}
