//! The invocation and its states.

use time::{Duration, OffsetDateTime};

use crate::ids::{DeploymentId, InvocationId, NodeId, ProjectId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// Where an invocation stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum InvocationStatus {
        /// It is accepted; nobody runs it yet.
        Queued => "queued",
        /// A node runs it.
        Running => "running",
        /// Its action returned, or somebody said so. Final.
        Succeeded => "succeeded",
        /// It did not succeed. Final.
        Failed => "failed",
    }
}

impl InvocationStatus {
    /// Whether nothing can happen to it any more.
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
    /// Whose.
    pub project: ProjectId,
    /// Of which deployment.
    pub deployment: DeploymentId,
    /// The app.
    pub app: LabelName,
    /// Its version.
    pub version: String,
    /// Its action.
    pub action: LabelName,
    /// JSON text as it was sent.
    pub payload: Option<String>,
    /// JSON text of what came out.
    pub output: Option<String>,
    /// The current state.
    pub status: InvocationStatus,
    /// Why it stands there.
    pub status_reason: Option<String>,
    /// Who runs it, or did.
    pub node: Option<NodeId>,
    /// How long it may take, from its acceptance on.
    pub timeout_seconds: u32,
    /// When it was accepted.
    pub started_at: OffsetDateTime,
    /// When it ended.
    pub finished_at: Option<OffsetDateTime>,
}

impl Invocation {
    /// Until when it must have ended.
    #[must_use]
    pub fn deadline(&self) -> OffsetDateTime {
        self.started_at + Duration::seconds(i64::from(self.timeout_seconds))
    }

    /// Whether its time is up.
    #[must_use]
    pub fn is_late(&self, now: OffsetDateTime) -> bool {
        self.deadline() <= now
    }
}
