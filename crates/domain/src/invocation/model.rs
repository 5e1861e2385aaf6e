//! The invocation and its states.

use time::{Duration, OffsetDateTime};

use crate::ids::{DeploymentId, InvocationId, NodeId, ProjectId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// The status of an invocation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum InvocationStatus {
        /// It is accepted and waits for a node.
        Queued => "queued",
        /// A node runs it.
        Running => "running",
        /// Its action returned, or a caller finished it. Final.
        Succeeded => "succeeded",
        /// It did not succeed. Final.
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
    /// Its version.
    pub version: String,
    /// Its action.
    pub action: LabelName,
    /// The payload: JSON text as it was sent.
    pub payload: Option<String>,
    /// The output: JSON text.
    pub output: Option<String>,
    /// The current state.
    pub status: InvocationStatus,
    /// The reason of the status.
    pub status_reason: Option<String>,
    /// The node that runs or ran it.
    pub node: Option<NodeId>,
    /// The timeout in seconds from its acceptance on.
    pub timeout_seconds: u32,
    /// The time of acceptance.
    pub started_at: OffsetDateTime,
    /// The time of its end.
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
