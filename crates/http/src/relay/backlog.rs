//! Whether a client takes what it is sent.

use std::{
    cell::Cell,
    future::Future as _,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep};

use super::socket::CUT_AFTER;

/// Since when the kernel has taken nothing more for a client. The connection notes it, and whoever sends over the
/// connection learns from it why it ended; clones are of the same connection.
#[derive(Clone, Debug, Default)]
pub struct SendBacklog(Rc<Cell<Option<Instant>>>);

impl SendBacklog {
    /// Nothing of what there is to send was taken.
    pub(crate) fn stuck(&self) {
        if self.0.get().is_none() {
            self.0.set(Some(Instant::now()));
        }
    }

    /// Some of it was.
    pub(crate) fn moved(&self) {
        self.0.set(None);
    }

    /// For how long nothing was taken; zero while nothing waits.
    pub(crate) fn stuck_for(&self) -> Duration {
        self.0.get().map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// Watches the writes of one connection, and ends it when it is stuck.
#[derive(Default)]
pub(crate) struct Writes {
    backlog: SendBacklog,
    client_timeout: Option<Pin<Box<Sleep>>>,
}

impl Writes {
    pub(crate) fn backlog(&self) -> SendBacklog {
        self.backlog.clone()
    }

    /// Passes the outcome of a write on.
    ///
    /// # Errors
    /// `TimedOut`, once nothing was taken for [`CUT_AFTER`].
    pub(crate) fn watch(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(_)) => {
                self.backlog.moved();
                self.client_timeout = None;
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                self.backlog.stuck();
                let client_timeout = self.client_timeout.get_or_insert_with(|| Box::pin(sleep(CUT_AFTER)));
                if client_timeout.as_mut().poll(cx).is_ready() {
                    let slow = io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing");
                    return Poll::Ready(Err(slow));
                }
            }
        }
        written
    }
}
