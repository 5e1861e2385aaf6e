//! The state machine of an invocation.

use time::OffsetDateTime;

use super::{Invocation, InvocationStatus};
use crate::deployment::reason;
use crate::ids::{InvocationId, NodeId};

/// An event of an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvocationEvent {
    /// A node takes the invocation.
    Take(NodeId),
    /// The action returned, with an output if any.
    Returned(Option<String>),
    /// The action raised an error, or its process ended or could not start. With the reason.
    Broke(String),
    /// The deadline has passed.
    TimedOut,
    /// The deployment was stopped.
    DeploymentStopped,
    /// The deployment failed.
    DeploymentFailed,
    /// A caller cancels the invocation, with an output if any.
    Cancel(Option<String>),
    /// A caller finishes the invocation, with an output if any.
    Finish(Option<String>),
    /// The node took the invocation, but no process received it. After the deadline this counts as a timeout.
    Requeue,
    /// The node is lost, or no longer knows the invocation. After the deadline this counts as a timeout.
    Lost,
}

impl InvocationEvent {
    /// Returns the name of the event in errors.
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
            Self::Requeue => "requeue",
            Self::Lost => "lost",
        }
    }
}

/// The error of an event that the state does not allow; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invocation {id} is {}, so '{event}' is not possible", status.as_str())]
pub struct InvocationRefused {
    /// The invocation.
    pub id: InvocationId,
    /// The current state.
    pub status: InvocationStatus,
    /// The name of the event.
    pub event: &'static str,
}

impl Invocation {
    /// Returns the invocation after `event` at `now`.
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
            (Running, E::Lost | E::Requeue) if self.is_late(now) => return self.on(&E::TimedOut, now),
            (Running, E::Requeue) => Self { status: Queued, node: None, ..self.clone() },
            (Running, E::Lost) => end(Failed, Some("the node that ran it was lost"), &None),
            (Queued | Running, E::TimedOut) => {
                end(Failed, Some(&format!("timed out after {} s", self.timeout_seconds)), &None)
            }
            (Queued | Running, E::DeploymentStopped) => end(Failed, Some("deployment stopped"), &None),
            (Queued | Running, E::DeploymentFailed) => end(Failed, Some("deployment failed"), &None),
            (Queued | Running, E::Cancel(output)) => end(Failed, Some("canceled"), output),
            (Queued | Running, E::Finish(output)) => end(Succeeded, None, output),
            (Queued, E::Returned(_) | E::Broke(_) | E::Requeue | E::Lost)
            | (Running, E::Take(_))
            | (Succeeded | Failed, _) => {
                return Err(InvocationRefused { id: self.id, status: self.status, event: event.name() });
            }
        })
    }
}
