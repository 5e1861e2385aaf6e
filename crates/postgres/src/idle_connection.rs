//! A connection whose socket is driven by whoever uses it. With a task of its own to do so, each statement would wake that task to be sent
//! and once more to be answered, and on another thread that costs more than a short statement does.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use diesel::ConnectionError;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::PoolableConnection as _;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Config, NoTls, Socket};

use crate::database::describe;

type Wire = tokio_postgres::Connection<Socket, NoTlsStream>;

/// A connection at rest: nothing moves on its socket.
pub(crate) struct IdleConnection {
    connection: AsyncPgConnection,
    wire: Wire,
}

/// The connection ended before the work on it.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost: {0}")]
pub(crate) struct Lost(String);

impl IdleConnection {
    /// Opens a connection. Its socket belongs to the runtime of this call.
    pub(crate) async fn open(config: &Config) -> Result<Self, ConnectionError> {
        let bad = |error: tokio_postgres::Error| ConnectionError::BadConnection(describe(&error));
        let (client, mut wire) = config.connect(NoTls).await.map_err(bad)?;
        let greeted = drive(&mut wire, AsyncPgConnection::try_from(client)).await;
        let connection = greeted.map_err(|lost| ConnectionError::BadConnection(lost.to_string()))??;
        Ok(Self { connection, wire })
    }

    /// Does `work` to its end. A connection whose work was dropped half-way may still be busy with it.
    ///
    /// # Errors
    /// [`Lost`].
    pub(crate) async fn run<T>(&mut self, work: impl AsyncFnOnce(&mut AsyncPgConnection) -> T) -> Result<T, Lost> {
        // Thousands of callers may hold this future at a time.
        drive(&mut self.wire, Box::pin(work(&mut self.connection))).await
    }

    /// Whether it can be used no more, as far as this side has heard.
    pub(crate) fn is_lost(&mut self) -> bool {
        let ended = Pin::new(&mut self.wire).poll(&mut Context::from_waker(Waker::noop()));
        ended.is_ready() || self.connection.is_broken()
    }
}

/// Moves the bytes of `wire` until `work` is done.
async fn drive<T>(wire: &mut Wire, work: impl Future<Output = T>) -> Result<T, Lost> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        let Poll::Ready(ended) = Pin::new(&mut *wire).poll(cx) else { return Poll::Pending };
        // Its last word may have been the answer.
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
