//! The queue of restarts, from the operations that request them to the supervisor that performs them one at a time.

use tokio::sync::{mpsc, oneshot};

use crate::reply::Refusal;
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::{ErrorCode, Status};

/// The kind of a restart.
#[derive(Debug)]
pub(crate) enum RestartKind {
    /// Starts Chromium again.
    Restart(RestartRequest),
    /// Closes Chromium for good.
    Close,
}

/// Sends the result of a restart to its caller.
pub(crate) type ResultSender = oneshot::Sender<Result<Status, Refusal>>;

/// A queued restart.
#[derive(Debug)]
pub(crate) struct QueuedRestart {
    pub(crate) kind: RestartKind,
    pub(crate) result: ResultSender,
}

/// The sending side of the queue. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RestartQueue(mpsc::Sender<QueuedRestart>);

impl RestartQueue {
    /// Creates the queue. Dropping the receiver refuses all callers.
    pub(crate) fn new() -> (Self, mpsc::Receiver<QueuedRestart>) {
        let (sender, receiver) = mpsc::channel(1);
        (Self(sender), receiver)
    }

    /// Queues a restart and waits until it is done.
    pub(crate) async fn run(&self, kind: RestartKind) -> Result<Status, Refusal> {
        let gone = || Refusal::new(ErrorCode::NotReady, "the browser has ended");
        let (result, done) = oneshot::channel();
        self.0.send(QueuedRestart { kind, result }).await.map_err(|_| gone())?;
        done.await.map_err(|_| gone())?
    }
}
