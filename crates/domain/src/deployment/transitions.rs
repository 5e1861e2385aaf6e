//! The state machine of deployments.

use time::OffsetDateTime;

use super::{BuildLease, Deployment, DeploymentStatus};
use crate::ids::DeploymentId;

/// The maximum length of a reason, in characters.
pub(crate) const MAX_REASON: usize = 1000;

/// An event of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentEvent {
    /// A node takes a deployment that is not built yet, or whose building node is lost.
    Take(BuildLease),
    /// The deployment is built, and its apps are registered.
    Built {
        /// The SHA-256 hash of the source archive.
        checksum: String,
        /// The artifact of the build.
        artifact: String,
    },
    /// The deployment cannot be built, or its apps cannot be registered.
    BuildFailed(String),
    /// The processes of the deployment failed.
    ProcessesFailed(String),
    /// A caller stops the deployment.
    Stop,
    /// A later deployment replaced one of its apps.
    Replaced(DeploymentId),
}

impl DeploymentEvent {
    /// Returns the name of the event in errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Take(_) => "take",
            Self::Built { .. } => "built",
            Self::BuildFailed(_) => "build failed",
            Self::ProcessesFailed(_) => "processes failed",
            Self::Stop => "stop",
            Self::Replaced(_) => "replaced",
        }
    }
}

/// The error of an event that the state does not allow; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deployment {id} is {}, so '{event}' is not possible", status.as_str())]
pub struct DeploymentRefused {
    /// The deployment.
    pub id: DeploymentId,
    /// The current status.
    pub status: DeploymentStatus,
    /// The name of the event.
    pub event: &'static str,
}

/// Returns the first characters of a reason, without NUL, which the store does not accept.
#[must_use]
pub fn reason(text: &str) -> String {
    text.replace('\0', "\u{fffd}").trim().chars().take(MAX_REASON).collect()
}

impl Deployment {
    /// Returns the deployment after `event` at `now`.
    ///
    /// # Errors
    /// [`DeploymentRefused`] if the event is not possible in the current state.
    pub fn on(&self, event: &DeploymentEvent, now: OffsetDateTime) -> Result<Self, DeploymentRefused> {
        use DeploymentEvent as E;
        use DeploymentStatus::{Failed, InProgress, Queued, Running, Stopped};

        let to = |status, why: Option<String>| Self {
            status,
            status_reason: why.as_deref().map(reason),
            updated_at: now,
            ..self.clone()
        };
        Ok(match (self.status, event) {
            (Queued, E::Take(lease)) => Self { lease: Some(*lease), begun_at: Some(now), ..to(InProgress, None) },
            // A restarted node may take over the lease of its previous run at once.
            (InProgress, E::Take(lease))
                if self.lease.is_none_or(|held| held.expires_at <= now || held.node == lease.node) =>
            {
                Self { lease: Some(*lease), ..self.clone() }
            }
            (InProgress, E::Built { checksum, artifact }) => {
                Self { source_checksum: Some(checksum.clone()), artifact: Some(artifact.clone()), ..to(Running, None) }
            }
            (Queued | InProgress, E::BuildFailed(why)) | (Running, E::ProcessesFailed(why)) => {
                to(Failed, Some(why.clone()))
            }
            (Queued | InProgress | Running, E::Stop) => to(Stopped, Some("stopped by request".to_owned())),
            (Running, E::Replaced(by)) => to(Stopped, Some(format!("replaced by deployment {by}"))),
            (Queued, E::Built { .. } | E::ProcessesFailed(_) | E::Replaced(_))
            | (InProgress, E::Take(_) | E::ProcessesFailed(_) | E::Replaced(_))
            | (Running, E::Take(_) | E::Built { .. } | E::BuildFailed(_))
            | (Failed | Stopped, _) => {
                return Err(DeploymentRefused { id: self.id, status: self.status, event: event.name() });
            }
        })
    }
}
