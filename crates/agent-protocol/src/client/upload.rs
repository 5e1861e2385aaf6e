//! Uploads: tracks whether the agent still accepts the content.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The longest time in which an agent may accept nothing of an upload. A stopped agent would never accept anything.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The content of an upload. Its sender holds true while the agent has yet to accept a piece, and is dropped at the end
/// of the content.
pub(super) struct TrackedContent<S> {
    pub(super) content: Pin<Box<S>>,
    pub(super) untaken: Option<watch::Sender<bool>>,
}

impl<S: Stream<Item = io::Result<Bytes>>> Stream for TrackedContent<S> {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // A request for more means that the agent accepted the piece before.
        let next = self.content.as_mut().poll_next(context);
        if let Poll::Ready(None) = next {
            self.untaken = None;
        }
        if let Some(untaken) = &self.untaken {
            untaken.send_replace(next.is_ready());
        }
        next
    }
}

/// Returns when an upload has waited too long for its agent, with the exceeded duration: `stalled` for a piece that is
/// not accepted, `within` for the response after the last piece.
pub(super) async fn upload_timed_out(
    mut untaken: watch::Receiver<bool>,
    within: Duration,
    stalled: Duration,
) -> Duration {
    loop {
        let waits = *untaken.borrow_and_update();
        let changed = match waits {
            true => timeout(stalled, untaken.changed()).await,
            false => Ok(untaken.changed().await),
        };
        match changed {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                sleep(within).await;
                return within;
            }
            Err(_) => return stalled,
        }
    }
}
