//! The state machine of an invocation.

use time::OffsetDateTime;

use super::{Invocation, InvocationStatus};
use crate::deployment::reason;
use crate::ids::{InvocationId, NodeId};

/// What can happen to an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvocationEvent {
    /// A node runs it.
    Take(NodeId),
    /// Its action returned.
    Returned(Option<String>),
    /// Its action raised, its process died, or there was none.
    Broke(String),
    /// Its time is over.
    TimedOut,
    /// Its deployment was stopped.
    DeploymentStopped,
    /// Its deployment failed.
    DeploymentFailed,
    /// A caller cancels it, and may say what comes out of it.
    Cancel(Option<String>),
    /// A caller says that it is done, and may say what comes out of it.
    Finish(Option<String>),
    /// Its node is gone, or has forgotten it. After its deadline that is no other end than the deadline's.
    Lost,
}

impl InvocationEvent {
    /// The event's name in tables and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Take(_) => "take",
            Self::Returned(_) => "returned",
            Self::Broke(_) => "broke",
            Self::TimedOut => "timed out",
            Self::DeploymentStopped => "deployment stopped",
            Self::DeploymentFailed => "deployment failed",
            Self::Cancel(_) => "cancel",
            Self::Finish(_) => "finish",
            Self::Lost => "lost",
        }
    }
}

/// The event is not possible in this state; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invocation {id} is {}, so '{event}' is not possible", status.as_str())]
pub struct InvocationRefused {
    /// Which invocation.
    pub id: InvocationId,
    /// The current state.
    pub status: InvocationStatus,
    /// Which event.
    pub event: &'static str,
}

impl Invocation {
    /// The invocation after `event`, at `now`; `self` is unchanged.
    ///
    /// # Errors
    /// [`InvocationRefused`] if the event is not possible in its state.
    pub fn on(&self, event: &InvocationEvent, now: OffsetDateTime) -> Result<Self, InvocationRefused> {
        use InvocationEvent as E;
        use InvocationStatus::{Failed, Queued, Running, Succeeded};

        let end = |status, why: Option<&str>, output: &Option<String>| Self {
            status,
            status_reason: why.map(reason),
            output: output.clone(),
            finished_at: Some(now),
            ..self.clone()
        };
        Ok(match (self.status, event) {
            (Queued, E::Take(node)) => Self { status: Running, node: Some(*node), ..self.clone() },
            (Running, E::Returned(output)) => end(Succeeded, None, output),
            (Running, E::Broke(why)) => end(Failed, Some(why), &None),
            (Running, E::Lost) if self.is_late(now) => return self.on(&E::TimedOut, now),
            (Running, E::Lost) => end(Failed, Some("the node that ran it was lost"), &None),
            (Queued | Running, E::TimedOut) => {
                end(Failed, Some(&format!("timed out after {} s", self.timeout_seconds)), &None)
            }
            (Queued | Running, E::DeploymentStopped) => end(Failed, Some("deployment stopped"), &None),
            (Queued | Running, E::DeploymentFailed) => end(Failed, Some("deployment failed"), &None),
            (Queued | Running, E::Cancel(output)) => end(Failed, Some("canceled"), output),
            (Queued | Running, E::Finish(output)) => end(Succeeded, None, output),
            (Queued, E::Returned(_) | E::Broke(_) | E::Lost) | (Running, E::Take(_)) | (Succeeded | Failed, _) => {
                return Err(InvocationRefused { id: self.id, status: self.status, event: event.name() });
            }
        })
    }
}
