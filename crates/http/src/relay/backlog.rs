//! Detects clients that do not read what is sent to them.

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

use super::socket::STUCK_TIMEOUT;

/// The time since which the kernel has accepted no more bytes for a client. The connection updates it, and the sender
/// derives from it why the connection ended. Clones belong to the same connection.
#[derive(Clone, Debug, Default)]
pub struct SendBacklog(Rc<Cell<Option<Instant>>>);

impl SendBacklog {
    /// Notes that none of the pending bytes were accepted.
    pub(crate) fn mark_stuck(&self) {
        if self.0.get().is_none() {
            self.0.set(Some(Instant::now()));
        }
    }

    /// Notes that bytes were accepted.
    pub(crate) fn mark_progress(&self) {
        self.0.set(None);
    }

    /// Returns the time for which no bytes were accepted; zero while none are pending.
    pub(crate) fn stuck_for(&self) -> Duration {
        self.0.get().map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// Watches the writes of one connection, and fails them when it is stuck.
#[derive(Default)]
pub(crate) struct Writes {
    backlog: SendBacklog,
    stuck_timeout: Option<Pin<Box<Sleep>>>,
}

impl Writes {
    pub(crate) fn backlog(&self) -> SendBacklog {
        self.backlog.clone()
    }

    /// Returns the outcome of a write, or an error once the connection is stuck.
    ///
    /// # Errors
    /// `TimedOut` once no bytes were accepted for [`STUCK_TIMEOUT`].
    pub(crate) fn watch(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(_)) => {
                self.backlog.mark_progress();
                self.stuck_timeout = None;
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                self.backlog.mark_stuck();
                let stuck_timeout = self.stuck_timeout.get_or_insert_with(|| Box::pin(sleep(STUCK_TIMEOUT)));
                if stuck_timeout.as_mut().poll(cx).is_ready() {
                    let slow = io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing");
                    return Poll::Ready(Err(slow));
                }
            }
        }
        written
    }
}
