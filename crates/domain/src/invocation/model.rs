//! The invocation and its states.

use time::{Duration, OffsetDateTime};

use crate::ids::{DeploymentId, InvocationId, NodeId, ProjectId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// The status of an invocation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum InvocationStatus {
        /// The invocation is accepted and waits for a node.
        Queued => "queued",
        /// A node runs the invocation.
        Running => "running",
        /// The action returned, or a caller finished the invocation. Final.
        Succeeded => "succeeded",
        /// The invocation did not succeed. Final.
        Failed => "failed",
    }
}

impl InvocationStatus {
    /// Returns whether the status is final.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// One run of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The identifier.
    pub id: InvocationId,
    /// The project.
    pub project: ProjectId,
    /// The deployment.
    pub deployment: DeploymentId,
    /// The app.
    pub app: LabelName,
    /// The version of the app.
    pub version: String,
    /// The action.
    pub action: LabelName,
    /// The payload: JSON text as the caller sent it.
    pub payload: Option<String>,
    /// The output: JSON text.
    pub output: Option<String>,
    /// The current state.
    pub status: InvocationStatus,
    /// The reason of the status.
    pub status_reason: Option<String>,
    /// The node that runs or ran the invocation.
    pub node: Option<NodeId>,
    /// The timeout in seconds, from the acceptance on.
    pub timeout_seconds: u32,
    /// The time of acceptance.
    pub started_at: OffsetDateTime,
    /// The time of the end.
    pub finished_at: Option<OffsetDateTime>,
}

impl Invocation {
    /// Returns the deadline.
    #[must_use]
    pub fn deadline(&self) -> OffsetDateTime {
        self.started_at + Duration::seconds(i64::from(self.timeout_seconds))
    }

    /// Returns whether the deadline has passed.
    #[must_use]
    pub fn is_late(&self, now: OffsetDateTime) -> bool {
        self.deadline() <= now
    }
}
