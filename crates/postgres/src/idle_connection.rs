//! A connection whose socket is driven by its current user. A task for the socket would be woken twice per statement,
//! to send it and to receive the result, and on another thread that costs more than a short statement.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use diesel::ConnectionError;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::PoolableConnection as _;

use crate::connect::{Address, Wire, bad_connection, describe};

/// A connection whose socket is read and written only during [`run`](Self::run).
pub(crate) struct IdleConnection {
    connection: AsyncPgConnection,
    wire: Wire,
}

/// The connection was closed before the work on it ended.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost: {0}")]
pub(crate) struct Lost(String);

impl IdleConnection {
    /// Opens a connection. Its socket belongs to the current runtime.
    pub(crate) async fn open(address: &Address) -> Result<Self, ConnectionError> {
        let (client, mut wire) = address.connect().await.map_err(|error| bad_connection(&error))?;
        let greeted = drive(&mut wire, AsyncPgConnection::try_from(client)).await;
        let connection = greeted.map_err(|lost| ConnectionError::BadConnection(lost.to_string()))??;
        Ok(Self { connection, wire })
    }

    /// Runs `work` to its end. If this future is dropped early, the connection may still be busy with the work.
    ///
    /// # Errors
    /// [`Lost`] if the connection was closed before `work` ended.
    pub(crate) async fn run<T>(&mut self, work: impl AsyncFnOnce(&mut AsyncPgConnection) -> T) -> Result<T, Lost> {
        // Boxed to make this future small, since there may be thousands at a time.
        drive(&mut self.wire, Box::pin(work(&mut self.connection))).await
    }

    /// Whether the connection is known to be unusable.
    pub(crate) fn is_lost(&mut self) -> bool {
        let ended = Pin::new(&mut self.wire).poll(&mut Context::from_waker(Waker::noop()));
        ended.is_ready() || self.connection.is_broken()
    }
}

/// Drives the socket of `wire` until `work` is done.
async fn drive<T>(wire: &mut Wire, work: impl Future<Output = T>) -> Result<T, Lost> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        let Poll::Ready(ended) = Pin::new(&mut *wire).poll(cx) else { return Poll::Pending };
        // The last message before the end may complete the work.
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => {
                let why = ended.err().map_or_else(|| "it was closed".to_owned(), |error| describe(&error));
                Poll::Ready(Err(Lost(why)))
            }
        }
    })
    .await
}
